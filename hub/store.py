"""Where archives lie: files by digest, in a folder or in an S3 bucket. Bytes in, the same bytes out; no judgement.

A file is visible whole or not at all. Putting a digest again replaces the file by an equal one, which also mends a
spoilt one. Whatever means "the store is away" is NotReady.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from wire.digest import Digest
from wire.errors import Broken, NotReady


class ArchiveLost(Broken):
    """The database knows an archive that the store does not have."""

    reason = "ArchiveLost"


class Store(Protocol):
    """A few verbs over files named by digest."""

    spool: Path
    """Where a file to be put is written first."""

    def put(self, digest: Digest, file: Path) -> None:
        """Take over a finished file; afterwards it may be gone from where it was."""

    def open(self, digest: Digest) -> BinaryIO:
        """Return a stream of a file.

        Raises:
            ArchiveLost: there is none.
        """

    def check(self) -> None:
        """Raise NotReady when the store is away."""


class FolderStore:
    """A folder: `<first two digits>/<digest>`, written aside and renamed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.spool = root / "incoming"
        self.spool.mkdir(parents=True, exist_ok=True)
        for left_over in self.spool.iterdir():
            left_over.unlink()

    def put(self, digest: Digest, file: Path) -> None:
        target = self._path(digest)
        with as_not_ready():
            target.parent.mkdir(exist_ok=True)
            with file.open("rb") as content:
                os.fsync(content.fileno())
            file.replace(target)
            _sync_folder(target.parent)

    def open(self, digest: Digest) -> BinaryIO:
        try:
            return self._path(digest).open("rb")
        except FileNotFoundError:
            raise ArchiveLost(f"the store has lost {digest}") from None
        except OSError as error:
            raise NotReady(f"the store does not answer: {error}") from error

    def check(self) -> None:
        with as_not_ready(), tempfile.TemporaryFile(dir=self.spool):
            return

    def _path(self, digest: Digest) -> Path:
        name = digest.removeprefix("sha256:")
        return self._root / name[:2] / name


@contextmanager
def as_not_ready() -> Iterator[None]:
    """Turn an error of the disk, a full one among them, into NotReady."""
    try:
        yield
    except OSError as error:
        raise NotReady(f"the store does not answer: {error}") from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
