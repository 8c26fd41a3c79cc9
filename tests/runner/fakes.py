"""A hub that behaves, kept in memory and served over real HTTP: journal by key, archives by digest, parts, outages."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from wire.digest import of_bytes
from wire.journal import ENTRIES, AnyEntry
from wire.package import PackageManifest
from wire.report import JournalRow


def refusal(status: int, reason: str) -> Response:
    """Answer in the one error shape."""
    return JSONResponse({"error": {"reason": reason, "message": reason}}, status)


@dataclass
class FakeHub:
    """Everything a pod may ask of the hub."""

    rows: dict[str, AnyEntry] = field(default_factory=dict)
    """Key → the entry that came first."""
    archives: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    manifest: PackageManifest | None = None
    is_away: bool = False
    """Answer 503 to everything."""
    attempt_is_over: bool = False
    cut_downloads: int = 0
    """Break so many downloads in the middle."""
    spoil: bool = False
    """Send archives with one byte flipped."""
    uploads: int = 0
    url: str = ""

    def of_kind(self, kind: str) -> list[AnyEntry]:
        """Return the stored entries of a kind, in order."""
        return [entry for entry in self.rows.values() if entry.kind == kind]

    def add_archive(self, content: bytes) -> str:
        """Store an archive and return its digest."""
        digest = of_bytes(content)
        self.archives[digest] = content
        return digest

    async def post_journal(self, request: Request) -> Response:
        """Store what is not there yet."""
        entries = ENTRIES.validate_json(await request.body())
        if self.is_away:
            return refusal(503, "NotReady")
        if self.attempt_is_over:
            return refusal(403, "Refused")
        for entry in entries:
            self.rows.setdefault(entry.key(), entry)
        return JSONResponse({"stored": len(entries)})

    async def get_journal(self, request: Request) -> Response:
        """Return rows of the kinds asked for."""
        kinds, after = request.query_params.getlist("kind"), int(request.query_params.get("after", "0"))
        rows = [
            JournalRow(sequence=number, entry=entry).dump()
            for number, entry in enumerate(self.rows.values(), 1)
            if entry.kind in kinds and number > after
        ]
        return refusal(503, "NotReady") if self.is_away else JSONResponse(rows[:1000])

    async def archive(self, request: Request) -> Response:
        """Take, show or give an archive."""
        digest = request.path_params["digest"]
        if self.is_away:
            return refusal(503, "NotReady")
        if request.method == "PUT":
            content = await request.body()
            self.uploads += 1
            if of_bytes(content) != digest:
                return refusal(422, "DigestMismatch")
            self.archives[digest] = content
            return Response(status_code=204)
        if digest not in self.archives:
            return refusal(404, "NotFound")
        return self._download(self.archives[digest])

    async def get_part(self, request: Request) -> Response:
        """Give a part of the package."""
        content = self.parts.get(request.path_params["part"])
        return refusal(404, "NotFound") if content is None else self._download(content)

    async def get_package(self, _: Request) -> Response:
        """Give the manifest."""
        if self.is_away or self.manifest is None:
            return refusal(503, "NotReady")
        return JSONResponse(self.manifest.dump())

    def _download(self, content: bytes) -> Response:
        if self.spoil:
            content = bytes([content[0] ^ 1]) + content[1:]
        response = Response(content)
        if self.cut_downloads > 0:
            self.cut_downloads -= 1
            response.body = content[: len(content) // 2]
        return response

    def app(self) -> Starlette:
        """Build the server."""
        return Starlette(
            routes=[
                Route("/v1/trials/{uid}/journal", self.post_journal, methods=["POST"]),
                Route("/v1/trials/{uid}/journal", self.get_journal),
                Route("/v1/trials/{uid}/parts/{part}", self.get_part),
                Route("/v1/archives/{digest}", self.archive, methods=["PUT", "GET", "HEAD"]),
                Route("/v1/packages/{digest}", self.get_package),
            ]
        )


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve an app on a free loopback port for as long as the block lasts; yield its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()
