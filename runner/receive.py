"""Role `receive`: a sut's init step. Takes the one archive it was told to expect, unpacks it and ends.

So an untrusted pod never fetches anything and holds no token; its driver pushes. The digest is that of the exact bytes:
with one flipped bit nothing is unpacked.
"""

import tempfile
from pathlib import Path
from typing import BinaryIO

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runner.settings import SandboxSettings
from runner.web import Bearer, answer_error, server
from wire.archive import BYTES_LIMIT, extract
from wire.digest import Digest, Hasher
from wire.errors import DigestMismatch, InvalidInput, ProctorError


async def healthz(_: Request) -> Response:
    """Tell that this is the receiver and not the daemon."""
    return JSONResponse({"role": "receive"})


def main(settings: SandboxSettings) -> int:
    """Serve until the archive is unpacked."""
    expected = settings.submission_digest
    if expected is None:
        raise InvalidInput("PROCTOR_SUBMISSION_DIGEST: the receiver must be told what to expect")
    target = Path(settings.submission_folder)

    async def put_submission(request: Request) -> Response:
        with tempfile.TemporaryFile() as archive:
            await take(request, archive, expected)
            await run_sync(extract, archive, target)
        serving.should_exit = True
        return Response(status_code=204)

    app = Starlette(
        routes=[Route("/healthz", healthz), Route("/v1/submission", put_submission, methods=["PUT"])],
        middleware=[Middleware(Bearer, bearer=settings.secret("daemon"))],
        exception_handlers={ProctorError: answer_error},
    )
    serving = server(app, settings.listen_host, settings.listen_port)
    serving.run()
    return 0


async def take(request: Request, archive: BinaryIO, expected: Digest) -> None:
    """Store a body and leave it at its start.

    Raises:
        DigestMismatch: it is not what was announced.
    """
    seen = Hasher()
    async for chunk in request.stream():
        seen.update(chunk)
        if seen.length <= BYTES_LIMIT:
            archive.write(chunk)
    if seen.digest() != expected:
        raise DigestMismatch(f"the archive is {seen.digest()}; this pod was told to expect {expected}")
    archive.seek(0)
