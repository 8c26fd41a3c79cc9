"""What the simulated user does next: a function of the journal, the scenario and the limits. No I/O.

A user that starts anew reads the journal and goes on where the last sealed turn left off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.clock import parse
from wire.journal import ConversationEnded, GateReported, TurnSealed
from wire.package import Scenario
from wire.run import Limits
from wire.trial import EndReason

RESOURCE_DEATHS_LIMIT: Final = 3
REPORT_STEPS: Final = 20
REPORT_OUTPUT: Final = 1500


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What has happened so far."""

    conversation: int
    sealed: tuple[TurnSealed, ...] = ()
    ended: tuple[ConversationEnded, ...] = ()
    gates: tuple[GateReported, ...] = ()
    end_reason: EndReason | None = None
    """The operator's word that development is over."""


@dataclass(frozen=True)
class Say:
    """Send a message as this turn; it may take so long."""

    turn: int
    message: str
    seconds: float


@dataclass(frozen=True)
class Deliver:
    """Take the candidate: the user is content, or a limit is reached."""

    end_reason: EndReason | None


@dataclass(frozen=True)
class AlreadyEnded:
    """The journal has this conversation's end; only the message to the operator is missing."""

    entry: ConversationEnded


Step = Say | Deliver | AlreadyEnded


def next_step(seen: Seen, scenario: Scenario, limits: Limits) -> Step:
    """Return the one thing to do now."""
    for entry in seen.ended:
        if entry.conversation == seen.conversation:
            return AlreadyEnded(entry)
    said = sum(turn.conversation == seen.conversation for turn in seen.sealed)
    messages = _messages(seen, scenario)
    reason = seen.end_reason or limit_reached(seen.sealed, limits)
    if said >= len(messages) and reason is not EndReason.RESOURCE_LIMIT:
        # The last message was answered: a delivery, even where the limit is reached by it.
        return Deliver(None)
    if reason is not None:
        return Deliver(reason)
    left = limits.development_minutes * 60 - seconds_used(seen.sealed)
    return Say(turn=len(seen.sealed) + 1, message=messages[said], seconds=left)


def limit_reached(sealed: Sequence[TurnSealed], limits: Limits) -> EndReason | None:
    """Return the limit that ends development now."""
    if _deaths_in_a_row(sealed) >= RESOURCE_DEATHS_LIMIT or (sealed and sealed[-1].rolled_back):
        return EndReason.RESOURCE_LIMIT
    if len(sealed) >= limits.turns:
        return EndReason.TURN_LIMIT
    # A second's grace: the sandbox's clock may differ a little from that of the pod that ended the turn.
    if seconds_used(sealed) >= limits.development_minutes * 60 - 1:
        return EndReason.TIME_LIMIT
    return None


def seconds_used(sealed: Sequence[TurnSealed]) -> float:
    """Return the development time of the turns that count."""
    return sum((parse(turn.ended_at) - parse(turn.started_at)).total_seconds() for turn in sealed)


def report(gate: GateReported) -> str:
    """Put a gate's findings into words, bounded."""
    failed = [step for step in gate.steps if not step.passed]
    lines = [f"{len(failed)} of {len(gate.steps)} checks failed."]
    for step in failed[:REPORT_STEPS]:
        lines += [f"- {step.name}", *(f"  {line}" for line in step.output[-REPORT_OUTPUT:].splitlines())]
    if len(failed) > REPORT_STEPS:
        lines.append(f"- and {len(failed) - REPORT_STEPS} more")
    return "\n".join(lines)


def _messages(seen: Seen, scenario: Scenario) -> list[str]:
    if seen.conversation == 1:
        return [scenario.opening, *(milestone.message for milestone in scenario.milestones)]
    last = [gate for gate in seen.gates if gate.conversation == seen.conversation - 1]
    return [scenario.gate_failed.replace("{report}", report(last[-1]) if last else "(the report was lost)")[:65536]]


def _deaths_in_a_row(sealed: Sequence[TurnSealed]) -> int:
    """Count commands that died of memory in the last turns, back to the last turn without one."""
    deaths = 0
    for turn in reversed(sealed):
        if turn.resource_deaths == 0:
            break
        deaths += turn.resource_deaths
    return deaths
