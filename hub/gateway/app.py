"""A stub of the model gateway: it verifies who calls and then says that no provider is configured.

It stands where the gateway will stand, so that network policies, canaries and tokens are real. It forwards nothing,
meters nothing and stores nothing.
"""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from wire.errors import Refused
from wire.token import Scope, verify


class Settings(BaseSettings):
    """Everything the gateway reads from its environment."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_", frozen=True, use_attribute_docstrings=True)

    installation_key: Path
    """File with the key that signs every token."""
    listen: str = "0.0.0.0:8081"
    """`host:port`, or `unix:<path>` for a socket."""


def create_app(key: bytes) -> Starlette:
    """Return the gateway's app."""

    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "alive"})

    async def model_call(request: Request) -> JSONResponse:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        try:
            token = verify(key, text.strip() if scheme.lower() == "bearer" else "")
        except (Refused, ValueError):
            return _error(401, "invalid_api_key", "the bearer token is not one of this installation")
        if not (token.allows(Scope.MODEL) or token.allows(Scope.MODEL_USER)):
            return _error(403, "forbidden", f"a token of role {token.role} does not allow model calls")
        return _error(404, "model_not_found", "no provider is configured")

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/v1/responses", model_call, methods=["POST"]),
            Route("/v1/chat/completions", model_call, methods=["POST"]),
        ]
    )


def _error(status: int, code: str, message: str) -> JSONResponse:
    """Return an error as clients of OpenAI's API expect it."""
    body = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": body}, status)
