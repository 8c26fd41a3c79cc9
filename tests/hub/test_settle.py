"""Settling over HTTP: once, the first answer for ever, and never against a living journal."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.hub.builders import Hub, a_case, a_check, a_plan, a_trial, an_event, graded
from wire.digest import canonical, of_json
from wire.journal import AnyEntry, CaseOutcome, Settlement
from wire.report import RunReport, TrialFacts, TrialSummary
from wire.token import Role
from wire.trial import FailureClass

ERRORED = Settlement(phase="Errored", failure_class=FailureClass.INFRASTRUCTURE, reason="PodLost")


def a_graded_trial(hub: Hub) -> str:
    """Return a trial whose evaluator has reported one passed and one failed case."""
    trial = hub.put_trial()
    entries: list[AnyEntry] = [a_plan("A-01", "B-01"), a_case("A-01"), a_case("B-01", CaseOutcome.FAILED), a_check()]
    assert hub.send(trial, Role.EVALUATOR, *entries).json() == {"stored": 4}
    return trial


def test_the_first_settlement_stands(hub: Hub) -> None:
    """A second settlement of any kind gets the first one's answer and changes nothing."""
    trial = a_graded_trial(hub)
    first = hub.settle(trial, graded())
    assert first.json()["result"]["passed"] == 1
    assert hub.settle(trial, graded()).json() == first.json()
    assert hub.settle(trial, ERRORED).json() == first.json() != {}
    facts = TrialFacts.model_validate(hub.client.get(f"/v1/trials/{trial}").json())
    assert facts.standing == "Graded"
    assert facts.verdict is not None
    assert facts.result is not None
    assert of_json(facts.verdict.dump()) == facts.result.digest
    assert facts.verdict.scheduled == 46


def test_concurrent_settlements_agree(hub: Hub) -> None:
    """Eight calls at once, half of them graded, half errored, all get one answer, and one is stored."""
    trial = a_graded_trial(hub)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: hub.settle(trial, one).json().get("result"), [graded(), ERRORED] * 4))
    assert len({canonical(answer) for answer in answers}) == 1


def test_no_entry_slips_in_beside_a_settlement(hub: Hub) -> None:
    """Entries sent while a trial is settled are either counted or refused, never stored and not counted."""
    trial = hub.put_trial()
    cases = [f"A-{number:02}" for number in range(1, 31)]
    assert hub.send(trial, Role.EVALUATOR, a_plan(*cases)).is_success
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(hub.send, trial, Role.EVALUATOR, a_case(case)) for case in cases[:15]]
        settled = pool.submit(hub.settle, trial, graded())
        sent += [pool.submit(hub.send, trial, Role.EVALUATOR, a_case(case)) for case in cases[15:]]
    accepted = sum(one.result().status_code == 200 for one in sent)
    assert {one.result().status_code for one in sent} <= {200, 403}
    assert settled.result().json()["result"]["passed"] == accepted


def test_an_errored_trial_can_be_sent_back_and_a_graded_one_cannot(hub: Hub) -> None:
    """A record with more retries reopens an errored trial; its tokens live again; a verdict stays for ever."""
    trial = a_graded_trial(hub)
    assert hub.settle(trial, ERRORED).json() == {"phase": "Errored"}
    assert hub.send(trial, Role.AGENT, an_event(1)).status_code == 403
    hub.put_record(a_trial(trial, attempt=2, retries=1))
    assert hub.send(trial, Role.AGENT, an_event(1), attempt=2).status_code == 200
    first = hub.settle(trial, graded()).json()
    assert first["result"]["applicable"] == 2
    hub.put_record(a_trial(trial, attempt=3, retries=2))
    assert hub.send(trial, Role.AGENT, an_event(2), attempt=3).status_code == 403
    assert hub.settle(trial, ERRORED).json() == first


@pytest.mark.parametrize(
    ("settlement", "message"),
    [
        (Settlement(phase="Graded"), "submission"),
        (graded(), "no suite was planned"),
    ],
)
def test_a_graded_settlement_needs_something_to_count(hub: Hub, settlement: Settlement, message: str) -> None:
    """Without submission or plan the settlement is refused and the trial stays open."""
    trial = hub.put_trial()
    answer = hub.settle(trial, settlement)
    assert answer.status_code == 422
    assert message in answer.json()["error"]["message"]
    assert hub.send(trial, Role.AGENT, an_event(1)).status_code == 200


@pytest.mark.parametrize("statement", ["UPDATE settlements SET phase = 'Graded'", "UPDATE journal SET kind = 'x'"])
def test_the_database_itself_refuses_to_change_what_is_written_once(hub: Hub, statement: str) -> None:
    """Not even a program with a mistake rewrites a verdict or the journal."""
    hub.settle(a_graded_trial(hub), graded())
    with (
        psycopg.connect(hub.settings.database_url) as connection,
        pytest.raises(psycopg.errors.RestrictViolation, match="written once"),
    ):
        connection.execute(statement.encode())


def test_lists_and_the_report_agree(hub: Hub) -> None:
    """Counts, lists and report tell the same, and the report's bytes do not change between two readings."""
    hub.settle(a_graded_trial(hub), graded())
    answers = [hub.client.get("/v1/runs/run-1/report").content for _ in range(2)]
    assert answers[0] == answers[1]
    report = RunReport.model_validate_json(answers[0])
    trials = [TrialSummary.model_validate(one) for one in hub.client.get("/v1/runs/run-1/trials").json()]
    runs = {run["uid"]: run for run in hub.client.get("/v1/runs").json()}
    assert report.counts.graded == sum(trial.standing == "Graded" for trial in trials) >= 1
    assert runs["run-1"]["counts"] == report.counts.dump()
