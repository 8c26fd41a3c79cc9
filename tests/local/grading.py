"""Grade a prepared tree on this machine: a sandbox daemon of its own as the sut, pytest with the kit as the driver.

The same processes as in two pods, without pods: so a task author sees an answer in seconds.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2

from runner.kit.reporting import REPORT, KitConfig, Planned, Ran
from wire.package import TaskInfo

ROOT = Path(__file__).parents[2]
# A uid of our own: the daemon ends every process of its agent's user, on this machine also those of other tests.
AGENT_UID = 61_003


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Where Node 22, PostgreSQL 16 and a Chromium are; in the sandbox image simply on its PATH."""

    folders: Sequence[Path] = ()
    chromium: Path = Path("/usr/bin/chromium")

    @property
    def path(self) -> str:
        """Return a PATH with all of it."""
        return os.pathsep.join([*map(str, self.folders), os.environ["PATH"]])  # noqa: TID251  a test is a shell


@dataclass(frozen=True, kw_only=True)
class Grader:
    """A task's suite, and the tools to run it."""

    task: Path
    info: TaskInfo
    tools: Tools
    agent_uid: int = AGENT_UID
    driver: str | None = None
    """User that plays the driver, where the tests are root; PostgreSQL does not start as root. None: whoever we are."""

    def grade(self, tree: Path, scratch: Path, only: Sequence[str] = (), tags: Sequence[str] = ()) -> dict[str, Ran]:
        """Run the suite on a prepared tree and return what became of each case."""
        scratch.mkdir(parents=True)
        with self._daemon(tree, scratch) as (url, bearer):
            config = KitConfig(
                daemon_url=url,
                daemon_bearer=bearer,
                sut_host="127.0.0.1",
                own_host="127.0.0.1",
                operations=self.info.operations,
                workspace=str(tree),
                tags=list(tags),
                only=list(only),
                reports=str(scratch / "reports.jsonl"),
                scratch=str(scratch / "kit"),
                public=str(self.task / "public"),
                chromium=str(self.tools.chromium),
            )
            (scratch / "kit.json").write_text(config.model_dump_json(by_alias=True))
            done = self._pytest(scratch)
        lines = [REPORT.validate_json(line) for line in (scratch / "reports.jsonl").read_text().splitlines()]
        assert isinstance(lines[0], Planned), done
        return {line.case: line for line in lines if isinstance(line, Ran)}

    def _pytest(self, scratch: Path) -> str:
        suite = self.task / "private" / "evaluator"
        command = [sys.executable, "-m", "pytest", "-p", "runner.kit.plugin", "--kit", str(scratch / "kit.json")]
        command += [
            "-q",
            "-p",
            "no:cacheprovider",
            "--disable-plugin-autoload",
            "-c",
            os.devnull,
            "--rootdir",
            str(suite),
            str(suite),
        ]
        if self.driver is not None:
            command = ["setpriv", f"--reuid={self.driver}", "--clear-groups", *command]
            subprocess.run(["chown", "-R", self.driver, str(scratch)], check=True)
        env = {**os.environ, "PATH": self.tools.path, "HOME": str(scratch)}  # noqa: TID251  a test is a shell
        with (scratch / "pytest.log").open("wb") as log:
            subprocess.run(command, env=env, cwd=suite, stdout=log, stderr=subprocess.STDOUT, check=False)
        return (scratch / "pytest.log").read_text()

    @contextlib.contextmanager
    def _daemon(self, tree: Path, scratch: Path) -> Iterator[tuple[str, str]]:
        """Run a daemon whose workspace is the tree."""
        bearer, port = secrets.token_hex(16), _free_port()
        (scratch / "secrets").mkdir(mode=0o700)
        (scratch / "secrets" / "daemon").write_text(bearer)
        home = tree.parent / "home"
        home.mkdir(exist_ok=True)
        is_root = os.geteuid() == 0
        if is_root:
            for folder in (tree, home):
                subprocess.run(["chown", "-R", f"{self.agent_uid}:{self.agent_uid}", str(folder)], check=True)
        env = {
            **os.environ,  # noqa: TID251  a test is a shell
            "PROCTOR_SECRETS": str(scratch / "secrets"),
            "PROCTOR_WORKSPACE": str(tree),
            "PROCTOR_AGENT_HOME": str(home),
            "PROCTOR_AGENT_UID": str(self.agent_uid),
            "PROCTOR_OWN_USER": "false" if is_root else "true",
            "PROCTOR_LISTEN_HOST": "127.0.0.1",
            "PROCTOR_LISTEN_PORT": str(port),
            "PROCTOR_SPOOL": str(scratch / "spool"),
            "PROCTOR_COMMAND_PATH": self.tools.path,
        }
        with (scratch / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "runner", "sandbox"], env=env, cwd=ROOT, stdout=log, stderr=log
            )
        try:
            _await(f"http://127.0.0.1:{port}/healthz", process)
            yield f"http://127.0.0.1:{port}", bearer
        finally:
            process.terminate()
            process.wait(20)


def _await(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(300):
        assert process.poll() is None, "the daemon has ended"
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url, trust_env=False).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"{url} does not answer")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
