"""What a run does next: acceptance with one problem and its fix, expansion, counters."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.accept import Packages, Problem, judge
from controller.actions import Create, Emit, SetStatus
from controller.plan_run import RunWorld, plan
from controller.run_status import indexes, intervals
from controller.views import RunView, SuiteView, run_of, suite_of
from tests.controller.builders import trial_spec
from tests.controller.fakes import PACKAGE, START, run, settings, suite
from wire.names import FINALIZER
from wire.run import BenchmarkRunStatus

row = pytest.param
KNOWN = Packages(manifests={PACKAGE.digest(): PACKAGE})
META = {"uid": "r-uid-1", "generation": 1, "finalizers": [FINALIZER]}


def viewed(status: dict[str, Any] | None = None, **spec: Any) -> RunView:
    body = run(**spec)
    return run_of({**body, "metadata": {**body["metadata"], **META}, "status": status or {}})


def lab(*tasks: str) -> SuiteView:
    body = suite(tasks=tasks or ("lease",))
    return suite_of({**body, "metadata": {**body["metadata"], "uid": "s"}})


def seen(view: RunView, **changes: Any) -> RunWorld:
    world = RunWorld(run=view, suite=lab(), trials={}, packages=KNOWN, now=START, settings=settings())
    return replace(world, **changes)


MUTANT = [{"name": "m", "agent": {"kind": "mutant"}}]
TWICE = [{"name": "same", "agent": {"kind": "nop"}}, {"name": "same", "agent": {"kind": "oracle"}}]


@pytest.mark.parametrize(
    ("view", "there", "packages", "reason", "words"),
    [
        row(viewed(), None, KNOWN, "UnknownSuite", "spec.suite", id="no such suite"),
        row(viewed(tasks=["ghost"]), lab(), KNOWN, "UnknownTask", "spec.tasks: 'ghost'", id="no such task"),
        row(viewed(arms=MUTANT), lab(), KNOWN, "InvalidSpec", "spec.arms[m].agent.mutant", id="mutant unnamed"),
        row(viewed(arms=TWICE), lab(), KNOWN, "InvalidSpec", "two arms have the same name", id="arms alike"),
        row(viewed(suspendedArms=["x"]), lab(), KNOWN, "InvalidSpec", "spec.suspendedArms", id="no such arm"),
        row(
            viewed(formal=True, evaluation={"tags": ["quick"]}),
            lab(),
            KNOWN,
            "NotFormal",
            "evaluation.tags",
            id="selection",
        ),
        row(viewed(formal=True), lab(), KNOWN, "NotFormal", "no certificate", id="uncertified"),
        row(
            viewed(arms=[{"name": "m", "agent": {"kind": "mutant", "mutant": "lazy"}}]),
            lab(),
            KNOWN,
            "UnknownMutant",
            "spec.arms[m].agent.mutant: 'lazy' is no mutant of task 'lease', which has: late, lax",
            id="no such mutant",
        ),
        row(
            viewed(),
            lab(),
            Packages(manifests={PACKAGE.digest(): None}),
            "PackageMissing",
            "proctor push",
            id="no package",
        ),
        row(
            viewed(), lab(), Packages(manifests={}, unreachable="no answer"), "HubUnreachable", "no answer", id="no hub"
        ),
    ],
)
def test_a_bad_run_is_one_problem_that_names_the_field_and_the_fix(
    view: RunView, there: SuiteView | None, packages: Packages, reason: str, words: str
) -> None:
    """No pod starts, no trial is made; the condition says what to do."""
    problem = judge(view, there, packages)
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    assert words in problem.message


def accepted(**spec: Any) -> RunView:
    """Return a run as it is after its acceptance."""
    first = plan(seen(viewed(**spec)))
    (written,) = [action for action in first if isinstance(action, SetStatus)]
    assert isinstance(written.status, BenchmarkRunStatus)
    return viewed(written.status.dump(), **spec)


def made(world: RunWorld) -> list[tuple[int, str, int]]:
    """Return (index, arm, repetition) of the trials a plan makes."""
    bodies = [action.body["spec"] for action in plan(world) if isinstance(action, Create)]
    return [(spec["index"], spec["arm"]["name"], spec["repetition"]) for spec in bodies]


ARMS = [{"name": "a", "agent": {"kind": "nop"}}, {"name": "b", "agent": {"kind": "oracle"}}]


def test_a_run_expands_into_arms_times_tasks_times_repetitions() -> None:
    """Growing repetitions only adds indexes behind the ones there are."""
    once, twice = made(seen(accepted(arms=ARMS))), made(seen(accepted(arms=ARMS, repetitions=2)))
    assert once == [(0, "a", 1), (1, "b", 1)]
    assert twice == [*once, (2, "a", 2), (3, "b", 2)]


def test_trials_carry_what_was_pinned_at_acceptance() -> None:
    """Package, image and memory come from the suite and the package as they were."""
    (body,) = [action.body for action in plan(seen(accepted())) if isinstance(action, Create)]
    assert body["spec"]["package"] == PACKAGE.digest()
    assert body["spec"]["memoryMb"] == PACKAGE.task.memory_mb
    assert body["metadata"]["finalizers"] == [FINALIZER]
    assert trial_spec().package == body["spec"]["package"]


def test_an_edited_suite_does_not_touch_an_accepted_run() -> None:
    """What it would need of the suite it no longer finds: it says so and makes nothing."""
    world = seen(accepted(), suite=lab("lease", "other"))
    assert made(world) == []
    (written,) = [action for action in plan(world) if isinstance(action, SetStatus)]
    assert isinstance(written.status, BenchmarkRunStatus)
    assert "copy the run under a new name" in next(c.message for c in written.status.conditions if c.type == "Accepted")


@given(st.sets(st.integers(min_value=0, max_value=400)))
def test_intervals_say_what_they_were_given(numbers: set[int]) -> None:
    """Reading what was written gives the same indexes."""
    assert indexes(intervals(numbers)) == numbers


def test_a_problem_is_the_reason_of_one_condition() -> None:
    """Accepted says it; the others say that the run is not accepted."""
    (written, event) = plan(seen(viewed(), suite=None))
    assert isinstance(written, SetStatus)
    assert isinstance(event, Emit)
    assert isinstance(written.status, BenchmarkRunStatus)
    assert [c.type for c in written.status.conditions if c.reason == "UnknownSuite"] == ["Accepted"]
    assert event.reason == "UnknownSuite"
    assert plan(seen(viewed(written.status.dump()), suite=None)) == []
