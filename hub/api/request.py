"""What a handler needs of a request: the services, the verified bearer, a bounded body, checked path parts."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Path, Request

from hub.access import TrialState, require_alive, require_scope, require_trial
from hub.api.answers import Unauthorized
from hub.archives import TooLarge
from hub.database import Connection, Database
from hub.records import read_state
from hub.store import Store
from wire.digest import Digest, DigestField
from wire.errors import Refused
from wire.token import Role, Scope, Token, verify

Uid = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")]
DigestPath = Annotated[DigestField, Path()]


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the handlers work with."""

    database: Database
    store: Store
    key: bytes
    suspects: set[Digest] = field(default_factory=set)
    """Archives found spoilt in mid-stream, too late to say so: the next request for one verifies before it answers."""


def services(request: Request) -> Services:
    """Return the services that the app was made with."""
    found: Services = request.app.state.services
    return found


async def bearer(request: Request) -> Token:
    """Return the verified token of a request."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text:
        raise Unauthorized("a bearer token is needed")
    try:
        return verify(services(request).key, text.strip())
    except Refused:
        raise Unauthorized("the bearer token is not one of this installation") from None


Given = Annotated[Services, Depends(services)]
Bearer = Annotated[Token, Depends(bearer)]


def bearer_with(scope: Scope) -> Callable[[Token], Awaitable[Token]]:
    """Return a dependency: a token that holds the scope; anything else is refused before the body is read."""

    async def checked(token: Bearer) -> Token:
        require_scope(token, scope)
        return token

    return checked


Admin = Annotated[Token, Depends(bearer_with(Scope.ADMIN))]
JournalToken = Annotated[Token, Depends(bearer_with(Scope.JOURNAL))]
ArchivesToken = Annotated[Token, Depends(bearer_with(Scope.ARCHIVES))]


def bounded_body(limit_bytes: int) -> Callable[[Request, Token], Awaitable[bytes]]:
    """Return a dependency: the body, read only for a known bearer and only up to its bound."""

    async def read(request: Request, token: Bearer) -> bytes:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > limit_bytes:
                raise TooLarge(f"the body is larger than {limit_bytes} bytes")
        return bytes(body)

    return read


RecordBody = Annotated[bytes, Depends(bounded_body(1 << 20))]
JournalBody = Annotated[bytes, Depends(bounded_body(8 << 20))]


def alive_state(connection: Connection, token: Token, trial: str, *, lock: bool = False) -> TrialState | None:
    """Return the state of a trial after checking that the token is of it and alive."""
    require_trial(token, trial)
    state = read_state(connection, trial, lock=lock)
    require_alive(token, state)
    return state


def owner_of(token: Token) -> str | None:
    """Return the trial that a token stands for; None for the operator."""
    return None if token.role is Role.OPERATOR else token.trial
