"""The quickstart on a real cluster: `helm install`, `kubectl apply`, `kubectl wait`, and the results it promises."""

import pytest

from proctor.crds import REPOSITORY
from tests.e2e.conftest import Quickstart
from tests.e2e.installation import Installation

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
    selector = "--selector=app.kubernetes.io/managed-by=proctor-operator,proctor.dev/run=quickstart"
    assert proctor.runs.items("pods,jobs,secrets,networkpolicies", selector) == []
