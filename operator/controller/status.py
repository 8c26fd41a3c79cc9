"""A trial's status from one state to the next. Pure; every move of the phase is checked against the table."""

from collections.abc import Mapping
from datetime import datetime

from controller.failures import Failure, after_sut_death, sandbox_deaths
from controller.views import TrialView
from wire.errors import Broken
from wire.journal import Settlement
from wire.run import Condition
from wire.trial import FINISHED, NEXT_PHASES, Attempt, EndReason, Phase, Result, Submission, TrialStatus

LONGEST_DELAY_SECONDS = 300.0


def stamp(moment: datetime) -> str:
    """Write a moment the way Kubernetes does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def delay(failures: int, first_seconds: float) -> float:
    """Return the wait before the attempt after this many failures."""
    return min(LONGEST_DELAY_SECONDS, first_seconds * 3.0 ** max(0, failures - 1))


def moved(status: TrialStatus, phase: Phase, **changes: object) -> TrialStatus:
    """Return the status in another phase with these changes."""
    if phase is not status.phase and phase not in NEXT_PHASES[status.phase]:
        raise Broken(f"a trial cannot go from {status.phase} to {phase}")
    return status.model_copy(update={"phase": phase, **changes})


def admitted(trial: TrialView, now: datetime) -> TrialStatus:
    """Return the status of a trial that may hold pods from now on; records the first attempt."""
    status = trial.status
    reasons = list(status.not_formal)
    if trial.spec.evaluation.tags and "caseSelection" not in reasons:
        reasons.append("caseSelection")
    return moved(
        status,
        Phase.ADMITTED,
        admitted=True,
        attempt=max(1, status.attempt),
        sandbox=max(1, status.sandbox),
        conversation=max(1, status.conversation),
        start_time=status.start_time or stamp(now),
        not_formal=reasons,
        observed_generation=trial.meta.generation,
    )


def after_suspension(status: TrialStatus) -> TrialStatus:
    """Return the status of a trial that gives its pods back and waits to be admitted again."""
    number = status.attempt + 1
    changes = {"admitted": False, "attempt": number, "sandbox": number, "pods": kept(status)}
    return moved(status, Phase.PENDING, **changes)


def again(status: TrialStatus, retries: int) -> TrialStatus:
    """Return the status of an errored trial that `proctor retry` sends back."""
    number = status.attempt + 1
    changes = {"admitted": False, "attempt": number, "sandbox": number, "pods": kept(status), "completion_time": None}
    return moved(status, Phase.PENDING, retried=retries, **changes)


def recorded(status: TrialStatus, phase: Phase, uids: Mapping[str, str]) -> TrialStatus:
    """Return the status with the UIDs of this stage's children beside those that outlive stages."""
    return moved(status, phase, pods={**kept(status), **uids})


def failed(trial: TrialView, failure: Failure, now: datetime, *, new_sandbox: bool, cap: int) -> TrialStatus:
    """Return the status after a failed attempt: with the next one's intent, or with the same when it was the last."""
    status, failures = trial.status, trial.status.failures + 1
    entry = Attempt(
        number=status.attempt,
        stage=status.phase,
        failure_class=failure.failure_class,
        reason=failure.reason,
        message=failure.message,
        at=stamp(now),
    )
    attempts = [*status.attempts, entry][-5:]
    sut_deaths = after_sut_death(status, failure.reason)
    counted = {"attempts": attempts, "failures": failures, "sut_deaths": sut_deaths}
    # What the agent or its submission kills is bounded by a limit of its own, which ends in a verdict.
    excused = sandbox_deaths(attempts) + sum(map(len, sut_deaths.values()))
    if not failure.retried or failures - excused > cap + status.retried * (cap + 1):
        return status.model_copy(update=counted)
    number = status.attempt + 1
    pods = kept(status)
    if not new_sandbox and trial.sandbox in status.pods:
        pods[trial.sandbox] = status.pods[trial.sandbox]
    sandbox = number if new_sandbox else status.sandbox
    return moved(status, Phase.ADMITTED, attempt=number, sandbox=sandbox, pods=pods, **counted)


def frozen(status: TrialStatus, *, passed: bool, prepared: str | None, end_reason: EndReason) -> TrialStatus:
    """Return the status with the submission recorded, for ever."""
    submission = Submission.model_validate(
        {"digest": status.candidate, "prepared": prepared, "gate_passed": passed, "end_reason": end_reason}
    )
    return moved(status, Phase.FROZEN, submission=submission, rounds=1, pods=kept(status))


def settled(status: TrialStatus, settlement: Settlement, result: Result | None, now: datetime) -> TrialStatus:
    """Return the status of a trial that has ended."""
    phase = Phase(settlement.phase)
    met = Condition(
        type="Succeeded",
        status="True" if phase is Phase.GRADED else "False",
        reason=settlement.reason or phase.value,
        message=settlement.message,
        last_transition_time=stamp(now),
    )
    # Not by the table of moves: the hub may have settled it before this process knew how far it had come.
    changes = {"result": result, "admitted": False, "completion_time": stamp(now), "conditions": [met]}
    return status.model_copy(update={"phase": phase, **changes})


def kept(status: TrialStatus) -> dict[str, str]:
    """Return the recorded children that outlive stages and attempts: Secrets and the policy."""
    return {name: uid for name, uid in status.pods.items() if name.endswith(("-secrets", "-pair"))}


def is_holding(status: TrialStatus) -> bool:
    """Tell whether a trial counts against parallelism."""
    return status.admitted and status.phase not in FINISHED
