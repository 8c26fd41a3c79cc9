"""The agent's user in an untrusted pod: how processes are started as it, and how all of them are ended.

The daemon is root with few capabilities; everything it starts is this user. Where the daemon is not root (tests, local
pods of a plain user) commands run as the daemon's own user, which isolates nothing: an explicit setting.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Broken

KILL_ROUNDS: Final = 50
# The shell does as the user what must not be done as root, then becomes the command: $1 data limit in KiB, $2 folder.
_START: Final = (
    '{ echo 1000 >/proc/self/oom_score_adj; ulimit -d "$1"; } 2>/dev/null; cd -- "$2" || exit 126; shift 2; exec "$@"'
)


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who commands run as, and with what."""

    uid: int | None
    """None: the daemon's own user."""
    environment: Mapping[str, str]
    """What every command starts with; nothing of the daemon's own environment."""
    data_limit_bytes: int | None = None
    """Each process's data, so that a hog dies before the daemon."""

    def start(self, argv: Sequence[str], cwd: str, extra: Mapping[str, str], output: int) -> "subprocess.Popen[bytes]":
        """Start a command in a new session, its output into a descriptor.

        Raises:
            OSError: it cannot be started.
            ValueError: a text holds a NUL, or a variable's name an equals sign.
        """
        limit = "unlimited" if self.data_limit_bytes is None else str(self.data_limit_bytes // 1024)
        return subprocess.Popen(
            ["/bin/sh", "-c", _START, "sh", limit, cwd, *argv],
            cwd="/",
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o022,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )

    def identity(self) -> dict[str, object]:
        """Return the arguments that make any child this user."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": [], "umask": 0o022}

    def end_all(self, sessions: Iterable[int]) -> None:
        """Kill every process of the user; of the daemon's own user only those of the given sessions.

        Raises:
            Broken: some did not die.
        """
        wanted = frozenset(sessions)
        for _ in range(KILL_ROUNDS):
            alive = [pid for pid in _pids() if self._is_ours(pid, wanted)]
            if not alive:
                return
            self._kill(alive)
            time.sleep(0.02)
        raise Broken(f"{len(alive)} processes of the agent's user do not die")

    def _kill(self, alive: Iterable[int]) -> None:
        if self.uid is not None:
            # All at once and by the kernel: a list of pids would always lose against something that forks.
            try:
                subprocess.run(["/bin/sh", "-c", "kill -9 -1"], env={}, check=False, **self.identity())  # type: ignore[call-overload]
            except OSError:
                pass  # no process is left for this one, so whatever forks fails as well and the list does not lose
            else:
                return
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _is_ours(self, pid: int, sessions: frozenset[int]) -> bool:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # Not the folder's owner: a process can hide that by making itself undumpable.
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False
        if words[0] in "ZX":
            return False
        if self.uid is None:
            return int(words[3]) in sessions
        return str(self.uid) in status.partition("\nUid:")[2].partition("\n")[0].split()


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
