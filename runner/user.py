"""Role `user`: the simulated user. Leads the conversation, enforces limits, seals turns, ends the pod's work.

It alone holds the scenario. Decisions are `runner.conversation`'s; here they are carried out.
"""

import tempfile
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from runner.clock import now, parse
from runner.conversation import AlreadyEnded, Deliver, Say, Seen, next_step
from runner.ending import conclude
from runner.errors import PackageMalformed, Unreachable
from runner.hub import Hub
from runner.link import Link, Patience
from runner.parts import extract_part
from runner.settings import SessionSettings
from wire.errors import Broken
from wire.journal import ConversationEnded, GateReported, TurnOpened, TurnSealed
from wire.outcome import Delivered
from wire.package import Scenario
from wire.trial import EndReason
from wire.turn import Stored, TurnRequest, TurnStatus

POLL_SECONDS: Final = 20.0
ARCHIVE_SECONDS: Final = 3600.0
HEARTBEAT_SECONDS: Final = 10.0
AGENT_PATIENCE: Final = Patience(first_seconds=120.0, silence_seconds=15.0)


class AgentContainer:
    """The other container of this pod (`wire.turn`)."""

    def __init__(self, port: int) -> None:
        self._link = Link(f"http://127.0.0.1:{port}", "none", AGENT_PATIENCE, later=frozenset())
        self._over = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def take_turn(self, say: Say, conversation: int) -> TurnStatus:
        """Send a message and wait for the answer; at the time limit what runs is ended."""
        request = TurnRequest(turn=say.turn, conversation=conversation, message=say.message)
        self._link.request("PUT", f"/v1/turns/{say.turn}", content=request.model_dump_json(by_alias=True))
        left = say.seconds
        while not (status := self._poll(say.turn, left)).done:
            left = say.seconds - _seconds_since(status.started_at)
            if left <= 0:
                self._link.request("POST", "/v1/interrupt", timeout=ARCHIVE_SECONDS)
        return status

    def checkpoint(self) -> Stored:
        """Have the sandbox's state stored."""
        return self._store("/v1/checkpoint")

    def candidate(self) -> Stored:
        """Have the delivery stored."""
        return self._store("/v1/candidate")

    def finish(self) -> None:
        """Let the agent end once the hub has its journal."""
        self._over.set()
        self._link.request("POST", "/v1/finish", timeout=ARCHIVE_SECONDS)

    def _poll(self, turn: int, left: float) -> TurnStatus:
        """Ask how a turn stands, waiting for its end or its time limit."""
        wait = max(0.5, min(POLL_SECONDS, left))
        response = self._link.request("GET", f"/v1/turns/{turn}", params={"wait": wait}, timeout=wait + 30)
        return TurnStatus.model_validate_json(response.content)

    def _store(self, path: str) -> Stored:
        return Stored.model_validate_json(self._link.request("POST", path, timeout=ARCHIVE_SECONDS).content)

    def _beat(self) -> None:
        """Show that this container lives, also while it waits for the hub."""
        try:
            while not self._over.wait(HEARTBEAT_SECONDS):
                self._link.request("GET", "/healthz")
        except Unreachable:
            return  # whoever asks the agent something next finds out as well


def _seconds_since(moment: str) -> float:
    return (parse(now()) - parse(moment)).total_seconds()


class Conversation:
    """One conversation with the agent, from wherever the journal says it stands."""

    def __init__(self, settings: SessionSettings, hub: Hub, agent: AgentContainer) -> None:
        self._settings = settings
        self._hub = hub
        self._agent = agent

    def lead(self, scenario: Scenario) -> Delivered:
        """Say what is to be said, then take the delivery."""
        seen = self._read()
        while isinstance(step := next_step(seen, scenario, self._settings.spec.limits), Say):
            seen = replace(seen, sealed=(*seen.sealed, self._take_turn(step)))
        ended = step.entry if isinstance(step, AlreadyEnded) else self._deliver(step)
        self._hub.flush()
        self._agent.finish()
        return Delivered(conversation=ended.conversation, candidate=ended.candidate, end_reason=ended.end_reason)

    def _read(self) -> Seen:
        entries = self._hub.entries("turnSealed", "conversationEnded", "gateReported")
        sealed = sorted((entry for entry in entries if isinstance(entry, TurnSealed)), key=lambda entry: entry.turn)
        return Seen(
            conversation=self._settings.conversation,
            sealed=tuple(sealed),
            ended=tuple(entry for entry in entries if isinstance(entry, ConversationEnded)),
            gates=tuple(entry for entry in entries if isinstance(entry, GateReported)),
            end_reason=self._settings.end_reason,
        )

    def _take_turn(self, say: Say) -> TurnSealed:
        settings = self._settings
        # By the sandbox's attempt, not the session's: a turn that outlives its session is still one turn, with one key.
        self._hub.journal(
            TurnOpened(
                turn=say.turn,
                conversation=settings.conversation,
                attempt=settings.sandbox_attempt,
                message=say.message,
                at=now(),
            )
        )
        status = self._agent.take_turn(say, settings.conversation)
        stored = self._store(self._agent.checkpoint)
        sealed = TurnSealed(
            turn=say.turn,
            conversation=settings.conversation,
            attempt=settings.attempt,
            sandbox=settings.sandbox_attempt,
            reply=status.reply,
            started_at=status.started_at,
            ended_at=status.ended_at or status.started_at,
            checkpoint=stored.digest,
            resource_deaths=status.resource_deaths,
            rolled_back=stored.rolled_back,
        )
        self._hub.journal(sealed)
        return sealed

    def _deliver(self, step: Deliver) -> ConversationEnded:
        stored = self._store(self._agent.candidate)
        ended = ConversationEnded(
            conversation=self._settings.conversation,
            attempt=self._settings.attempt,
            candidate=stored.digest,
            end_reason=EndReason.RESOURCE_LIMIT if stored.rolled_back else step.end_reason,
            at=now(),
        )
        self._hub.journal(ended)
        return ended

    def _store(self, store: Callable[[], Stored]) -> Stored:
        """Have something stored once the hub knows every sealed turn: the agent may have to go back to the last."""
        self._hub.flush()
        return store()


def read_scenario(hub: Hub, settings: SessionSettings) -> Scenario:
    """Fetch the scenario.

    Raises:
        PackageMalformed: it is not one; the message names the field.
    """
    manifest = hub.manifest(settings.spec.package)
    with tempfile.TemporaryDirectory() as scratch:
        folder = extract_part(hub, manifest, "user", Path(scratch, "user"))
        try:
            return Scenario.model_validate(tomllib.loads((folder / "scenario.toml").read_text()))
        except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise PackageMalformed(f"scenario.toml: {error}") from error


def work(settings: SessionSettings) -> Delivered:
    """Lead one conversation to its end."""
    hub = Hub(settings.hub_url, settings.secret("token"), settings.trial_uid, settings.spool / "user")
    agent = AgentContainer(settings.agent_port)
    try:
        return Conversation(settings, hub, agent).lead(read_scenario(hub, settings))
    except Unreachable as error:
        raise Broken(f"the agent container is gone: {error}") from error


def main(settings: SessionSettings) -> int:
    """Lead one conversation and write the outcome."""
    return conclude(settings.termination_log, partial(work, settings))
