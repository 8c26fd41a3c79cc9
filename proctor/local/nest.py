"""What this machine lets us isolate, and the outer namespaces an ordinary user's pods live in.

Two pods can only be joined when the same user namespace owns both networks; the nest is that namespace.
"""

import asyncio
import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from proctor.local.mode import Mode
from wire.errors import InvalidInput

PROGRAMS = {
    "bwrap": "bubblewrap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mountpoint": "util-linux",
    "ip": "iproute2",
}


def find_mode() -> Mode:
    """Return what this user may do."""
    if os.geteuid() == 0:
        return Mode.ROOT
    owner = pwd.getpwuid(os.geteuid())
    ranges = Path("/etc/subuid").read_text().splitlines() if Path("/etc/subuid").exists() else []
    owned = any(line.split(":")[0] in (owner.pw_name, str(owner.pw_uid)) for line in ranges)
    return Mode.RANGE if owned and shutil.which("newuidmap") else Mode.SINGLE


def lacking() -> list[str]:
    """Return the Debian packages that pods without a cluster need and this machine has not."""
    # /usr/sbin holds `ip` on Debian and is often not on an ordinary user's path.
    path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin", "/sbin"])
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})


class Nest:
    """The namespaces that own every pod's; empty for root. Ends with the launcher, as the pods do."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        if self.mode is not Mode.ROOT:
            users = ["--map-root-user", *(["--map-auto"] if self.mode is Mode.RANGE else [])]
            self._process = await asyncio.create_subprocess_exec(
                *["unshare", "--user", *users, "--net", "--", "sh", "-c", "echo up; exec cat >/dev/null"],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert self._process.stdout
            if not await self._process.stdout.readline():
                raise InvalidInput("this user may not make namespaces (kernel.unprivileged_userns_clone, AppArmor?)")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    def enter(self) -> list[str]:
        """Return the words that run a command as the nest's root."""
        if self._process is None:
            return []
        return ["nsenter", f"--target={self._process.pid}", "--user", "--preserve-credentials", "--net", "--"]

    async def run(self, *argv: str) -> tuple[int, str]:
        """Run a short command as the nest's root; returns its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *self.enter(), *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=_environment()
        )
        printed, _ = await process.communicate()
        return process.returncode or 0, printed.decode(errors="replace").strip()

    async def remove(self, folder: Path) -> None:
        """Remove a folder with files of several owners."""
        await self.run("rm", "-rf", "--one-file-system", str(folder))

    async def own(self, path: Path, group: int) -> None:
        """Give a file to root and a group, where ids differ at all."""
        if self.mode is not Mode.SINGLE:
            await self.run("chown", f"0:{group}", str(path))


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def shell(script: str, *arguments: str) -> Sequence[str]:
    """Return the words that run a small script with arguments $1, $2 …"""
    return ["sh", "-ec", script, "sh", *arguments]
