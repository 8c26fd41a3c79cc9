"""Where local mode keeps its state: one folder, private to the user."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wire.errors import InvalidInput, NotReady

SOCKET_LIMIT_BYTES = 107
KEY_BYTES = 32


@dataclass(frozen=True)
class Home:
    """The folder and the names in it."""

    root: Path

    @property
    def database(self) -> Path:
        """PostgreSQL's folder."""
        return self.root / "database"

    @property
    def store(self) -> Path:
        """The archives."""
        return self.root / "store"

    @property
    def pods(self) -> Path:
        """Folders of running pods; empty between launches."""
        return self.root / "pods"

    @property
    def logs(self) -> Path:
        """What pods and services printed."""
        return self.root / "logs"

    @property
    def key(self) -> Path:
        """The installation key."""
        return self.root / "key"

    def socket(self, name: str) -> Path:
        """Return a service's socket."""
        return self.root / "run" / f"{name}.sock"

    def prepare(self) -> None:
        """Make the folders and the key. Raises InvalidInput when sockets would not fit into the path."""
        if len(os.fsencode(self.socket("gateway"))) > SOCKET_LIMIT_BYTES:
            raise InvalidInput(f"PROCTOR_HOME: {self.root} is too long a path for sockets; choose a shorter one")
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.store, self.logs, self.socket("hub").parent):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidInput(f"PROCTOR_HOME: {error}") from error
        if not self.key.exists():
            partial = self.key.with_suffix(".new")
            partial.touch(mode=0o600)
            partial.write_text(secrets.token_hex(KEY_BYTES))
            partial.rename(self.key)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others from starting services here. Raises NotReady when somebody has."""
        with (self.root / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise NotReady(f"another proctor works in {self.root}; wait for its end or set PROCTOR_HOME") from error
            for left in self.socket("hub").parent.glob("*.sock"):
                left.unlink()
            yield
