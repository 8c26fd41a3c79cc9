"""What the runner's small HTTP servers have in common: the bearer, one error shape, bounded bodies, starting up."""

import hmac
import math
from collections.abc import AsyncIterator
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from wire.errors import Broken, InvalidInput, NotReady, ProctorError, Refused
from wire.model import Wire

OPEN_PATHS: Final = frozenset({"/healthz"})
BODY_LIMIT_BYTES: Final = 8 << 20


class Bearer:
    """Middleware that turns away whoever does not hold the bearer, before a body is read."""

    def __init__(self, app: ASGIApp, bearer: str) -> None:
        self._app = app
        self._expected = f"Bearer {bearer}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                await refusal(Refused("the bearer of this daemon is missing or wrong"), 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refusal(error: ProctorError, status: int) -> Response:
    """Answer with our one error shape."""
    return JSONResponse({"error": {"reason": error.reason, "message": str(error)}}, status)


async def answer_error(_: Request, error: Exception) -> Response:
    """Answer what a handler raised."""
    if isinstance(error, NotReady):
        return refusal(error, 503)
    if isinstance(error, Refused):
        return refusal(error, 403)
    if isinstance(error, InvalidInput):
        return refusal(error, 422)
    return refusal(error if isinstance(error, ProctorError) else Broken(type(error).__name__), 500)


def answer(value: Wire) -> Response:
    """Answer with a wire value."""
    return Response(value.model_dump_json(by_alias=True, exclude_none=True), media_type="application/json")


async def body(request: Request) -> bytes:
    """Return a small body.

    Raises:
        InvalidInput: it is too big.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_LIMIT_BYTES:
            raise InvalidInput(f"the body is over {BODY_LIMIT_BYTES} bytes")
    return bytes(content)


def seconds(request: Request, name: str, limit: float) -> float:
    """Return a waiting time from the query, bounded."""
    return min(limit, max(0.0, number(request, name)))


def number(request: Request, name: str) -> float:
    """Return a finite number from the query; 0 when it is not there.

    Raises:
        InvalidInput: it is no number.
    """
    try:
        found = float(request.query_params.get(name, "0"))
    except ValueError as error:
        raise InvalidInput(f"{name}: not a number") from error
    if not math.isfinite(found):
        raise InvalidInput(f"{name}: not a finite number")
    return found


async def drain(chunks: AsyncIterator[bytes]) -> None:
    """Read a body to its end, so that the sender gets to read the refusal."""
    async for _ in chunks:
        pass


def server(app: Starlette, host: str, port: int) -> uvicorn.Server:
    """Make a server; `run()` it, and set its `should_exit` to end it."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)
