"""Reports: the same facts, the same bytes; nothing hidden, nothing flattered."""

from pathlib import Path

import pytest

from hub.report import TrialHistory, build_report, coding_seconds
from hub.verdict import count_verdict, result_of
from tests.hub.builders import (
    SUBMISSION,
    TIME,
    a_case,
    a_plan,
    a_run,
    a_submission,
    a_trial,
    graded,
)
from wire.digest import canonical, of_bytes
from wire.journal import AnyEntry, CaseOutcome, GateReported, GateStep, Settlement, TurnOpened, TurnSealed
from wire.package import SuiteInfo
from wire.run import AgentKind
from wire.trial import Attempt, FailureClass, Phase

GOLDEN = Path(__file__).parent / "report.json"


def a_turn(turn: int, start: str, end: str) -> TurnSealed:
    """Return a sealed turn between two times of the day."""
    return TurnSealed(
        turn=turn,
        conversation=1,
        attempt=1,
        sandbox=1,
        reply="",
        started_at=f"2026-12-01T{start}Z",
        ended_at=f"2026-12-01T{end}Z",
        checkpoint=of_bytes(b"checkpoint"),
    )


def a_gate(conversation: int, *, passed: bool) -> GateReported:
    """Return a gate's report with one step."""
    step = GateStep(name="checker", passed=passed, seconds=1.0)
    return GateReported(
        conversation=conversation, attempt=1, candidate=SUBMISSION, passed=passed, steps=[step], at=TIME
    )


def a_graded_trial(
    index: int, agent: AgentKind, *cases: AnyEntry, left_out: tuple[str, ...] = (), formal: bool = False
) -> TrialHistory:
    """Return a graded trial whose suite holds the reported cases and those left out."""
    record = a_trial(f"uid-{index}", index=index, agent=agent, formal=formal)
    plan = a_plan(*(case.case for case in cases if case.kind == "caseReported"), left_out=left_out)
    verdict = count_verdict(record, a_submission(), [plan, *cases], published=SuiteInfo(applicable=4, scheduled=4))
    talk = (a_turn(1, "10:00:00", "10:10:00"), a_gate(1, passed=False), a_gate(2, passed=True))
    return TrialHistory(record=record, settlement=graded(), result=result_of(verdict), verdict=verdict, entries=talk)


def histories() -> list[TrialHistory]:
    """Return one trial of every kind."""
    lost = Attempt(
        number=1,
        stage=Phase.DEVELOPING,
        failure_class=FailureClass.INFRASTRUCTURE,
        reason="PodLost",
        message="the node went away",
        at=TIME,
    )
    errored = Settlement(
        phase="Errored",
        failure_class=FailureClass.TASK,
        reason="SuiteCannotStart",
        message="no",
        attempts=[lost],
        failures=1,
    )
    return [
        a_graded_trial(0, AgentKind.ORACLE, a_case("A-01"), a_case("B-01"), left_out=("C-01",)),
        a_graded_trial(
            1,
            AgentKind.NOP,
            a_case("A-01", CaseOutcome.FAILED),
            a_case("B-01", CaseOutcome.UNRESOLVED),
            left_out=("C-01",),
        ),
        TrialHistory(record=a_trial("uid-2", index=2, agent=AgentKind.MUTANT), settlement=errored),
        TrialHistory(record=a_trial("uid-3", index=3), settlement=Settlement(phase="Cancelled", reason="RunCancelled")),
        TrialHistory(
            record=a_trial("uid-4", index=4, agent=AgentKind.NOP),
            entries=(TurnOpened(turn=1, conversation=1, attempt=1, message="go", at=TIME),),
        ),
    ]


RUN = a_run(arms=tuple(AgentKind))


def test_the_report_is_byte_for_byte_what_it_was() -> None:
    """The golden file holds a report with graded, errored, cancelled and unfinished trials."""
    assert canonical(build_report(RUN, histories()).dump()) + b"\n" == GOLDEN.read_bytes()


def test_the_order_of_the_facts_does_not_matter() -> None:
    """Trials are shown by index, however they are read."""
    assert build_report(RUN, histories()) == build_report(RUN, reversed(histories()))


def test_averages_are_over_cases_and_show_what_is_open() -> None:
    """CCPF of a cell: passed over applicable cases of its graded trials, with the bound of unresolved ones."""
    cells = {cell.arm: cell for cell in build_report(RUN, histories()).cells}
    assert cells["oracle"].ccpf is not None
    assert (cells["oracle"].ccpf.low, cells["oracle"].ccpf.high) == (1.0, 1.0)
    assert cells["nop"].ccpf is not None
    assert (cells["nop"].ccpf.passed, cells["nop"].ccpf.of) == (0, 2)
    assert (cells["nop"].ccpf.low, cells["nop"].ccpf.high) == (0.0, 0.5)
    assert cells["mutant"].ccpf is None
    assert cells["mutant"].counts.errored == 1


def test_a_selection_or_an_incomplete_suite_is_named_and_not_formal() -> None:
    """A cell says how much of the suite it stands on; only a whole suite of a formal run is formal."""
    formal_run = a_run(formal=True)
    whole = a_graded_trial(0, AgentKind.ORACLE, *(a_case(f"A-0{n}") for n in range(1, 5)), formal=True)
    partial = a_graded_trial(0, AgentKind.ORACLE, a_case("A-01"), left_out=("A-02", "A-03", "A-04"), formal=True)
    small = a_graded_trial(0, AgentKind.ORACLE, a_case("A-01"), formal=True)
    reports = [build_report(formal_run, [history]) for history in (whole, partial, small)]
    assert [report.cells[0].coverage for report in reports] == [
        "4 of 4 cases",
        "1 of 4 cases, not formal",
        "1 of 4 cases, not formal",
    ]
    assert [report.formal for report in reports] == [True, False, False]
    assert [report.trials[0].not_formal for report in reports] == [[], ["caseSelection"], ["incompleteSuite"]]
    assert build_report(RUN, histories()).cells[0].coverage == "2 of 4 cases, not formal"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], (0.0, True), id="no turn"),
        pytest.param([a_turn(1, "10:00:00", "10:01:00"), a_turn(2, "10:02:00", "10:03:00")], (120.0, True), id="apart"),
        pytest.param(
            [a_turn(1, "10:00:00", "10:05:00"), a_turn(2, "10:01:00", "10:02:00"), a_turn(3, "10:04:00", "10:06:00")],
            (360.0, True),
            id="overlapping ones count once",
        ),
        pytest.param([a_turn(1, "10:05:00", "10:00:00")], (0.0, True), id="a clock that went back"),
        pytest.param(
            [TurnOpened(turn=1, conversation=1, attempt=1, message="", at=TIME)],
            (0.0, False),
            id="a turn without an end",
        ),
        pytest.param([a_turn(1, "10:00:00", "later")], (0.0, False), id="no time at all"),
    ],
)
def test_coding_time_is_the_union_of_turns(entries: list[AnyEntry], expected: tuple[float, bool]) -> None:
    """Overlaps count once; a turn without an end makes the time a lower bound."""
    assert coding_seconds(entries) == expected
