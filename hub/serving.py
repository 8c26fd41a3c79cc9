"""Listening on TCP or on a Unix socket, for the hub and the gateway alike."""

import signal
import sys
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from wire.errors import InvalidInput

_SOCKET: Final = "unix:"


def serve(app: ASGIApp, listen: str) -> None:
    """Serve until SIGTERM or SIGINT and then end the program with code 0."""
    serving = server(app, listen)

    # uvicorn ends in order and then raises the signal again, for whom it was meant first.
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    serving.run()


def server(app: ASGIApp, listen: str) -> uvicorn.Server:
    """Return a server for `host:port` or `unix:<path>`; `.run()` serves until a signal."""
    common = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 10,
        # Longer than callers pause between two calls: a connection closed under a caller's hands costs it a retry.
        "timeout_keep_alive": 75,
    }
    if listen.startswith(_SOCKET):
        return uvicorn.Server(uvicorn.Config(app, uds=listen.removeprefix(_SOCKET), **common))  # type: ignore[arg-type]
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(f"listen: {listen!r} is neither host:port nor unix:<path>")
    return uvicorn.Server(uvicorn.Config(app, host=host.strip("[]"), port=int(port), **common))  # type: ignore[arg-type]
