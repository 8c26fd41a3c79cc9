"""The services behind a local run: PostgreSQL, hub and gateway as child processes, on Unix sockets.

They end with the launcher, however it ends; Ctrl-C at the terminal does not reach them, so a run can be ended well.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from proctor.local.home import Home
from proctor.local.image import CHECKOUT
from proctor.local.postgres import Postgres
from wire.errors import Broken, NotReady

START_SECONDS = 60.0
STOP_SECONDS = 15.0


@contextmanager
def serve(home: Home) -> Iterator[None]:
    """Serve hub and gateway of a home until the block ends. Call it from the main thread, prepared and alone."""
    database = Postgres(folder=home.database)
    database.start()
    started: list[Service] = []
    try:
        started.append(_hub(home, database.url))
        started.append(_gateway(home, database.url))
        for service in started:
            service.wait_ready()
        yield
    finally:
        for service in reversed(started):
            service.stop()
        database.stop()


class Service:
    """One child process that answers on a socket."""

    def __init__(self, home: Home, name: str, module: tuple[str, ...], told: Mapping[str, str]) -> None:
        self.name, self._socket, self._log = name, home.socket(name), home.logs / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", *module],
                env={**_environment(), **told},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it serves. Raises Broken when it ended, NotReady when it takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not answers(self._socket, "/readyz" if self.name == "hub" else "/healthz"):
            if self._process.poll() is not None:
                raise Broken(f"the {self.name} did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                raise NotReady(f"the {self.name} is not ready after {START_SECONDS:.0f} s; see {self._log}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it, kindly at first."""
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {self._log}"


def answers(socket: Path, path: str) -> bool:
    """Tell whether a service answers 200 on its socket."""
    if not socket.exists():
        return False
    try:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), timeout=5) as client:
            return bool(client.get(f"http://service{path}").status_code == 200)
    except httpx2.HTTPError:
        return False


def _hub(home: Home, database_url: str) -> Service:
    told = {
        "HUB_DATABASE_URL": database_url,
        "HUB_STORE": str(home.store),
        "HUB_INSTALLATION_KEY": str(home.key),
        "HUB_BUNDLED_TASKS": str(CHECKOUT / "tasks"),
        "HUB_LISTEN": f"unix:{home.socket('hub')}",
    }
    return Service(home, "hub", ("hub", "serve"), told)


def _gateway(home: Home, database_url: str) -> Service:
    told = {
        "GATEWAY_DATABASE_URL": database_url,
        "GATEWAY_INSTALLATION_KEY": str(home.key),
        "GATEWAY_LISTEN": f"unix:{home.socket('gateway')}",
    }
    return Service(home, "gateway", ("hub.gateway",), told)


def _environment() -> dict[str, str]:
    """Return what a service needs of ours; nothing set for a hub elsewhere reaches it."""
    kept = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}  # noqa: TID251 - handed on, not read
