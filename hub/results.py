"""Settling and reporting: gathers stored facts for the pure functions of `verdict` and `report`."""

from hub import journal, records
from hub.database import Connection
from hub.packages import read_package
from hub.report import REPORT_KINDS, TrialHistory, build_report, standing_of
from hub.verdict import count_verdict, result_of
from wire.errors import InvalidInput
from wire.journal import Settled, Settlement
from wire.report import Counts, RunReport, RunSummary, TrialFacts, TrialSummary

_VERDICT_KINDS = frozenset({"suitePlanned", "caseReported", "submissionChecked"})


def settle(connection: Connection, trial: str, settlement: Settlement) -> Settled:
    """End a trial, once: the first settlement is stored and every later call gets its answer."""
    # The lock first: no entry of a dying attempt may slip in between counting and writing.
    records.read_state(connection, trial, lock=True)
    row = records.read_trial(connection, trial)
    record = row.record
    if row.settlement is not None:
        return Settled(phase=row.settlement.phase, result=row.result)
    if settlement.phase != "Graded":
        records.write_settlement(connection, record, settlement, None)
        return Settled(phase=settlement.phase)
    if settlement.submission is None:
        raise InvalidInput("submission: a graded settlement needs one")
    entries = journal.read_entries(connection, trial, _VERDICT_KINDS)
    published = read_package(connection, record.spec.package).task.suite
    verdict = count_verdict(record, settlement.submission, entries, published)
    result = result_of(verdict)
    records.write_settlement(connection, record, settlement, (verdict, result))
    return Settled(phase="Graded", result=result)


def read_facts(connection: Connection, trial: str) -> TrialFacts:
    """Return everything that is known of a trial besides its journal."""
    row = records.read_trial(connection, trial)
    return TrialFacts(
        record=row.record,
        standing=standing_of(row.settlement),
        settlement=row.settlement,
        result=row.result,
        verdict=row.verdict,
    )


def list_runs(connection: Connection) -> list[RunSummary]:
    """Return every run with its counts."""
    counted: dict[str, dict[str, int]] = {}
    for run, phase, trials in records.count_trials(connection):
        counted.setdefault(run, {})[phase.lower()] = trials
    return [
        RunSummary(uid=run.uid, name=run.name, namespace=run.namespace, counts=_counts(counted.get(run.uid, {})))
        for run in records.read_runs(connection)
    ]


def _counts(by_phase: dict[str, int]) -> Counts:
    return Counts(trials=sum(by_phase.values()), **by_phase)


def list_trials(connection: Connection, run: str) -> list[TrialSummary]:
    """Return a run's trials by index."""
    records.read_run(connection, run)
    return [
        TrialSummary(
            uid=row.record.uid,
            name=row.record.name,
            index=row.record.spec.index,
            task=row.record.spec.task,
            arm=row.record.spec.arm.name,
            repetition=row.record.spec.repetition,
            attempt=row.record.attempt,
            standing=standing_of(row.settlement),
            result=row.result,
        )
        for row in records.read_trials(connection, run)
    ]


def report_run(connection: Connection, run: str) -> RunReport:
    """Return a run's report from one consistent view of the facts."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    record = records.read_run(connection, run)
    histories = [
        TrialHistory(
            record=row.record,
            settlement=row.settlement,
            result=row.result,
            verdict=row.verdict,
            entries=tuple(journal.read_entries(connection, row.record.uid, REPORT_KINDS)),
        )
        for row in records.read_trials(connection, run)
    ]
    return build_report(record, histories)
