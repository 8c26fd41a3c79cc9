"""Client of the hub: journal, archives, package parts.

An unreachable hub delays a pod and never misleads it: journal entries wait in a file on the pod's disk, everything
else is asked again for as long as the pod lives. The hub stores a key once, so sending again is harmless.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx2
from pydantic import TypeAdapter

from runner.errors import Missing
from runner.link import Link, Patience, chunks, length, opened
from wire.digest import Digest, Hasher
from wire.errors import DigestMismatch, ProctorError
from wire.journal import AnyEntry
from wire.package import PackageManifest
from wire.report import JOURNAL_PAGE_ROWS, JournalRow

BATCH_ENTRIES: Final = 200
BATCH_BYTES: Final = 4 << 20
TRANSFER_SECONDS: Final = 600.0
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
_ROWS: Final = TypeAdapter(list[JournalRow])


class Hub:
    """The hub as one pod of one trial sees it. Safe to use from several threads."""

    def __init__(self, url: str, token: str, trial_uid: str, spool: Path) -> None:
        """`spool` is a folder of this pod's own; entries left in it are sent again."""
        self._link = Link(url, token, Patience(), later=_LATER)
        self._trial = f"/v1/trials/{trial_uid}"
        self._spool = Spool(spool, self._send)

    def close(self) -> None:
        """Stop sending and close the connections; what was not flushed stays on disk."""
        self._spool.close()
        self._link.close()

    # Journal

    def journal(self, *entries: AnyEntry) -> None:
        """Put entries on disk and send them in the background, in order."""
        self._spool.append([entry.model_dump_json(by_alias=True, exclude_none=True) for entry in entries])

    def flush(self) -> None:
        """Wait until the hub has accepted everything.

        Raises:
            ProctorError: the hub refused an entry, or this attempt is over.
        """
        self._spool.flush()

    def entries(self, *kinds: str) -> list[AnyEntry]:
        """Return the trial's entries of these kinds, oldest first."""
        found: list[AnyEntry] = []
        after = 0
        while True:
            parameters = [("after", str(after)), *(("kind", kind) for kind in kinds)]
            rows = _ROWS.validate_json(self._link.request("GET", f"{self._trial}/journal", params=parameters).content)
            found += [row.entry for row in rows]
            if len(rows) < JOURNAL_PAGE_ROWS:
                return found
            after = rows[-1].sequence

    # Packages and archives

    def manifest(self, package: Digest) -> PackageManifest:
        """Return a package's manifest."""
        return PackageManifest.model_validate_json(self._link.request("GET", f"/v1/packages/{package}").content)

    def get_part(self, part: str, digest: Digest, target: Path) -> None:
        """Store a part of the trial's package in a file."""
        self._download(f"{self._trial}/parts/{part}", digest, target)

    def has_archive(self, digest: Digest) -> bool:
        """Tell whether an archive is stored."""
        try:
            self._link.request("HEAD", f"/v1/archives/{digest}")
        except Missing:
            return False
        return True

    def get_archive(self, digest: Digest, target: Path) -> None:
        """Store an archive in a file."""
        self._download(f"/v1/archives/{digest}", digest, target)

    def put_archive(self, archive: Path, digest: Digest) -> None:
        """Upload an archive, unless it is stored already."""

        def call(client: httpx2.Client) -> None:
            with opened(archive) as content:
                response = client.put(
                    f"/v1/archives/{digest}",
                    content=chunks(content),
                    headers=length(archive),
                    timeout=TRANSFER_SECONDS,
                )
            self._link.check(response)

        if not self.has_archive(digest):
            self._link.retry(call)

    # Inside

    def _send(self, lines: list[str]) -> None:
        body = "[" + ",".join(lines) + "]"
        headers = {"Content-Type": "application/json"}
        self._link.request("POST", f"{self._trial}/journal", content=body.encode(), headers=headers)

    def _download(self, path: str, digest: Digest, target: Path) -> None:
        """Fetch a file and verify it; the hub verifies too, but the digest is what this pod was told."""

        def call(client: httpx2.Client) -> None:
            seen = Hasher()
            with client.stream("GET", path, timeout=TRANSFER_SECONDS) as response:
                self._link.check(response)
                with target.open("wb") as out:
                    for chunk in response.iter_bytes(1 << 20):
                        seen.update(chunk)
                        out.write(chunk)
            if seen.digest() != digest:
                target.unlink()
                raise DigestMismatch(f"{path} came as {seen.digest()}, not as {digest}")

        self._link.retry(call)


class Spool:
    """Lines that wait on disk until they are sent, in order, by one background thread."""

    def __init__(self, folder: Path, send: Callable[[list[str]], None]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "journal.jsonl").open("a+b")
        self._send = send
        self._sent = 0
        self._file.seek(0)
        # A line cut by a crash was never promised to anyone.
        self._end = self._file.read().rfind(b"\n") + 1
        self._file.truncate(self._end)
        self._failure: ProctorError | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="journal", daemon=True).start()

    def append(self, lines: list[str]) -> None:
        """Write lines to the disk."""
        with self._changed:
            self._raise_failure()
            self._file.seek(0, 2)
            self._file.write("".join(line + "\n" for line in lines).encode())
            self._file.flush()
            self._end = self._file.tell()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._sent == self._end)
            self._raise_failure()

    def close(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        with self._file:
            while batch := self._next_batch():
                try:
                    self._send([line.decode() for line in batch])
                except ProctorError as error:
                    with self._changed:
                        self._failure = error
                        self._changed.notify_all()
                    return
                self._note_sent(sum(len(line) + 1 for line in batch))

    def _next_batch(self) -> list[bytes]:
        """Return the next lines, waiting for the first; none: closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._sent < self._end)
            if self._is_closed:
                return []
            self._file.seek(self._sent)
            lines: list[bytes] = []
            size = 0
            while len(lines) < BATCH_ENTRIES and size < BATCH_BYTES and (line := self._file.readline()):
                lines.append(line.rstrip(b"\n"))
                size += len(line)
            return lines

    def _note_sent(self, size: int) -> None:
        with self._changed:
            self._sent += size
            if self._sent == self._end:
                self._file.truncate(0)
                self._sent = self._end = 0
            self._changed.notify_all()
