"""The phase table, cell by cell, and names."""

import pytest

from wire.names import label_value, pod_name, trial_name
from wire.trial import FINISHED, NEXT_PHASES, Phase


def test_every_phase_has_its_row() -> None:
    """A new phase must say what may follow it."""
    assert set(NEXT_PHASES) == set(Phase)


@pytest.mark.parametrize("phase", sorted(FINISHED - {Phase.ERRORED}))
def test_a_verdict_is_final(phase: Phase) -> None:
    """Graded and cancelled trials stay so."""
    assert NEXT_PHASES[phase] == frozenset()


def test_only_a_retry_leads_back_from_errored() -> None:
    """An errored trial can be sent back to the start and nowhere else."""
    assert NEXT_PHASES[Phase.ERRORED] == {Phase.PENDING}


@pytest.mark.parametrize("phase", sorted(set(Phase) - FINISHED))
def test_any_unfinished_trial_may_error_or_be_cancelled(phase: Phase) -> None:
    """Nothing can hold a trial in the system for ever."""
    assert {Phase.ERRORED, Phase.CANCELLED} <= NEXT_PHASES[phase]


def test_a_grade_comes_only_from_evaluation() -> None:
    """No other phase leads to Graded."""
    assert [phase for phase in Phase if Phase.GRADED in NEXT_PHASES[phase]] == [Phase.EVALUATING]


def test_the_longest_pod_name_is_a_host_name() -> None:
    """A run name of 35 characters leaves room for every suffix within 63."""
    trial = trial_name("r" * 35, "0f3c9d2e-aaaa", 99999)
    assert len(pod_name(trial, 99, "evaluate", 15)) <= 63
    assert len(pod_name(trial, 99, "session", 99)) <= 63


def test_long_label_values_stay_distinct() -> None:
    """Two long names with one beginning do not collide."""
    one, two = label_value("x" * 80 + "1"), label_value("x" * 80 + "2")
    assert one != two
    assert max(len(one), len(two)) <= 63
