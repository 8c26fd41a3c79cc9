"""Bad input that only a running installation can judge: one condition and one event on the run, with a fix in words.

What the CRDs refuse is in `test_crds_served.py`; a malformed package is refused by `proctor push`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.e2e import objects
from tests.e2e.faults import without
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Object, until

pytestmark = pytest.mark.cluster


def condition(proctor: Installation, run: str, *reasons: str) -> Object:
    """Wait for a condition of a run with one of these reasons."""

    def look() -> Object | None:
        found = proctor.runs.get("bmr", run).get("status", {}).get("conditions", [])
        return next((one for one in found if one["reason"] in reasons), None)

    return until(f"{run} has a condition {' or '.join(reasons)}", look, 90)


def events(proctor: Installation, run: str, reason: str) -> list[Object]:
    """Return a run's events with a reason; a run of the same name that is gone has others."""
    uid = proctor.runs.get("bmr", run)["metadata"]["uid"]
    selector = f"--field-selector=involvedObject.uid={uid},reason={reason}"
    return proctor.runs.items("events", selector)


def assert_told_once(proctor: Installation, run: str, reason: str, *words: str) -> None:
    """One condition and one event say what is wrong and what to do."""
    seen = condition(proctor, run, reason)
    assert all(word in seen["message"] for word in words), seen["message"]
    told = until("an event says it", lambda: events(proctor, run, reason), 20)
    assert len(told) == 1
    assert all(word in told[0]["message"] for word in words), told[0]["message"]
    same = [one for one in proctor.runs.get("bmr", run)["status"]["conditions"] if one["reason"] == reason]
    assert len(same) == 1


@contextmanager
def a_run(proctor: Installation, name: str, **spec: Any) -> Iterator[str]:
    """Give a run with one nop arm, and delete it afterwards."""
    proctor.apply_run(objects.run(name, **spec))
    try:
        yield name
    finally:
        proctor.delete(name)


@contextmanager
def a_suite(proctor: Installation, name: str, **task: Any) -> Iterator[str]:
    """Give a suite whose one task differs from the bundled one in some field."""
    bundled = proctor.runs.get("bts", "engram-transfer")["spec"]["tasks"][0]
    proctor.runs.apply(objects.suite(name, {**bundled, **task}))
    try:
        yield name
    finally:
        proctor.runs("delete", "bts", name)


def assert_no_pod(proctor: Installation, run: str) -> None:
    """Nothing was started for the run."""
    assert proctor.runs.items("pods", f"--selector=proctor.dev/run={run}") == []


def test_an_unknown_suite_is_named_and_may_come_later(proctor: Installation) -> None:
    """The run says which suite is missing, and starts by itself when it is applied."""
    with a_run(proctor, "no-suite", suite="later", parallelism=0):
        assert_told_once(proctor, "no-suite", "UnknownSuite", "spec.suite", "later", "apply the TaskSuite")
        assert_no_pod(proctor, "no-suite")
        with a_suite(proctor, "later"):
            until("it is accepted", lambda: proctor.trials("no-suite"), 60)


def test_an_unknown_task_is_named(proctor: Installation) -> None:
    """The message lists what the suite has."""
    with a_run(proctor, "no-task", tasks=["nothing"]):
        assert_told_once(proctor, "no-task", "UnknownTask", "spec.tasks", "'nothing'", "capacity-lease")
        assert_no_pod(proctor, "no-task")


def test_a_digest_that_the_hub_does_not_have_is_named(proctor: Installation) -> None:
    """A suite with a wrong digest starts nothing and says how to upload the right one."""
    wrong = {"package": objects.DIGEST}
    with a_suite(proctor, "wrong-digest", **wrong), a_run(proctor, "no-package", suite="wrong-digest"):
        assert_told_once(proctor, "no-package", "PackageMissing", objects.DIGEST, "proctor push")
        assert_no_pod(proctor, "no-package")


def test_a_missing_image_is_told_and_disturbs_nobody(proctor: Installation) -> None:
    """The pod waits, the run says why; taking the run back leaves nothing."""
    missing = {"image": "none.invalid/sandbox:missing"}
    with a_suite(proctor, "no-image", **missing), a_run(proctor, "no-image", suite="no-image"):
        seen = condition(proctor, "no-image", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
        assert "check the image's name" in seen["message"]
        assert events(proctor, "no-image", seen["reason"])


def test_a_full_quota_is_told_and_waited_for(proctor: Installation) -> None:
    """A refused pod is no failed attempt: the trial goes on when there is room."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    proctor.runs.apply(quota)
    try:
        until("the quota holds", lambda: proctor.runs.get("quota", "none").get("status", {}).get("hard"), 30)
        with a_run(proctor, "no-room"):
            seen = condition(proctor, "no-room", "QuotaExceeded", "Rejected", "CreateRefused")
            assert "quota" in seen["message"]
            assert events(proctor, "no-room", seen["reason"])
            (trial,) = proctor.trials("no-room")
            assert trial["status"].get("failures", 0) == 0
    finally:
        proctor.runs("delete", "quota", "none")


def test_an_unreachable_hub_is_told_and_waited_for(proctor: Installation) -> None:
    """Without a hub no run is accepted; it starts by itself when the hub is back."""
    with ExitStack() as until_the_end:
        with without(proctor, "hub"):
            until_the_end.enter_context(a_run(proctor, "no-hub", parallelism=0))
            assert_told_once(proctor, "no-hub", "HubUnreachable", "goes on by itself")
            assert_no_pod(proctor, "no-hub")
        until("it is accepted", lambda: proctor.trials("no-hub"), 90)
