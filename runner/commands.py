"""Commands of the agent's user: started once per id, output spooled and read by offset, exit codes kept.

Everything here runs on the daemon's one event loop; only waiting for a process's end is a thread's, and reaping is the
loop's, so that a signal never goes to a number that is already somebody else's.
"""

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runner.account import Account
from wire.errors import InvalidInput
from wire.sandbox import CommandSpec, CommandState, CommandStatus

ID_PATTERN: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
COMMANDS_LIMIT: Final = 20_000
OUTPUT_LIMIT_BYTES: Final = 64 << 20
SPOOL_LIMIT_BYTES: Final = 2 << 30
READ_BYTES: Final = 1 << 16
PIECE_BYTES: Final = 1 << 20
CUT: Final = b"\n[the output goes on and is not kept]\n"


def died_of_memory(exit_code: int, *, was_ended: bool, kills: tuple[int | None, int | None]) -> bool:
    """Tell whether a command died of the memory limit: the kernel's counter decides, else an unexplained SIGKILL."""
    before, after = kills
    if exit_code == 0 or was_ended:
        return False
    if before is not None and after is not None:
        return after > before
    return exit_code == 128 + signal.SIGKILL


class Command:
    """One command: its process, its spooled output, and whoever waits for either."""

    def __init__(self, command: str, spec: CommandSpec, spool: Path, kills: int | None) -> None:
        self.id = command
        self.spec = spec
        self.kills_before = kills
        self.spool = spool
        self.output_bytes = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.reading: int | None = None
        """The pipe of its output, until everyone who holds the other end is gone."""
        self.timed_out = self.was_ended = self.memory = False
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.changed = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self.exit_code is None

    def status(self) -> CommandStatus:
        """Return how it stands."""
        return CommandStatus(
            id=self.id,
            state=CommandState.RUNNING if self.is_running else CommandState.EXITED,
            exit_code=self.exit_code,
            signal=self.signal,
            timed_out=self.timed_out,
            memory=self.memory,
            output_bytes=self.output_bytes,
            started_at=self.started_at,
            ended_at=self.ended_at,
        )

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def wait_until(self, is_enough: Callable[[], bool], seconds: float) -> None:
        """Wait until something holds, but not longer than this."""
        deadline = time.monotonic() + seconds
        while not is_enough() and (left := deadline - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self.changed.wait(), left)
            except TimeoutError:
                return

    def keep(self, piece: bytes, room: int) -> int:
        """Append output to the spool as long as there is room; return how much was kept."""
        if self.output_bytes >= room:
            return 0
        kept = piece if self.output_bytes + len(piece) < room else piece[: room - self.output_bytes] + CUT
        with self.spool.open("ab") as out:
            out.write(kept)
        self.output_bytes += len(kept)
        self.tell()
        return len(kept)

    def read(self, offset: int) -> bytes:
        """Return a piece of output from an offset on."""
        if offset >= self.output_bytes:
            return b""
        with self.spool.open("rb") as spool:
            spool.seek(offset)
            return spool.read(PIECE_BYTES)


class Commands:
    """All commands of this pod, by id, for as long as the pod lives."""

    def __init__(self, account: Account, spool: Path, memory_kills: Callable[[], int | None]) -> None:
        self._account = account
        self._spool = spool
        self._memory_kills = memory_kills
        self._known: dict[str, Command] = {}
        self._spooled = 0
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, command: str) -> Command | None:
        """Return a command that was started."""
        return self._known.get(command)

    def start(self, command: str, spec: CommandSpec) -> Command:
        """Start a command, or return it when the same was started before. Must not await: this is the once.

        Raises:
            InvalidInput: the id is taken by something else, or the command cannot be one.
        """
        if (known := self._known.get(command)) is not None:
            return known
        if not ID_PATTERN.fullmatch(command) or len(self._known) >= COMMANDS_LIMIT:
            raise InvalidInput(
                f"command id {command[:140]!r}: use letters, digits, `.`, `_`, `-`; {COMMANDS_LIMIT} at most"
            )
        started = Command(command, spec, self._spool / f"{command}.out", self._memory_kills())
        reading, writing = os.pipe()
        try:
            started.process = self._account.start(spec.argv, spec.cwd, spec.env, writing)
        except ValueError as error:
            os.close(reading)
            raise InvalidInput(f"argv, cwd or env: {error}") from error
        except OSError as error:
            os.close(reading)
            started.keep(f"cannot be started: {error}\n".encode(), OUTPUT_LIMIT_BYTES)
            started.exit_code, started.ended_at = 126, time.time()
        else:
            self._attend(started, started.process, reading)
        finally:
            os.close(writing)
        self._known[command] = started
        return started

    def signal(self, command: Command, number: signal.Signals) -> None:
        """Send a signal to the process group of a command that runs."""
        if command.process is None or not command.is_running:
            return
        if number == signal.SIGKILL:
            command.was_ended = True
        os.killpg(command.process.pid, number)

    async def stop(self) -> None:
        """End every process of the agent's user, whichever command it came from."""
        sessions = [command.process.pid for command in self._known.values() if command.process is not None]
        for command in self._known.values():
            if command.is_running:
                command.was_ended = True
        try:
            await asyncio.to_thread(self._account.end_all, sessions)
        except RuntimeError:
            # The agent has left room for no further thread: then here, though nobody is served meanwhile.
            self._account.end_all(sessions)

    def _attend(self, command: Command, process: "subprocess.Popen[bytes]", reading: int) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(reading, False)
        command.reading = reading
        loop.add_reader(reading, self._read, command)
        if command.spec.timeout_seconds is not None:
            loop.call_later(command.spec.timeout_seconds, self._expire, command)

        def watch() -> None:
            # Leaves the zombie in place: until the loop reaps it, its number belongs to this command.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            loop.call_soon_threadsafe(self._end, command, process)

        threading.Thread(target=watch, name=command.id, daemon=True).start()

    def _read(self, command: Command) -> bool:
        """Take what a command has printed; tell whether there may be more at once."""
        if command.reading is None:
            return False
        try:
            piece = os.read(command.reading, READ_BYTES)
        except BlockingIOError:
            return False
        if not piece:
            asyncio.get_running_loop().remove_reader(command.reading)
            os.close(command.reading)
            command.reading = None
        # After its end a command's leftovers may go on printing; nobody was promised that.
        elif command.is_running and self._spooled < SPOOL_LIMIT_BYTES:
            self._spooled += command.keep(piece, OUTPUT_LIMIT_BYTES)
        return bool(piece)

    def _end(self, command: Command, process: "subprocess.Popen[bytes]") -> None:
        """Record a command's end with all that it had printed by then: a pipe holds less than the rounds take."""
        for _ in range(PIECE_BYTES // READ_BYTES):
            if not self._read(command):
                break
        code = process.wait()
        command.signal = -code if code < 0 else None
        command.exit_code = 128 - code if code < 0 else code
        command.ended_at = time.time()
        kills = (command.kills_before, self._memory_kills())
        command.memory = died_of_memory(command.exit_code, was_ended=command.was_ended, kills=kills)
        command.tell()

    def _expire(self, command: Command) -> None:
        if command.is_running:
            command.timed_out = True
            self.signal(command, signal.SIGKILL)
