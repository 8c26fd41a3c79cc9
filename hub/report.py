"""From stored facts to the report of a run. Pure; floats are rounded so that equal facts give equal bytes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from wire.journal import (
    AnyEntry,
    ConversationEnded,
    GateReported,
    RunRecord,
    Settlement,
    TrialRecord,
    TurnOpened,
    TurnSealed,
)
from wire.report import ArmLine, CellLine, Counts, GateLine, Rate, RunReport, Standing, TrialLine, Verdict
from wire.run import Arm, BenchmarkRunSpec
from wire.trial import Result


@dataclass(frozen=True, kw_only=True)
class TrialHistory:
    """What is stored about one trial."""

    record: TrialRecord
    settlement: Settlement | None = None
    result: Result | None = None
    verdict: Verdict | None = None
    entries: tuple[AnyEntry, ...] = ()
    """Turns, conversations and gates; what verdicts need is in them already."""


REPORT_KINDS = frozenset({"turnOpened", "turnSealed", "conversationEnded", "gateReported"})


def build_report(run: RunRecord, histories: Iterable[TrialHistory]) -> RunReport:
    """Return the report of a run."""
    spec = BenchmarkRunSpec.model_validate(run.spec)
    ordered = sorted(histories, key=lambda history: history.record.spec.index)
    trials = [_trial_line(history) for history in ordered]
    return RunReport(
        uid=run.uid,
        name=run.name,
        namespace=run.namespace,
        suite=spec.suite,
        formal=spec.formal and all(not trial.not_formal for trial in trials),
        counts=count_standings(trial.standing for trial in trials),
        arms=[_arm_line(arm, [one for one in ordered if one.record.spec.arm.name == arm.name]) for arm in spec.arms],
        cells=[
            _cell_line(task, arm.name, spec.formal, [one for one in ordered if _is_in(one, task, arm.name)])
            for task in dict.fromkeys(trial.task for trial in trials)
            for arm in spec.arms
        ],
        trials=trials,
    )


def standing_of(settlement: Settlement | None) -> Standing:
    """Return how a trial stands."""
    return "Unfinished" if settlement is None else settlement.phase


def count_standings(standings: Iterable[Standing]) -> Counts:
    """Return trials by how they stand."""
    found = Counter(standings)
    return Counts(
        trials=found.total(),
        graded=found["Graded"],
        errored=found["Errored"],
        cancelled=found["Cancelled"],
        unfinished=found["Unfinished"],
    )


def not_formal_reasons(formal_run: bool, settlement: Settlement | None, verdict: Verdict | None) -> list[str]:
    """Return why a result cannot count as formal; empty when it can."""
    reasons = set(settlement.not_formal if settlement else ())
    if not formal_run:
        reasons.add("runNotFormal")
    if verdict and verdict.selected < verdict.planned:
        reasons.add("caseSelection")
    if verdict and verdict.planned < verdict.scheduled:
        reasons.add("incompleteSuite")
    return sorted(reasons)


def coding_seconds(entries: Sequence[AnyEntry]) -> tuple[float, bool]:
    """Return the union of the turns' intervals in seconds, and whether no turn is still without an end."""
    opened = {entry.turn for entry in entries if isinstance(entry, TurnOpened)}
    sealed = [entry for entry in entries if isinstance(entry, TurnSealed)]
    intervals = sorted(pair for entry in sealed if (pair := _interval(entry)) is not None)
    total, reached = 0.0, float("-inf")
    for start, end in intervals:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    is_complete = opened <= {entry.turn for entry in sealed} and len(intervals) == len(sealed)
    return round(total, 3), is_complete


def _interval(turn: TurnSealed) -> tuple[float, float] | None:
    """Return a turn's start and end in Unix seconds; None for what is not a time."""
    try:
        return _seconds(turn.started_at), _seconds(turn.ended_at)
    except ValueError:
        return None


def _seconds(time: str) -> float:
    moment = datetime.fromisoformat(time)
    # Without a zone it is UTC, not this machine's time: a report must not depend on where it is made.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _trial_line(history: TrialHistory) -> TrialLine:
    record, settlement, verdict = history.record, history.settlement, history.verdict
    submission = settlement.submission if settlement else None
    seconds, is_complete = coding_seconds(history.entries)
    return TrialLine(
        uid=record.uid,
        name=record.name,
        index=record.spec.index,
        task=record.spec.task,
        arm=record.spec.arm.name,
        repetition=record.spec.repetition,
        standing=standing_of(settlement),
        not_formal=not_formal_reasons(record.spec.formal, settlement, verdict),
        end_reason=submission.end_reason if submission else None,
        gate_passed=submission.gate_passed if submission else None,
        gates=_gates(history.entries),
        conversations=sum(isinstance(entry, ConversationEnded) for entry in history.entries),
        turns=sum(isinstance(entry, TurnSealed) for entry in history.entries),
        coding_seconds=seconds,
        coding_complete=is_complete,
        submission=submission.digest if submission else None,
        result=history.result,
        ccpf=_ccpf([verdict] if verdict else []),
        confirmed=_confirmed([verdict] if verdict else []),
        cases=list(verdict.cases) if verdict else [],
        attempts=list(settlement.attempts) if settlement else [],
        failures=settlement.failures if settlement else 0,
        failure_class=settlement.failure_class if settlement else None,
        reason=settlement.reason if settlement else "",
        message=settlement.message if settlement else "",
    )


def _gates(entries: Iterable[AnyEntry]) -> list[GateLine]:
    reports = [entry for entry in entries if isinstance(entry, GateReported)]
    return [
        GateLine(
            conversation=gate.conversation,
            attempt=gate.attempt,
            candidate=gate.candidate,
            passed=gate.passed,
            failed_steps=[step.name for step in gate.steps if not step.passed],
        )
        for gate in sorted(reports, key=lambda gate: gate.conversation)
    ]


def _rate(parts: Iterable[tuple[int, int, int]]) -> Rate | None:
    """Return the micro-average over (passed, unresolved, of); None when there is nothing to divide by."""
    passed, unresolved, of = (sum(column) for column in zip((0, 0, 0), *parts, strict=True))
    if of == 0:
        return None
    return Rate(
        passed=passed,
        unresolved=unresolved,
        of=of,
        low=round(passed / of, 6),
        high=round((passed + unresolved) / of, 6),
    )


def _ccpf(verdicts: Iterable[Verdict]) -> Rate | None:
    return _rate((verdict.passed, verdict.unresolved, verdict.applicable) for verdict in verdicts)


def _confirmed(verdicts: Iterable[Verdict]) -> Rate | None:
    return _rate((verdict.passed, verdict.unresolved, verdict.selected) for verdict in verdicts)


def _is_in(history: TrialHistory, task: str, arm: str) -> bool:
    return history.record.spec.task == task and history.record.spec.arm.name == arm


def _cell_line(task: str, arm: str, formal_run: bool, histories: Sequence[TrialHistory]) -> CellLine:
    verdicts = [history.verdict for history in histories if history.verdict]
    reasons = {
        reason
        for history in histories
        if history.verdict
        for reason in not_formal_reasons(formal_run, history.settlement, history.verdict)
    }
    return CellLine(
        task=task,
        arm=arm,
        counts=count_standings(standing_of(history.settlement) for history in histories),
        ccpf=_ccpf(verdicts),
        confirmed=_confirmed(verdicts),
        coverage=_coverage(verdicts, is_formal=not reasons),
    )


def _coverage(verdicts: Sequence[Verdict], *, is_formal: bool) -> str:
    if not verdicts:
        return ""
    # The least covered trial speaks for the cell: a lost selection must not hide behind the others.
    least = min(verdicts, key=lambda verdict: verdict.applicable)
    return f"{least.applicable} of {least.coverable} cases" + ("" if is_formal else ", not formal")


def _arm_line(arm: Arm, histories: Sequence[TrialHistory]) -> ArmLine:
    verdicts = [history.verdict for history in histories if history.verdict]
    return ArmLine(
        arm=arm.name,
        agent=arm.agent.kind,
        counts=count_standings(standing_of(history.settlement) for history in histories),
        ccpf=_ccpf(verdicts),
        confirmed=_confirmed(verdicts),
    )
