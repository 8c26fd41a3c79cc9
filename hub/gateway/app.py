"""A stub of the model gateway: it verifies who calls and then says that no provider is configured.

It stands where the gateway will stand, so that network policies, canaries and tokens are real. It forwards nothing,
meters nothing and stores nothing; whether a token's attempt lives it reads in the hub's database.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hub.access import require_alive
from hub.database import Database
from hub.records import read_state
from wire.errors import NotReady, Refused
from wire.token import Scope, verify

CONNECTIONS = 4
WAIT_SECONDS = 2.0


class Settings(BaseSettings):
    """Everything the gateway reads from its environment."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_", frozen=True, use_attribute_docstrings=True)

    installation_key: Path
    """File with the key that signs every token."""
    database_url: str
    """The hub's PostgreSQL; only read."""
    listen: str = "0.0.0.0:8081"
    """`host:port`, or `unix:<path>` for a socket."""


def create_app(key: bytes, database_url: str) -> Starlette:
    """Return the gateway's app."""
    database = Database(database_url, CONNECTIONS, WAIT_SECONDS)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        database.open()
        yield
        database.close()

    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "alive"})

    async def model_call(request: Request) -> JSONResponse:
        refused = await run_in_threadpool(_refusal, key, database, request.headers.get("Authorization", ""))
        return _error(404, "model_not_found", "no provider is configured") if refused is None else refused

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/healthz", healthz),
            Route("/v1/responses", model_call, methods=["POST"]),
            Route("/v1/chat/completions", model_call, methods=["POST"]),
        ],
    )


def _refusal(key: bytes, database: Database, authorization: str) -> JSONResponse | None:
    """Return why a caller gets no further: origin, scope, and whether its attempt lives."""
    scheme, _, text = authorization.partition(" ")
    try:
        token = verify(key, text.strip() if scheme.lower() == "bearer" else "")
    except Refused:
        return _error(401, "invalid_api_key", "the bearer token is not one of this installation")
    if not (token.allows(Scope.MODEL) or token.allows(Scope.MODEL_USER)):
        return _error(403, "forbidden", f"a token of role {token.role} does not allow model calls")
    try:
        with database.transaction() as connection:
            require_alive(token, read_state(connection, token.trial))
    except Refused as error:
        return _error(403, "attempt_is_over", str(error))
    except NotReady as error:
        return _error(503, "not_ready", str(error), {"Retry-After": f"{error.retry_seconds:.0f}"})
    return None


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error as clients of OpenAI's API expect it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": body}, status, headers)
