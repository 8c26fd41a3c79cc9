"""The only hashing code: bytes and canonical JSON. `tests/wire/digests.json` holds the test vectors.

A digest is written `sha256:<64 hex>`. A tree's digest is that of its deterministic tar (`wire.archive`), so one rule
serves archives on the wire, in the store and unpacked on a disk.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Annotated, BinaryIO, NewType

from pydantic import StringConstraints

Digest = NewType("Digest", str)
DigestField = Annotated[Digest, StringConstraints(pattern=r"^sha256:[a-f0-9]{64}$", max_length=71)]


def of_bytes(content: bytes) -> Digest:
    """Return the digest of some bytes."""
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


class Hasher:
    """The digest of bytes that come and go in chunks."""

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self.length = 0

    def update(self, chunk: bytes) -> None:
        """Take the next chunk."""
        self._state.update(chunk)
        self.length += len(chunk)

    def digest(self) -> Digest:
        """Return the digest of everything so far."""
        return Digest("sha256:" + self._state.hexdigest())


def of_stream(stream: BinaryIO, chunk_bytes: int = 1 << 20) -> Digest:
    """Return the digest of everything left in a stream, read in chunks."""
    state = hashlib.sha256()
    while chunk := stream.read(chunk_bytes):
        state.update(chunk)
    return Digest("sha256:" + state.hexdigest())


def canonical(value: object) -> bytes:
    """Return canonical JSON: UTF-8, sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def of_json(value: object) -> Digest:
    """Return the digest of a value's canonical JSON."""
    return of_bytes(canonical(value))


def of_manifest(parts: Mapping[str, str]) -> Digest:
    """Return the digest of named digests: what a package or a bank is pinned by."""
    return of_json(["proctor-manifest-v1", dict(parts)])


def sign(key: bytes, message: bytes) -> str:
    """Return the hex HMAC-SHA256 of a message."""
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def is_signed(key: bytes, message: bytes, signature: str) -> bool:
    """Compare in constant time."""
    # As bytes: compare_digest raises for text outside ASCII, and a caller may send anything.
    return hmac.compare_digest(sign(key, message).encode(), signature.encode("utf-8", "surrogateescape"))
