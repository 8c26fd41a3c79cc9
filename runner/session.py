"""The agent's side of a conversation: turns that are begun once, and a sandbox that one thing at a time happens in.

A turn runs in a thread of its own. An error ends the container: every answer tells it to the user from then on, and the
pod's exit code tells the operator.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

import structlog

from runner.agents import KINDS
from runner.agents.scene import Reply, Scene
from runner.clock import from_unix, now
from runner.errors import Missing
from runner.workspace import prepare, store_candidate, store_checkpoint
from wire.errors import Broken, ProctorError
from wire.turn import Stored, TurnRequest, TurnStatus

T = TypeVar("T")
FAREWELL_SECONDS: Final = 5.0
log = structlog.get_logger()


class Session:
    """The agent's side of a conversation."""

    def __init__(self, make_scene: Callable[[], Scene], home: str) -> None:
        """`make_scene` waits for the hub: called when the sandbox is first needed, not before the server answers."""
        self._make_scene = make_scene
        self._home = home
        self._turns: dict[int, TurnStatus] = {}
        self._changed = threading.Condition()
        self._sandbox = threading.Lock()
        self._is_prepared = False
        self.heard = time.monotonic()
        self.failure: ProctorError | None = None
        self.is_finished = False
        self.end: Callable[[], None] = lambda: None

    def begin(self, request: TurnRequest) -> TurnStatus:
        """Begin a turn, or return how it stands."""
        with self._changed:
            if request.turn not in self._turns:
                self._turns[request.turn] = TurnStatus(turn=request.turn, done=False, started_at=now())
                threading.Thread(target=self._work, args=(request,), name=f"turn {request.turn}", daemon=True).start()
            return self._turns[request.turn]

    def status(self, turn: int, wait_seconds: float) -> TurnStatus:
        """Return how a turn stands, after waiting for its end."""
        with self._changed:
            if turn not in self._turns:
                raise Missing(f"turn {turn} was never begun here")
            self._changed.wait_for(lambda: self._turns[turn].done or self.failure is not None, wait_seconds)
            if self.failure is not None:
                raise self.failure
            return self._turns[turn]

    def interrupt(self) -> None:
        """End the agent's processes; not one at a time, for a turn that runs is what it is about."""
        self._guarded(lambda: self._scene.daemon.stop())

    def checkpoint(self) -> Stored:
        """Store workspace and home."""
        return self._in_sandbox(lambda scene: store_checkpoint(scene, self._home))

    def candidate(self) -> Stored:
        """Store the workspace as it is delivered."""
        return self._in_sandbox(lambda scene: store_candidate(scene, self._home))

    def finish(self) -> None:
        """Flush the journal and let the container end."""
        self._guarded(lambda: self._scene.hub.flush())
        self.is_finished = True
        self.end()

    def give_up(self, error: Exception) -> None:
        """Record why this container ends, and end it after the user has had time to hear of it."""
        with self._changed:
            if self.failure is None and not self.is_finished:
                self.failure = error if isinstance(error, ProctorError) else Broken(f"{type(error).__name__}: {error}")
                threading.Timer(FAREWELL_SECONDS, self.end).start()
            self._changed.notify_all()

    @cached_property
    def _scene(self) -> Scene:
        return self._make_scene()

    def _work(self, request: TurnRequest) -> None:
        def take(scene: Scene) -> Reply:
            # Development time begins here: preparing a sandbox is not the agent's. A turn that outlived its session
            # began when its command did.
            known = scene.daemon.status(scene.command(request.turn))
            self._set(
                TurnStatus(turn=request.turn, done=False, started_at=from_unix(known.started_at) if known else now())
            )
            return KINDS[scene.spec.arm.agent.kind].turn(request, scene)

        try:
            reply = self._in_sandbox(take)
        except Exception:  # the top of a thread: `_guarded` has recorded it, every answer tells it
            log.exception("the turn failed", turn=request.turn)
            return
        begun = self._turns[request.turn].started_at
        self._set(_done(request.turn, replace(reply, started_at=min(begun, reply.started_at))))

    def _set(self, status: TurnStatus) -> None:
        with self._changed:
            self._turns[status.turn] = status
            self._changed.notify_all()

    def _in_sandbox(self, call: Callable[[Scene], T]) -> T:
        """Do something in a sandbox that is prepared, one at a time."""

        def prepared() -> T:
            if not self._is_prepared:
                self._scene.hub.journal(prepare(self._scene, self._home))
                self._is_prepared = True
            return call(self._scene)

        with self._sandbox:
            return self._guarded(prepared)

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            self.give_up(error)
            raise self.failure or error from error


def _done(turn: int, reply: Reply) -> TurnStatus:
    return TurnStatus(
        turn=turn,
        done=True,
        reply=reply.text,
        started_at=reply.started_at,
        ended_at=reply.ended_at,
        resource_deaths=reply.resource_deaths,
    )
