"""Bearer tokens: HMAC over (trial, attempt, role), so minting is repeatable and every service verifies alone.

A valid signature proves origin and scope, not life: whether the attempt is still current is the hub's to know.
Text form: `prt1.<trial uid>.<attempt>.<role>.<hex hmac>`.
"""

from dataclasses import dataclass
from enum import StrEnum

from wire.digest import is_signed, sign
from wire.errors import Refused


class Role(StrEnum):
    """Who holds a token; also the name of a pod's part."""

    SANDBOX = "sandbox"
    AGENT = "agent"
    USER = "user"
    GATE = "gate"
    EVALUATOR = "evaluator"
    OPERATOR = "operator"
    """The operator itself and `proctor` with the installation key: registers, settles, uploads packages."""


class Scope(StrEnum):
    """What a token allows."""

    MODEL = "model"
    MODEL_USER = "model:user"
    GUIDE = "guide"
    JOURNAL = "journal"
    ARCHIVES = "archives"
    ADMIN = "admin"


SCOPES: dict[Role, frozenset[Scope]] = {
    # An agent can read its sandbox's token: nothing worse than a metered model call may follow from it.
    Role.SANDBOX: frozenset({Scope.MODEL, Scope.GUIDE}),
    Role.AGENT: frozenset({Scope.JOURNAL, Scope.ARCHIVES, Scope.MODEL}),
    Role.USER: frozenset({Scope.JOURNAL, Scope.ARCHIVES, Scope.MODEL_USER}),
    Role.GATE: frozenset({Scope.JOURNAL, Scope.ARCHIVES}),
    Role.EVALUATOR: frozenset({Scope.JOURNAL, Scope.ARCHIVES}),
    Role.OPERATOR: frozenset({Scope.JOURNAL, Scope.ARCHIVES, Scope.ADMIN}),
}

# Which parts of a task package each role may fetch (design: who may see what).
PARTS: dict[Role, frozenset[str]] = {
    Role.SANDBOX: frozenset(),
    Role.AGENT: frozenset({"public"}),
    Role.USER: frozenset({"public", "user"}),
    Role.GATE: frozenset({"public"}),
    Role.EVALUATOR: frozenset({"public", "evaluator"}),
    Role.OPERATOR: frozenset({"public", "user", "evaluator", "oracle"}),
}


@dataclass(frozen=True, kw_only=True)
class Token:
    """A verified bearer: whose it is."""

    trial: str
    """UID of the Trial object; `-` for the operator."""
    attempt: int
    role: Role

    def allows(self, scope: Scope) -> bool:
        """Tell whether this role holds the scope."""
        return scope in SCOPES[self.role]


def mint(key: bytes, token: Token) -> str:
    """Return the text of a token; the same input gives the same text."""
    body = f"prt1.{token.trial}.{token.attempt}.{token.role}"
    return f"{body}.{sign(key, body.encode())}"


def verify(key: bytes, text: str) -> Token:
    """Return what a token says.

    Raises:
        Refused: malformed, not signed with this key, or of a role that is not known here.
    """
    body, _, signature = text.rpartition(".")
    parts = body.split(".")
    if len(parts) != 4 or parts[0] != "prt1" or not is_signed(key, body.encode(), signature):
        raise Refused("the bearer token is not one of this installation")
    try:
        return Token(trial=parts[1], attempt=int(parts[2]), role=Role(parts[3]))
    except ValueError as error:
        # Signed with this key by a newer or an older release.
        raise Refused("the bearer token names an attempt or a role that is not known here") from error


def operator_token(key: bytes) -> str:
    """Return the bearer of the operator, and of whoever else holds the installation key."""
    return mint(key, Token(trial="-", attempt=0, role=Role.OPERATOR))


def daemon_bearer(key: bytes, trial: str, pod: str) -> str:
    """Return the bearer that one sandbox or sut daemon demands: bound to the pod's name, useless at the hub."""
    return sign(key, f"daemon.{trial}.{pod}".encode())
