"""Verdicts: a pure count of what evaluators reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.verdict import SuiteMissing, count_verdict, result_of
from tests.hub.builders import PREPARED, SUBMISSION, a_case, a_check, a_plan, a_submission, a_trial
from wire.digest import of_bytes, of_json
from wire.journal import AnyEntry, CaseOutcome
from wire.package import SuiteInfo

TRIAL = a_trial("t")
PASSED, FAILED, UNRESOLVED = CaseOutcome.PASSED, CaseOutcome.FAILED, CaseOutcome.UNRESOLVED

SUITE = SuiteInfo(applicable=46, scheduled=46)


def outcomes(*entries: AnyEntry) -> dict[str, CaseOutcome | None]:
    """Return each case's effective outcome."""
    verdict = count_verdict(TRIAL, a_submission(), entries, published=SUITE)
    return {case.id: case.outcome for case in verdict.cases}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([a_plan("A-01"), a_case("A-01")], PASSED, id="reported once"),
        pytest.param([a_plan("A-01")], UNRESOLVED, id="never reported"),
        pytest.param(
            [a_plan("A-01"), a_case("A-01", UNRESOLVED), a_case("A-01", FAILED, attempt=2)], FAILED, id="resolved later"
        ),
        pytest.param(
            [a_plan("A-01"), a_case("A-01", FAILED, attempt=2), a_case("A-01", UNRESOLVED)],
            FAILED,
            id="the attempt counts, not the order of arrival",
        ),
        pytest.param([a_plan("A-01"), a_case("A-01", UNRESOLVED, attempt=3)], UNRESOLVED, id="last unresolved"),
        pytest.param([a_plan("A-01"), a_case("A-01"), a_case("B-01")], PASSED, id="a case outside the plan"),
        pytest.param([a_plan(left_out=("A-01",)), a_case("A-01")], None, id="not selected"),
        pytest.param([a_plan("A-01"), a_case("A-01"), a_check()], PASSED, id="digests agreed"),
        pytest.param(
            [a_plan("A-01"), a_case("A-01"), a_check(after=of_bytes(b"altered"))], UNRESOLVED, id="submission altered"
        ),
        pytest.param(
            [a_plan("A-01"), a_case("A-01"), a_check(after=of_bytes(b"altered"), shard=1)],
            PASSED,
            id="another shard's submission altered",
        ),
        pytest.param(
            [a_plan("A-01"), a_case("A-01"), a_check().model_copy(update={"prepared": SUBMISSION})],
            UNRESOLVED,
            id="another tree than the prepared one",
        ),
    ],
)
def test_a_case_is_what_its_last_trusted_report_says(entries: list[AnyEntry], expected: CaseOutcome | None) -> None:
    """The highest attempt decides; no report, an unresolved one or an altered submission leave the case open."""
    assert outcomes(*entries)["A-01"] == expected


def test_the_counts_add_up() -> None:
    """Excluded and diagnostic cases are selected and not applicable; unresolved ones are applicable, not passed."""
    reported = [a_case(f"A-{number:02}", outcome) for number, outcome in enumerate(CaseOutcome, start=1)]
    plan = a_plan(*(case.case for case in reported), "B-01", left_out=("C-01", "C-02"))
    verdict = count_verdict(TRIAL, a_submission(), [plan, *reported], published=SUITE)
    assert verdict.model_dump(include={"planned", "selected", "scheduled", "applicable"}) == {
        "planned": 9,
        "selected": 7,
        "scheduled": 46,
        "applicable": 5,
    }
    assert (verdict.passed, verdict.failed, verdict.blocked, verdict.unresolved) == (1, 1, 1, 2)
    assert (verdict.excluded, verdict.diagnostic) == (1, 1)


@given(st.permutations([a_plan("A-01", "A-02", "B-01"), a_case("A-01"), a_case("A-02", FAILED)]), st.data())
def test_the_order_of_arrival_changes_no_byte(entries: list[AnyEntry], data: st.DataObject) -> None:
    """The verdict's digest is a function of the set of facts."""
    more = [a_case("B-01", data.draw(st.sampled_from(CaseOutcome)), attempt=number) for number in (1, 2)]
    one = count_verdict(TRIAL, a_submission(), [*entries, *more], SUITE)
    two = count_verdict(
        TRIAL,
        a_submission(),
        [*reversed(more), *sorted(entries, key=lambda e: e.key())],
        SUITE,
    )
    assert result_of(one) == result_of(two)
    assert result_of(one).digest == of_json(one.dump())


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([], id="nothing"),
        pytest.param([a_case("A-01")], id="no plan"),
        pytest.param([a_plan("A-01").model_copy(update={"submission": PREPARED})], id="a plan for another submission"),
    ],
)
def test_nothing_is_counted_without_a_plan_for_this_submission(entries: list[AnyEntry]) -> None:
    """A graded settlement without the suite's plan is refused instead of counted as zero."""
    with pytest.raises(SuiteMissing):
        count_verdict(TRIAL, a_submission(), entries, published=SUITE)


def test_messages_are_bounded() -> None:
    """A verdict keeps the beginning of a long message; the journal keeps it whole."""
    verdict = count_verdict(
        TRIAL,
        a_submission(),
        [a_plan("A-01"), a_case("A-01", FAILED, message="x" * 9000)],
        SUITE,
    )
    assert len(verdict.cases[0].message) == 512
