"""Whose failure it was: the table, row by row, from evidence as the cluster shows it."""

import pytest

from controller.failures import TABLE, Failure, failed_driver, failed_untrusted, known
from controller.views import ContainerView, PodView, pod_of
from tests.controller.builders import exited, pod
from wire.outcome import DriverFailure, Failed
from wire.trial import FailureClass

row = pytest.param
SESSION, BOX = "t-1-session-1", "t-1-sandbox"
INFRA, HARNESS, TASK, AGENT = (
    FailureClass.INFRASTRUCTURE,
    FailureClass.HARNESS,
    FailureClass.TASK,
    FailureClass.AGENT,
)


def said(reason: DriverFailure, code: int = 75) -> ContainerView:
    return exited("user", Failed(reason=reason), code)


@pytest.mark.parametrize(
    ("seen", "reason", "failure_class", "retried"),
    [
        row(pod(SESSION, said(DriverFailure.SANDBOX_LOST)), "SandboxLost", INFRA, True, id="sandbox lost"),
        row(pod(SESSION, said(DriverFailure.HUB_UNREACHABLE)), "HubUnreachable", INFRA, True, id="no hub"),
        row(pod(SESSION, said(DriverFailure.CANARY_ANSWERED)), "CanaryAnswered", HARNESS, False, id="canary"),
        row(pod(SESSION, said(DriverFailure.DIGEST_MISMATCH)), "DigestMismatch", HARNESS, False, id="digest"),
        row(pod(SESSION, said(DriverFailure.PACKAGE_MALFORMED, 64)), "PackageMalformed", TASK, False, id="task"),
        row(pod(SESSION, said(DriverFailure.SUITE_CANNOT_START, 64)), "SuiteCannotStart", TASK, False, id="suite"),
        row(pod(SESSION, exited("user", code=75)), "DriverAskedForRetry", INFRA, True, id="exit 75, no word"),
        row(pod(SESSION, exited("user", code=64)), "TaskAtFault", TASK, False, id="exit 64, no word"),
        row(pod(SESSION, exited("user", code=1)), "DriverExited1", INFRA, True, id="exit 1"),
        row(pod(SESSION, exited("user")), "NoOutcome", INFRA, True, id="exit 0, no word"),
        row(
            pod(SESSION, ContainerView(name="user", exit_code=0, message='{"outcome": "won"}')),
            "NoOutcome",
            INFRA,
            True,
            id="exit 0, a word nobody knows",
        ),
        row(
            pod(SESSION, exited("user", code=137, reason="OOMKilled")), "DriverOutOfMemory", HARNESS, True, id="memory"
        ),
        row(
            pod(SESSION, ContainerView(name="user"), exited("agent", code=2)),
            "DriverExited2",
            INFRA,
            True,
            id="agent died",
        ),
        row(pod(SESSION, phase="Failed", reason="NodeShutdown"), "NodeShutdown", INFRA, True, id="node"),
        row(pod(SESSION, phase="Failed", reason="Sunspots"), "Sunspots", INFRA, True, id="unknown reason"),
        row(pod(SESSION, disruption="PreemptionByScheduler"), "PreemptionByScheduler", INFRA, True, id="preempted"),
        row(pod(SESSION, deleting=True), "PodDeleted", INFRA, True, id="deleted by hand"),
    ],
)
def test_a_drivers_end_has_one_class(seen: PodView, reason: str, failure_class: FailureClass, retried: bool) -> None:
    """Evidence in, class and reason out; what is not known is infrastructure and retried."""
    failure = failed_driver(seen, "user", "agent")
    assert failure is not None
    assert (failure.reason, failure.failure_class, failure.retried) == (reason, failure_class, retried)


@pytest.mark.parametrize(
    ("seen", "reason", "failure_class"),
    [
        row(pod(BOX, exited("sandbox", code=137, reason="OOMKilled")), "SandboxOutOfMemory", AGENT, id="memory"),
        row(pod("t-1-sut-1", exited("sandbox", code=137, reason="OOMKilled")), "SutOutOfMemory", AGENT, id="sut"),
        row(pod("t-1-sut-e0", phase="Failed", reason="Evicted"), "SutOverLimit", AGENT, id="sut over its limit"),
        row(pod(BOX, exited("sandbox", code=1)), "SandboxExited", INFRA, id="the daemon died"),
        row(pod(BOX, exited("receive", code=1)), "SandboxExited", INFRA, id="the receiver died"),
        row(pod(BOX, phase="Failed", reason="Evicted"), "SandboxOverLimit", AGENT, id="over its own limit"),
        row(
            pod(BOX, phase="Failed", reason="Evicted", disruption="TerminationByKubelet"),
            "TerminationByKubelet",
            INFRA,
            id="evicted for the node's sake",
        ),
    ],
)
def test_an_untrusted_pods_end_has_one_class(seen: PodView, reason: str, failure_class: FailureClass) -> None:
    """The agent's own excess is told from the node's trouble."""
    failure = failed_untrusted(seen)
    assert failure is not None
    assert (failure.reason, failure.failure_class) == (reason, failure_class)


@pytest.mark.parametrize(
    "seen",
    [
        row(pod(SESSION, ContainerView(name="user"), ContainerView(name="agent")), id="running"),
        row(pod(SESSION, ContainerView(name="user"), exited("agent")), id="the agent was told to finish"),
    ],
)
def test_a_driver_that_still_works_has_not_failed(seen: PodView) -> None:
    """No evidence, no failure."""
    assert failed_driver(seen, "user", "agent") is None


def test_a_receiver_that_has_done_its_work_is_no_failure() -> None:
    """A sut's init step ends with 0 before its daemon starts."""
    assert failed_untrusted(pod("t-1-sut-1", exited("receive"), ContainerView(name="sandbox"))) is None


def test_every_reason_a_driver_can_give_has_a_row() -> None:
    """A new DriverFailure without a row would be retried in silence."""
    assert set(DriverFailure) <= set(TABLE)


def test_what_the_table_does_not_know_is_never_counted_against_the_agent() -> None:
    """Unknown is infrastructure, retried."""
    assert known("NeverHeardOf") == Failure(reason="NeverHeardOf")


def test_a_pods_state_is_read_as_the_kubelet_writes_it() -> None:
    """Init and main containers, conditions, labels, address, in one view."""
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "message": "",
    }
    found = {
        "metadata": {
            "name": "p",
            "uid": "u",
            "labels": {"proctor.dev/attempt": "3", "proctor.dev/role": "sut"},
            "ownerReferences": [{"uid": "o", "controller": True}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            "initContainerStatuses": [{"name": "receive", "state": {"terminated": ended}}],
            "containerStatuses": [{"name": "sandbox", "state": {"waiting": {"reason": "ErrImagePull"}}}],
        },
    }
    seen = pod_of(found)
    assert (seen.attempt, seen.role, seen.ip, seen.owner) == (3, "sut", "10.1.2.3", "o")
    assert seen.disruption == "EvictionByEvictionAPI"
    assert [(box.name, box.exit_code, box.waiting) for box in seen.containers] == [
        ("receive", 0, ""),
        ("sandbox", None, "ErrImagePull"),
    ]
