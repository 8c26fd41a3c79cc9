"""Who may do what: decisions over a verified token and what is known of its trial.

A signature proves origin and role (`wire.token`); whether the attempt still lives is decided here, from the trial's
record and settlement. Reading and writing are narrowed by role on top of the scopes: nothing that a driver of one
stage holds can write the facts of another.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wire.digest import Digest
from wire.errors import Refused
from wire.package import PartName
from wire.run import AgentKind
from wire.token import PARTS, Role, Scope, Token

_TALK: Final = frozenset({"canaries", "turnOpened", "turnEvent", "turnSealed", "conversationEnded"})
_GATES: Final = frozenset({"gateReported"})
_CASES: Final = frozenset({"suitePlanned", "caseReported", "submissionChecked"})
_ALL: Final = _TALK | _GATES | _CASES

WRITABLE: Final[Mapping[Role, frozenset[str]]] = {
    Role.AGENT: _TALK,
    Role.USER: _TALK,
    Role.GATE: _GATES | {"canaries"},
    Role.EVALUATOR: _CASES | {"canaries"},
}
READABLE: Final[Mapping[Role, frozenset[str]]] = {
    Role.AGENT: (_TALK - {"canaries"}) | _GATES,
    Role.USER: (_TALK - {"canaries"}) | _GATES,
    Role.GATE: _GATES,
    Role.EVALUATOR: _CASES,
    Role.OPERATOR: _ALL,
}


@dataclass(frozen=True, kw_only=True)
class TrialState:
    """What decides over a token of this trial."""

    attempt: int
    sandbox: int
    settled: bool
    agent: AgentKind
    package: Digest


def require_scope(token: Token, scope: Scope) -> None:
    """Refuse a token whose role does not hold the scope."""
    if not token.allows(scope):
        raise Refused(f"a token of role {token.role} does not allow {scope}")


def require_trial(token: Token, trial: str) -> None:
    """Refuse a token of another trial; the operator's is good for every one."""
    if token.role is not Role.OPERATOR and token.trial != trial:
        raise Refused(f"this token belongs to another trial than {trial}")


def require_alive(token: Token, state: TrialState | None) -> None:
    """Refuse a token whose attempt is not, or no longer, the one that counts."""
    if token.role is Role.OPERATOR:
        return
    if state is None:
        raise Refused(f"trial {token.trial} is not known here")
    if state.settled:
        raise Refused(f"trial {token.trial} is settled; its tokens are dead")
    current = state.sandbox if token.role is Role.SANDBOX else state.attempt
    if token.attempt != current:
        raise Refused(f"this token is of attempt {token.attempt}; trial {token.trial} is at attempt {current}")


def require_writable(token: Token, kinds: Iterable[str]) -> None:
    """Refuse entries that are another role's to write."""
    for kind in kinds:
        if kind not in WRITABLE.get(token.role, frozenset()):
            raise Refused(f"a token of role {token.role} does not write {kind}")


def require_own_past(token: Token, attempts: Iterable[int]) -> None:
    """Refuse entries that claim a later attempt: keys are stored once, so they would take that attempt's place."""
    # Earlier ones may be named: a turn that outlives its session keeps the key of its sandbox's attempt.
    for attempt in attempts:
        if attempt > token.attempt:
            raise Refused(f"a token of attempt {token.attempt} does not write entries of attempt {attempt}")


def readable_kinds(token: Token, asked: Iterable[str]) -> frozenset[str]:
    """Return the kinds to answer with: what was asked for, or everything that the role may read."""
    allowed = READABLE.get(token.role, frozenset())
    wanted = frozenset(asked) or allowed
    if denied := sorted(wanted - allowed):
        raise Refused(f"a token of role {token.role} does not read {denied[0]}")
    return wanted


def require_part(token: Token, part: PartName, agent: AgentKind) -> None:
    """Refuse a part of the package that is meant for others."""
    has_solution = token.role is Role.AGENT and agent in {AgentKind.ORACLE, AgentKind.MUTANT}
    if part not in PARTS[token.role] and not (part == "oracle" and has_solution):
        raise Refused(f"a token of role {token.role} does not read the part {part}")
