"""What an agent kind works with: the sandbox, the trial, and a journal whose rows follow from facts.

A new agent container re-attaches to a command and journals it from the start again. So an event's number comes from the
command (its output in slots of a fixed size), never from a counter: the same facts give the same keys, stored once.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from runner.clock import from_unix, now
from runner.daemon import Daemon, Finished
from runner.hub import Hub
from wire.journal import TurnEvent
from wire.package import PackageManifest
from wire.sandbox import CommandSpec
from wire.trial import TrialSpec

SLOT_BYTES: Final = 4096
SLOTS: Final = 512
"""Output beyond this many slots is not journalled; live views and evidence do not need more."""
LAST_SEQUENCE: Final = 1_000_000
REPLY_CHARACTERS: Final = 8192


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How a turn ended."""

    text: str
    started_at: str
    ended_at: str
    resource_deaths: int = 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One trial's sandbox, seen from its agent."""

    daemon: Daemon
    hub: Hub
    spec: TrialSpec
    manifest: PackageManifest
    sandbox_attempt: int
    workspace: str

    def command(self, turn: int) -> str:
        """Return the id under which a turn's command runs, once, in this sandbox."""
        return f"turn-{self.sandbox_attempt}-{turn}"

    def run(self, turn: int, spec: CommandSpec) -> Finished:
        """Run a turn's command, or join it, and journal what happens."""
        self.note(turn, 0, "command", shlex.join(spec.argv))
        slots = Slots()

        def keep(piece: bytes) -> None:
            for number, text in slots.take(piece):
                self.note(turn, 1 + number, "output", text)

        done = self.daemon.run(self.command(turn), spec, keep)
        for number, text in slots.rest():
            self.note(turn, 1 + number, "output", text)
        self.note(turn, LAST_SEQUENCE, "exit", str(done.status.exit_code))
        return done

    def reply(self, done: Finished, begun_at: str, text: str) -> Reply:
        """Return the answer of a turn that ran one command, timed by that command where it began before us."""
        words = f"{text}\n\n{readable(done.tail)}"
        return Reply(
            text=words[:REPLY_CHARACTERS],
            started_at=min(begun_at, from_unix(done.status.started_at)),
            ended_at=from_unix(done.status.ended_at or done.status.started_at),
            resource_deaths=int(done.status.memory),
        )

    def note(self, turn: int, sequence: int, event: str, text: str) -> None:
        """Journal an event of a turn of this sandbox."""
        entry = TurnEvent(
            turn=turn, attempt=self.sandbox_attempt, sequence=sequence, at=now(), event=event, text=text[:65536]
        )
        self.hub.journal(entry)


class Slots:
    """Cuts a stream of output into pieces of one size, so that a piece's number and content follow from the output."""

    def __init__(self) -> None:
        self._number = 0
        self._held = b""

    def take(self, piece: bytes) -> Iterator[tuple[int, str]]:
        """Yield the slots that are full now."""
        self._held += piece
        while len(self._held) >= SLOT_BYTES:
            full, self._held = self._held[:SLOT_BYTES], self._held[SLOT_BYTES:]
            yield from self._slot(full)

    def rest(self) -> Iterator[tuple[int, str]]:
        """Yield the last slot, if anything is left for it."""
        if self._held:
            yield from self._slot(self._held)

    def _slot(self, content: bytes) -> Iterator[tuple[int, str]]:
        if self._number < SLOTS:
            yield self._number, readable(content)
        self._number += 1


def readable(content: bytes) -> str:
    """Return output as text that any store takes: no broken UTF-8, no NUL."""
    return content.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
