"""Runs, trials, settlements, the journal, lists and reports."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import TypeAdapter

from hub import journal, records, results
from hub.access import readable_kinds, require_own_past, require_writable
from hub.api.request import Admin, Given, JournalBody, JournalToken, RecordBody, Uid, alive_state
from wire.digest import canonical
from wire.errors import InvalidInput
from wire.journal import ENTRIES, RunRecord, Settlement, TrialRecord
from wire.model import Wire
from wire.run import BenchmarkRunSpec

router = APIRouter(prefix="/v1")
_SPEC = TypeAdapter(BenchmarkRunSpec)


def as_json(value: Wire | list[dict[str, object]]) -> Response:
    """Answer with canonical JSON: the same value, the same bytes."""
    content = canonical(value.dump() if isinstance(value, Wire) else value)
    return Response(content, media_type="application/json")


@router.put("/runs/{uid}")
def put_run(uid: Uid, token: Admin, body: RecordBody, given: Given) -> Response:
    record = RunRecord.model_validate_json(body)
    _require_same(record.uid, uid)
    _SPEC.validate_python(record.spec)
    with given.database.transaction() as connection:
        records.put_run(connection, record)
    return as_json(record)


@router.put("/trials/{uid}")
def put_trial(uid: Uid, token: Admin, body: RecordBody, given: Given) -> Response:
    record = TrialRecord.model_validate_json(body)
    _require_same(record.uid, uid)
    with given.database.transaction() as connection:
        records.put_trial(connection, record)
        return as_json(records.read_trial(connection, uid).record)


@router.post("/trials/{uid}/settle")
def settle(uid: Uid, token: Admin, body: RecordBody, given: Given) -> Response:
    settlement = Settlement.model_validate_json(body)
    with given.database.transaction() as connection:
        return as_json(results.settle(connection, uid, settlement))


@router.get("/trials/{uid}")
def get_trial(uid: Uid, token: Admin, given: Given) -> Response:
    with given.database.transaction() as connection:
        return as_json(results.read_facts(connection, uid))


@router.post("/trials/{uid}/journal")
def post_journal(uid: Uid, token: JournalToken, body: JournalBody, given: Given) -> dict[str, int]:
    entries = ENTRIES.validate_json(body)
    require_writable(token, (entry.kind for entry in entries))
    require_own_past(token, (getattr(entry, "attempt", 0) for entry in entries))
    with given.database.transaction() as connection:
        alive_state(connection, token, uid, lock=True)
        return {"stored": journal.append(connection, uid, token.attempt, entries)}


@router.get("/trials/{uid}/journal")
def get_journal(
    uid: Uid,
    token: JournalToken,
    given: Given,
    kind: Annotated[list[str], Query(max_length=16)] = [],  # noqa: B006 - FastAPI copies defaults
    after: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    kinds = readable_kinds(token, kind)
    with given.database.transaction() as connection:
        if alive_state(connection, token, uid) is None:
            raise records.NotFound(f"trial {uid} is not known here")
        return as_json([row.dump() for row in journal.read_page(connection, uid, kinds, after)])


@router.get("/runs")
def get_runs(token: Admin, given: Given) -> Response:
    with given.database.transaction() as connection:
        return as_json([run.dump() for run in results.list_runs(connection)])


@router.get("/runs/{uid}/trials")
def get_trials(uid: Uid, token: Admin, given: Given) -> Response:
    with given.database.transaction() as connection:
        return as_json([trial.dump() for trial in results.list_trials(connection, uid)])


@router.get("/runs/{uid}/report")
def get_report(uid: Uid, token: Admin, given: Given) -> Response:
    with given.database.transaction() as connection:
        return as_json(results.report_run(connection, uid))


def _require_same(written: str, asked: str) -> None:
    if written != asked:
        raise InvalidInput(f"uid: the record says {written!r}, the address {asked!r}")
