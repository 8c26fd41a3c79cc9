"""The quickstart on a real cluster: `helm install`, `kubectl apply`, `kubectl wait`, and the results it promises."""

import tomllib

import pytest

from proctor.crds import REPOSITORY
from tests.e2e.conftest import Quickstart
from tests.e2e.installation import Installation
from tests.e2e.kubectl import until

pytestmark = pytest.mark.cluster
TASK = REPOSITORY / "tasks" / "transfer" / "capacity-lease"


def test_every_trial_is_graded(proctor: Installation, quickstart: Quickstart) -> None:
    """One attempt each, no failure; the verdict in the object is the hub's."""
    for trial in quickstart.trials.values():
        status = trial["status"]
        assert status["phase"] == "Graded"
        assert status.get("failures", 0) == 0, status.get("attempts")
        assert proctor.record(trial)["result"] == status["result"]


def test_the_oracle_passes_every_quick_case(quickstart: Quickstart) -> None:
    """At least 16 cases, all of them passed, and the gate too."""
    found = quickstart.outcomes["oracle"]
    assert len(found) >= 16
    assert set(found.values()) == {"passed"}
    assert quickstart.trials["oracle"]["status"]["submission"]["gatePassed"] is True


def test_doing_nothing_passes_no_case_that_needs_work(quickstart: Quickstart) -> None:
    """The untouched scaffold passes at most what every application that starts passes, a tenth of the cases."""
    found = quickstart.outcomes["nop"]
    passed = {case for case, outcome in found.items() if outcome == "passed"}
    assert len(passed) <= len(found) // 10 + 1, passed
    assert quickstart.trials["nop"]["status"]["submission"]["gatePassed"] is False


def test_the_mutant_fails_exactly_what_it_declares(quickstart: Quickstart) -> None:
    """One planted mistake: its declared cases among the selected ones fail, and no other."""
    declared = tomllib.loads((TASK / "private" / "mutants.toml").read_text(encoding="utf-8"))["mutants"]
    mutant = quickstart.trials["mutant"]["spec"]["arm"]["agent"]["mutant"]
    (fails,) = (set(one["fails"]) for one in declared if one["id"] == mutant)
    found = quickstart.outcomes["mutant"]
    assert {case for case, outcome in found.items() if outcome != "passed"} == fails & set(found)
    assert fails & set(found), "the quickstart's mutant shows itself in a quick case"


def test_the_report_says_what_it_covers(proctor: Installation, quickstart: Quickstart) -> None:
    """A selection is never taken for the whole suite: so many of so many cases, not formal."""
    trial = quickstart.trials["oracle"]
    with proctor.hub() as hub:
        report = hub.get(f"/v1/runs/{trial['spec']['runRef']['uid']}/report").raise_for_status().json()
    selected = len(quickstart.outcomes["oracle"])
    assert {cell["coverage"] for cell in report["cells"]} == {f"{selected} of 46 cases, not formal"}
    assert report["formal"] is False


def test_the_run_is_complete_for_kubectl(proctor: Installation, quickstart: Quickstart) -> None:
    """Conditions, counters and phase agree."""
    status = proctor.runs.get("bmr", "quickstart")["status"]
    assert status["phase"] == "Complete"
    assert status["trials"] == {
        "total": 3, "pending": 0, "active": 0, "graded": 3, "errored": 0, "cancelled": 0,
    }  # fmt: skip
    assert status["completedIndexes"] == "0-2"


def test_no_pod_outlives_its_trial(proctor: Installation, quickstart: Quickstart) -> None:
    """A finished run holds no pods, Jobs, Secrets or policies of its own."""
    kinds, selector = "pods,jobs,secrets,networkpolicies", "--selector=proctor.dev/run=quickstart"
    # The verdict is written first; what the trial held is let go after it.
    until("everything is let go", lambda: not proctor.runs.items(kinds, selector) or None, 30)
