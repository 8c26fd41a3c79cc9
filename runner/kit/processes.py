"""The submission's processes, started through its sandbox's daemon: API instances, workers, commands.

Whatever a process does by itself (exits, hangs, dies of memory) is the submission's failure; a daemon that does not
answer is not.
"""

import itertools
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final

import httpx2

from runner.daemon import Daemon
from runner.kit.casefile import CaseFile, cut
from runner.kit.faults import SubmissionFailed
from runner.kit.http_client import HttpClient
from wire.errors import ProctorError
from wire.sandbox import CommandSpec, CommandState, CommandStatus

LOG_BYTES: Final = 65_536
READY_SECONDS: Final = 30.0


class Sut:
    """The untrusted pod, and how its submission is run in it."""

    def __init__(self, daemon: Daemon, host: str, workspace: str, url: str) -> None:
        self.daemon, self.host, self.workspace, self.url = daemon, host, workspace, url
        # Fresh for every run of the kit: a sut that an earlier, dead evaluator used knows its commands for ever.
        self._nonce = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        ports = list(range(20_000, 30_000))
        random.SystemRandom().shuffle(ports)
        self._ports = itertools.cycle(ports)

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str], seconds: float = 600) -> "Process":
        """Start a command; it is killed after so many seconds, whatever becomes of us."""
        id = f"kit-{self._nonce}-{next(self._numbers)}-{name}"
        spec = CommandSpec(argv=list(argv), cwd=self.workspace, env=dict(env), timeout_seconds=seconds)
        self.daemon.put_command(id, spec)
        return Process(self.daemon, id, name)

    def next_port(self) -> int:
        """Return a port that this run has not used yet."""
        return next(self._ports)

    def is_alive(self) -> bool:
        """Tell whether the daemon answers: then a broken connection is the submission's doing."""
        try:
            return httpx2.get(f"{self.url}/healthz", timeout=5, trust_env=False).status_code == 200
        except httpx2.HTTPError:
            return False

    def reset(self) -> None:
        """End everything that runs as the submission's user."""
        self.daemon.stop()


class Process:
    """One started command."""

    def __init__(self, daemon: Daemon, id: str, name: str) -> None:
        self._daemon, self.id, self.name = daemon, id, name

    def status(self) -> CommandStatus:
        """Return how it stands now."""
        return self._daemon.wait(self.id, 0)

    def is_running(self) -> bool:
        """Tell whether it still runs."""
        return self.status().state is CommandState.RUNNING

    def log(self) -> str:
        """Return what it printed so far, the beginning when that is long."""
        return self._daemon.output(self.id, 0, 0)[0][:LOG_BYTES].decode(errors="replace")

    def signal(self, name: str) -> None:
        """Send a signal to its process group."""
        self._daemon.signal(self.id, name)

    def stop(self) -> None:
        """Freeze it (SIGSTOP)."""
        self.signal("SIGSTOP")

    def go_on(self) -> None:
        """Let a frozen one go on (SIGCONT)."""
        self.signal("SIGCONT")

    def kill(self) -> None:
        """End it at once (SIGKILL); when this returns it is gone."""
        self.signal("SIGKILL")
        self.wait(10)

    def terminate(self, seconds: float) -> int:
        """Ask it to end (SIGTERM) and return its exit code; it has so many seconds."""
        self.signal("SIGTERM")
        return self.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Return its exit code.

        Raises:
            SubmissionFailed: it does not end in time.
        """
        end = time.monotonic() + seconds
        while True:
            status = self._daemon.wait(self.id, max(0.0, min(10.0, end - time.monotonic())))
            if status.state is CommandState.EXITED:
                return 1 if status.exit_code is None else status.exit_code
            if time.monotonic() >= end:
                raise SubmissionFailed(f"`{self.name}` has not ended after {seconds:g} s: {cut(self.log(), 600)}")


class Api(HttpClient):
    """One API instance: its process and a client for it."""

    def __init__(self, sut: Sut, process: Process, port: int, case_file: CaseFile) -> None:
        super().__init__(f"http://{sut.host}:{port}", case_file, sut.is_alive)
        self.process = process
        self.port = port


class Launcher:
    """Starts the processes of one case and ends them with it."""

    def __init__(self, sut: Sut, case_file: CaseFile) -> None:
        self._sut, self._file = sut, case_file
        self.processes: list[Process] = []
        """Everything started for this case, in order."""
        self._apis: list[Api] = []

    def run(self, name: str, argv: Sequence[str], env: Mapping[str, str], seconds: float = 60) -> Process:
        """Run a command to its end."""
        process = self.start(name, argv, env, seconds)
        process.wait(seconds + 5)
        return process

    def succeed(self, name: str, argv: Sequence[str], env: Mapping[str, str], seconds: float = 60) -> Process:
        """Run a command, which must end with exit code 0."""
        process = self.run(name, argv, env, seconds)
        code = process.status().exit_code
        if code != 0:
            raise SubmissionFailed(f"`{name}` ended with exit code {code}: {cut(process.log(), 1500)}")
        return process

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str], seconds: float = 600) -> Process:
        """Start a command that goes on running."""
        process = self._sut.start(name, argv, env, seconds)
        self._file.line(f"started `{name}` as {process.id}")
        self.processes.append(process)
        return process

    def apis(self, count: int, argv: Sequence[str], env: Mapping[str, str], ready: str) -> list[Api]:
        """Start API instances on ports of their own; return them once each answers 200 at the path `ready`."""
        started = [self.begin_api(argv, env, self._sut.next_port()) for _ in range(count)]
        for api in started:
            self.await_ready(api, ready)
        return started

    def begin_api(self, argv: Sequence[str], env: Mapping[str, str], port: int) -> Api:
        """Start one API instance on this port, without waiting for it."""
        process = self.start("api", argv, {**env, "HOST": "0.0.0.0", "PORT": str(port)})
        api = Api(self._sut, process, port, self._file)
        self._apis.append(api)
        return api

    def await_ready(self, api: Api, path: str, seconds: float = READY_SECONDS) -> None:
        """Wait until an instance answers.

        Raises:
            SubmissionFailed: it exits first, or takes too long.
        """
        end = time.monotonic() + seconds
        while not _answers(f"{api.base}{path}"):
            status = api.process.status()
            if status.state is CommandState.EXITED:
                raise SubmissionFailed(
                    f"the API ended with {status.exit_code} at start: {cut(api.process.log(), 1500)}"
                )
            if time.monotonic() > end:
                raise SubmissionFailed(
                    f"the API does not answer {path} after {seconds:g} s: {cut(api.process.log(), 1500)}"
                )
            time.sleep(0.03)

    def close(self) -> None:
        """End everything, and put what the processes said on the case's file."""
        for api in self._apis:
            api.close()
        self._sut.reset()
        for process in self.processes[:12]:
            try:
                status = process.status()
                self._file.text(f"log of {process.name} (exit {status.exit_code})", cut(process.log(), 6000))
            except ProctorError as error:
                self._file.line(f"the log of {process.id} cannot be read: {error}")


def _answers(url: str) -> bool:
    try:
        with httpx2.stream("GET", url, timeout=2, trust_env=False) as response:
            return response.status_code == 200
    except httpx2.HTTPError:
        return False
