"""Real roles as real processes on loopback: daemons, receivers, agents, users, gates."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from runner.daemon import Daemon

ROOT = Path(__file__).parents[2]
BEARER = "a-bearer"
OTHER_UID = 100_000 + os.getpid()
"""A uid that nobody on the machine has, not even a second run of these tests: all its processes get killed."""


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def secrets_folder(folder: Path, **secrets: str) -> Path:
    """Write secrets as a pod sees them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in secrets.items():
        (folder / name).write_text(text)
    return folder


@dataclass
class Running:
    """A role that runs as a process of its own."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def output(self) -> str:
        """Return what it has printed."""
        return self.log.read_text()

    def kill(self) -> None:
        """End it as a lost pod ends."""
        self.process.kill()
        self.process.wait()

    def wait(self, seconds: float = 30.0) -> int:
        """Return its exit code."""
        return self.process.wait(seconds)


def start_role(role: str, folder: Path, settings: Mapping[str, object], path: str = os.defpath) -> Running:
    """Start `python -m runner ROLE` with nothing but these settings in its environment."""
    log = folder / f"{role}-{time.monotonic_ns()}.log"
    environment = {f"PROCTOR_{name.upper()}": str(value) for name, value in settings.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner", role],
            cwd=ROOT,
            env={"PATH": path, **environment},
            stdout=output,
            stderr=output,
        )
    return Running(process, log)


@dataclass
class Box:
    """A sandbox on this machine: a daemon, its workspace and home."""

    folder: Path
    uid: int | None = None
    settings: dict[str, object] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    daemon: Running | None = None
    clients: list[Daemon] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        """Return where commands work."""
        return self.folder / "workspace"

    @property
    def home(self) -> Path:
        """Return the home of the agent's user."""
        return self.folder / "home"

    @property
    def url(self) -> str:
        """Return where the daemon listens."""
        return f"http://127.0.0.1:{self.port}"

    def told(self) -> dict[str, object]:
        """Return the daemon's settings."""
        mine: dict[str, object] = {
            "secrets": secrets_folder(self.folder / "secrets", daemon=BEARER),
            "workspace": self.workspace,
            "agent_home": self.home,
            "spool": self.folder / "spool",
            "listen_host": "127.0.0.1",
            "listen_port": self.port,
        }
        if self.uid is None:
            return mine | {"own_user": "true"} | self.settings
        # The interpreter of the tests may lie where the other user cannot go.
        return mine | {"agent_uid": self.uid, "python": "/usr/bin/python3"} | self.settings

    def start(self) -> "Box":
        """Start the daemon and wait until it listens."""
        for place in (self.workspace, self.home):
            place.mkdir(parents=True, exist_ok=True)
            if self.uid is not None:
                os.chown(place, self.uid, self.uid)
        self.daemon = start_role("sandbox", self.folder, self.told())
        await_health(self.url, self.daemon)
        return self

    def client(self, bearer: str = BEARER, **options: float) -> Daemon:
        """Return a client of it, closed with the box."""
        made = Daemon(self.url, bearer, **options)
        self.clients.append(made)
        return made

    def stop(self) -> None:
        """End the daemon and what it started."""
        for client in self.clients:
            client.close()
        if self.daemon is not None:
            self.daemon.process.terminate()
            self.daemon.wait()

    def wipe(self) -> None:
        """Lose the sandbox as a node is lost: daemon, files and all."""
        assert self.daemon is not None
        self.daemon.kill()
        for place in (self.workspace, self.home, self.folder / "spool"):
            shutil.rmtree(place, ignore_errors=True)


def await_health(url: str, running: Running) -> None:
    """Wait until a role answers."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and running.process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/healthz").status_code == 200:
                return
        time.sleep(0.03)
    raise AssertionError(running.output())


@contextlib.contextmanager
def box(folder: Path, uid: int | None = None, **settings: object) -> Iterator[Box]:
    """Run a sandbox for as long as the block lasts."""
    folder.mkdir(exist_ok=True)
    made = Box(folder=folder, uid=uid, settings=settings)
    try:
        yield made.start()
    finally:
        made.stop()
