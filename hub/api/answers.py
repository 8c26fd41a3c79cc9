"""Errors as answers: one shape for all, `{"error": {"reason", "message"}}`, and a status that says what to do."""

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from hub.archives import TooLarge
from hub.records import NotFound
from hub.store import ArchiveLost
from wire.errors import InvalidInput, NotReady, ProctorError, Refused

log = structlog.get_logger()

# The first that fits; order matters, since classes inherit.
_STATUS: tuple[tuple[type[ProctorError], int], ...] = (
    (NotReady, 503),
    (Refused, 403),
    (NotFound, 404),
    (ArchiveLost, 410),
    (TooLarge, 413),
    (InvalidInput, 422),
    (ProctorError, 500),
)


class Unauthorized(Refused):
    """No bearer, or none of this installation."""


def answer(status: int, reason: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error in the one shape."""
    return JSONResponse({"error": {"reason": reason, "message": message}}, status, headers)


def add_handlers(app: FastAPI) -> None:
    """Let every error leave the app in the one shape."""
    app.add_exception_handler(ProctorError, _proctor_error)
    app.add_exception_handler(ValidationError, _validation_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unknown_error)


def _proctor_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProctorError)
    if isinstance(error, Unauthorized):
        return answer(401, error.reason, str(error), {"WWW-Authenticate": "Bearer"})
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    if status >= 500:
        log.warning("request failed", path=request.url.path, reason=error.reason, message=str(error))
    headers = {"Retry-After": f"{error.retry_seconds:.0f}"} if isinstance(error, NotReady) else None
    return answer(status, error.reason, str(error), headers)


def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ValidationError | RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(step) for step in first["loc"]) or "body"
    return answer(422, InvalidInput.reason, f"{field}: {first['msg']}")


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    reason = "NotFound" if error.status_code == 404 else "InvalidInput"
    return answer(error.status_code, reason, error.detail, dict(error.headers or {}))


def _unknown_error(request: Request, error: Exception) -> JSONResponse:
    # The details are in the log, where the server puts the trace; an answer must not leak them.
    return answer(500, "Broken", "the hub failed; its log says why")
