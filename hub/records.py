"""Runs, trials and settlements in PostgreSQL. Every function works inside the caller's transaction."""

from dataclasses import dataclass
from typing import Any, LiteralString

from hub.access import TrialState
from hub.database import Connection
from wire.digest import canonical
from wire.errors import InvalidInput
from wire.journal import RunRecord, Settlement, TrialRecord
from wire.model import Wire
from wire.report import Verdict
from wire.trial import Result

# The settlement that counts: a final one, or that of the present retry.
_CURRENT: LiteralString = """
    LEFT JOIN settlements s ON s.trial = t.uid
    AND (s.retries = t.retries OR s.phase <> 'Errored')
"""


class NotFound(InvalidInput):
    """There is nothing under this name."""

    reason = "NotFound"


def text_of(value: Wire) -> str:
    """Return the canonical JSON under which a value is stored."""
    return canonical(value.dump()).decode()


def put_run(connection: Connection, record: RunRecord) -> None:
    """Store a run's record; a later one replaces it, since repetitions may grow."""
    connection.execute(
        "INSERT INTO runs (uid, record) VALUES (%s, %s) ON CONFLICT (uid) DO UPDATE SET record = excluded.record",
        (record.uid, text_of(record)),
    )


def put_trial(connection: Connection, record: TrialRecord) -> None:
    """Store a trial's record unless a later one is there: attempt, sandbox and retries only grow."""
    if not connection.execute("SELECT 1 FROM runs WHERE uid = %s", (record.run_uid,)).fetchone():
        raise NotFound(f"runUid: run {record.run_uid} is not known here; register it first")
    connection.execute(
        """
        INSERT INTO trials AS t (uid, run, record, attempt, sandbox, retries) VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (uid) DO UPDATE SET record = excluded.record, attempt = excluded.attempt,
            sandbox = excluded.sandbox, retries = excluded.retries
        WHERE (excluded.retries, excluded.attempt, excluded.sandbox) >= (t.retries, t.attempt, t.sandbox)
        """,
        (record.uid, record.run_uid, text_of(record), record.attempt, record.sandbox, record.spec.retries),
    )


def read_run(connection: Connection, uid: str) -> RunRecord:
    """Return a run's record."""
    row = connection.execute("SELECT record::text FROM runs WHERE uid = %s", (uid,)).fetchone()
    if row is None:
        raise NotFound(f"run {uid} is not known here")
    return RunRecord.model_validate_json(row[0])


def read_runs(connection: Connection) -> list[RunRecord]:
    """Return every run's record, the youngest first."""
    rows = connection.execute("SELECT record::text FROM runs ORDER BY created_at DESC, uid").fetchall()
    return [RunRecord.model_validate_json(row[0]) for row in rows]


def read_state(connection: Connection, uid: str, *, lock: bool = False) -> TrialState | None:
    """Return what decides over a trial's tokens; with `lock` nothing about the trial changes until the commit."""
    if lock:
        connection.execute("SELECT 1 FROM trials WHERE uid = %s FOR UPDATE", (uid,))
    row = connection.execute(
        f"SELECT t.record::text, s.trial IS NOT NULL FROM trials t {_CURRENT} WHERE t.uid = %s", (uid,)
    ).fetchone()
    if row is None:
        return None
    record = TrialRecord.model_validate_json(row[0])
    return TrialState(
        attempt=record.attempt,
        sandbox=record.sandbox,
        settled=row[1],
        agent=record.spec.arm.agent.kind,
        package=record.spec.package,
    )


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A trial with the settlement that counts and what was counted for it."""

    record: TrialRecord
    settlement: Settlement | None = None
    result: Result | None = None
    verdict: Verdict | None = None


_ROW: LiteralString = f"""
    SELECT t.record::text, s.settlement::text, s.result::text, s.verdict::text FROM trials t {_CURRENT}
"""


def read_trial(connection: Connection, uid: str) -> TrialRow:
    """Return a trial."""
    row = connection.execute(f"{_ROW} WHERE t.uid = %s", (uid,)).fetchone()
    if row is None:
        raise NotFound(f"trial {uid} is not known here")
    return _trial_row(row)


def read_trials(connection: Connection, run: str) -> list[TrialRow]:
    """Return the trials of a run by index."""
    rows = [_trial_row(row) for row in connection.execute(f"{_ROW} WHERE t.run = %s", (run,))]
    return sorted(rows, key=lambda row: row.record.spec.index)


def count_trials(connection: Connection) -> list[tuple[str, str, int]]:
    """Return (run, phase of the settlement that counts or "Unfinished", trials)."""
    return connection.execute(
        f"SELECT t.run, coalesce(s.phase, 'Unfinished'), count(*) FROM trials t {_CURRENT} GROUP BY 1, 2"
    ).fetchall()


def _trial_row(row: tuple[Any, ...]) -> TrialRow:
    record, settlement, result, verdict = row
    return TrialRow(
        record=TrialRecord.model_validate_json(record),
        settlement=Settlement.model_validate_json(settlement) if settlement else None,
        result=Result.model_validate_json(result) if result else None,
        verdict=Verdict.model_validate_json(verdict) if verdict else None,
    )


def write_settlement(
    connection: Connection, record: TrialRecord, settlement: Settlement, counted: tuple[Verdict, Result] | None
) -> None:
    """Store a trial's end; the caller holds the trial's lock and has seen that there is none."""
    verdict, result = counted if counted else (None, None)
    connection.execute(
        "INSERT INTO settlements (trial, retries, phase, settlement, verdict, result) VALUES (%s, %s, %s, %s, %s, %s)",
        (
            record.uid,
            record.spec.retries,
            settlement.phase,
            text_of(settlement),
            text_of(verdict) if verdict else None,
            text_of(result) if result else None,
        ),
    )
