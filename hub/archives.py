"""Archives: taken in only when they hash to what they were announced as, given out only when they still do.

Stored as gzip, level 1; digests and lengths are of the bytes before that. A stream that turns out to be spoilt breaks
off before its last piece, so that no reader can take it for whole.
"""

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from hub.database import Connection
from hub.records import NotFound
from hub.store import Store, as_not_ready
from wire.archive import BYTES_LIMIT
from wire.digest import Digest, Hasher
from wire.errors import DigestMismatch, InvalidInput

PIECE_BYTES: Final = 1 << 20


class TooLarge(InvalidInput):
    """A body over its bound."""

    reason = "TooLarge"


class ArchiveSpoilt(DigestMismatch):
    """What the store gives back is not what was put into it; asking again will not mend it."""


class Intake:
    """One archive on its way in: written aside, hashed, and then put under its digest or thrown away."""

    def __init__(self, store: Store, limit_bytes: int = BYTES_LIMIT) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        self._hasher = Hasher()
        with as_not_ready():
            self._raw = tempfile.NamedTemporaryFile(dir=store.spool, delete=False)  # noqa: SIM115 - closed in __exit__
        self._file = Path(self._raw.name)
        self._gzip = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1, mtime=0, filename="")

    def write(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._hasher.update(piece)
        if self._hasher.length > self._limit_bytes:
            raise TooLarge(f"the archive is larger than {self._limit_bytes} bytes")
        with as_not_ready():
            self._gzip.write(piece)

    def finish(self, announced: Digest) -> int:
        """Make the archive visible under its digest and return its length.

        Raises:
            DigestMismatch: it hashes to something else; nothing is kept.
        """
        if self._hasher.digest() != announced:
            raise DigestMismatch(f"the archive hashes to {self._hasher.digest()}, not to {announced}; nothing is kept")
        with as_not_ready():
            self._gzip.close()
            self._raw.close()
        self._store.put(announced, self._file)
        return self._hasher.length

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with as_not_ready():
            self._gzip.close()
            self._raw.close()
            self._file.unlink(missing_ok=True)


def read_verified(store: Store, digest: Digest, length: int) -> Iterator[bytes]:
    """Yield an archive's bytes, the last piece only after all of them have been verified.

    Raises:
        ArchiveSpoilt: the store gives back something else.
    """
    hasher = Hasher()
    held = b""
    stored = store.open(digest)
    try:
        for piece in _unpacked(stored, digest):
            hasher.update(piece)
            if hasher.length > length:
                break
            if held:
                yield held
            held = piece
        if hasher.length != length or hasher.digest() != digest:
            raise ArchiveSpoilt(f"the store has spoilt {digest}")
        yield held
    finally:
        stored.close()


def _unpacked(stored: BinaryIO, digest: Digest) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=stored, mode="rb") as content:
            while piece := content.read(PIECE_BYTES):
                yield piece
    except (zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise ArchiveSpoilt(f"the store has spoilt {digest}") from error


def record(connection: Connection, digest: Digest, length: int, owner: str | None) -> None:
    """Note that an archive is stored, and which trial has sent it."""
    connection.execute(
        "INSERT INTO archives (digest, bytes) VALUES (%s, %s) ON CONFLICT (digest) DO NOTHING", (digest, length)
    )
    if owner is not None:
        connection.execute(
            "INSERT INTO archive_owners (digest, trial) VALUES (%s, %s) ON CONFLICT DO NOTHING", (digest, owner)
        )


def read_length(connection: Connection, digest: Digest, owner: str | None) -> int:
    """Return an archive's length; for a trial only if it has sent the archive itself.

    Raises:
        NotFound: there is none, or none of this trial's: the two look the same from outside.
    """
    row = connection.execute(
        "SELECT bytes FROM archives a WHERE digest = %s AND (%s::text IS NULL OR EXISTS "
        "(SELECT 1 FROM archive_owners o WHERE o.digest = a.digest AND o.trial = %s))",
        (digest, owner, owner),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no archive {digest}" + (" of this trial" if owner else ""))
    return cast(int, row[0])
