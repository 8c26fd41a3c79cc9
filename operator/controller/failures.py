"""Whose failure it was: evidence → class, reason and whether another attempt follows. The one table.

What the table does not know is infrastructure and retried up to the cap; it is never counted against the agent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from pydantic import ValidationError

from controller.views import ContainerView, JobView, PodView
from wire.outcome import EXIT_RETRY, EXIT_TASK, OUTCOME, Checked, Delivered, DriverFailure, Evaluated, Failed
from wire.trial import Attempt, FailureClass, Phase, TrialStatus


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why an attempt ended without an outcome."""

    reason: str
    message: str = ""
    failure_class: FailureClass = FailureClass.INFRASTRUCTURE
    retried: bool = True


_INFRASTRUCTURE: Final = (FailureClass.INFRASTRUCTURE, True)
# Reason → class, and whether a further attempt can help.
TABLE: Final[Mapping[str, tuple[FailureClass, bool]]] = {
    # What a driver says as its last word.
    DriverFailure.SANDBOX_LOST: _INFRASTRUCTURE,
    DriverFailure.HUB_UNREACHABLE: _INFRASTRUCTURE,
    DriverFailure.UNEXPECTED: _INFRASTRUCTURE,
    DriverFailure.CANARY_ANSWERED: (FailureClass.HARNESS, False),
    DriverFailure.DIGEST_MISMATCH: (FailureClass.HARNESS, False),
    DriverFailure.PACKAGE_MALFORMED: (FailureClass.TASK, False),
    DriverFailure.SUITE_CANNOT_START: (FailureClass.TASK, False),
    "DriverAskedForRetry": _INFRASTRUCTURE,
    "TaskAtFault": (FailureClass.TASK, False),
    "DriverOutOfMemory": (FailureClass.HARNESS, True),
    # What the cluster says of a pod.
    "PodLost": _INFRASTRUCTURE,
    "PodDeleted": _INFRASTRUCTURE,
    "Evicted": _INFRASTRUCTURE,
    "NodeShutdown": _INFRASTRUCTURE,
    "NodeAffinity": _INFRASTRUCTURE,
    "UnexpectedAdmissionError": _INFRASTRUCTURE,
    "DeadlineExceeded": _INFRASTRUCTURE,
    # The agent's or the submission's doing, yet no verdict: tried again, in development from the last checkpoint.
    "SandboxOutOfMemory": (FailureClass.AGENT, True),
    "SandboxOverLimit": (FailureClass.AGENT, True),
    "SutOutOfMemory": (FailureClass.AGENT, True),
    "SutOverLimit": (FailureClass.AGENT, True),
}
SANDBOX_DEATHS: Final = frozenset({"SandboxOutOfMemory", "SandboxOverLimit"})
SUT_DEATHS: Final = frozenset({"SutOutOfMemory", "SutOverLimit"})
DEATHS_LIMIT: Final = 3
"""So many sandboxes in a row end development with the last sealed state; so many suts fail what they were to show."""
# The kubelet cannot start the container for now; it goes on trying, so no attempt is lost.
BLOCKED: Final[Mapping[str, str]] = {
    "ErrImagePull": "check the image's name and the namespace's pull secrets",
    "ImagePullBackOff": "check the image's name and the namespace's pull secrets",
    "ErrImageNeverPull": "load the image onto the nodes, or set `imagePullPolicy` to IfNotPresent",
    "InvalidImageName": "correct the image's name in the TaskSuite or in the chart's values",
    "CreateContainerConfigError": "look at the pod's events; a Secret or a setting it names is missing",
    "CreateContainerError": "look at the pod's events",
}
Answer = Delivered | Checked | Evaluated


def sandbox_deaths(attempts: Sequence[Attempt]) -> int:
    """Count the sandboxes in a row that went over a limit of theirs; what was nobody's fault does not end the row."""
    row = [entry.reason for entry in reversed(attempts) if entry.failure_class is not FailureClass.INFRASTRUCTURE]
    return sum(1 for _ in takewhile(SANDBOX_DEATHS.__contains__, row))


def stage(status: TrialStatus) -> str:
    """Name the stage that the recorded facts call for, which the phase does not say between two attempts."""
    if status.submission is not None:
        return Phase.EVALUATING
    return Phase.DEVELOPING if status.candidate is None else f"{Phase.CHECKING}({status.conversation})"


def after_sut_death(status: TrialStatus, reason: str) -> dict[str, list[str]]:
    """Return the status's count of suts that died of their limits, with this failure in it if it is one."""
    counted = status.sut_deaths.get(stage(status), [])
    # No more than the limit: what still fails once the driver was told is bounded like any other failure.
    if reason not in SUT_DEATHS or len(counted) >= DEATHS_LIMIT:
        return status.sut_deaths
    return {**status.sut_deaths, stage(status): [*counted, reason]}


def sut_verdict(status: TrialStatus) -> str | None:
    """Return the reason for which the current stage fails without another sut; None = it is tried."""
    counted = status.sut_deaths.get(stage(status), [])
    return counted[-1] if len(counted) >= DEATHS_LIMIT else None


def known(reason: str, message: str = "") -> Failure:
    """Return the table's word on a reason; what it does not know is infrastructure."""
    failure_class, retried = TABLE.get(reason, _INFRASTRUCTURE)
    return Failure(reason=reason[:64], message=message[:512], failure_class=failure_class, retried=retried)


def answer(pod: PodView, container: str) -> Answer | None:
    """Return a driver's outcome; None = there is none (yet)."""
    box = pod.container(container)
    if box is None or box.exit_code != 0:
        return None
    try:
        said = OUTCOME.validate_json(box.message)
    except ValidationError:
        return None
    return None if isinstance(said, Failed) else said


def failed_driver(pod: PodView, *containers: str) -> Failure | None:
    """Return why a driver can no longer give an outcome; None = it still may, or has."""
    if whole := _failed_pod(pod, untrusted=False):
        return whole
    main, *others = containers
    box = pod.container(main)
    if box is not None and box.exit_code is not None:
        return _ended(box)
    for name in others:
        # A helper that ended well has been told to; one that failed leaves the main container waiting in vain.
        other = pod.container(name)
        if other is not None and other.exit_code not in (None, 0):
            return _ended(other)
    return known("PodDeleted", f"pod {pod.name} was deleted") if pod.deleting else None


def failed_untrusted(pod: PodView) -> Failure | None:
    """Return why an untrusted pod is of no further use; None = it lives or starts."""
    if whole := _failed_pod(pod, untrusted=True):
        return whole
    for box in pod.containers:
        if box.exit_code is None or (box.name == "receive" and box.exit_code == 0):
            continue
        if box.reason == "OOMKilled":
            return known(
                f"{_whose(pod)}OutOfMemory", f"container {box.name} of pod {pod.name} went over its memory limit"
            )
        return known("SandboxExited", f"container {box.name} of pod {pod.name} exited {box.exit_code}: {box.message}")
    return known("PodDeleted", f"pod {pod.name} was deleted") if pod.deleting else None


def failed_job(job: JobView) -> Failure | None:
    """Return why a Job will give no further outcome."""
    if job.failed:
        reason = job.failed if job.failed == "DeadlineExceeded" else "JobFailed"
        return known(reason, f"Job {job.name}: {job.failed}")
    return known("PodDeleted", f"Job {job.name} was deleted") if job.deleting else None


def blocked(pod: PodView) -> tuple[str, str] | None:
    """Return what keeps a pod from starting and how to mend it."""
    if pod.unschedulable:
        fix = "free resources, add a node, or lower `parallelism`"
        return "Unschedulable", f"pod {pod.name} fits on no node: {pod.unschedulable}; {fix}"
    for box in pod.containers:
        if box.waiting in BLOCKED:
            # The kubelet alternates between the two: one reason, so that it is told once.
            reason = "ImagePullBackOff" if box.waiting == "ErrImagePull" else box.waiting
            where = f"pod {pod.name}, container {box.name}"
            return reason, f"{where}: {box.message or box.waiting}; {BLOCKED[box.waiting]}"
    return None


def _failed_pod(pod: PodView, *, untrusted: bool) -> Failure | None:
    """Judge what concerns the pod as a whole."""
    if pod.disruption:
        return known(pod.disruption, f"pod {pod.name} was disrupted")
    if pod.phase != "Failed" or not pod.reason:
        return None
    if pod.reason == "Evicted" and untrusted:
        # No DisruptionTarget: the pod went over a limit of its own, not the node's.
        return known(f"{_whose(pod)}OverLimit", f"pod {pod.name} was evicted for going over a limit of its own")
    return known(pod.reason, f"pod {pod.name} failed")


def _whose(pod: PodView) -> str:
    """Tell a sandbox, whose agent can go on, from a sut."""
    return "Sandbox" if pod.role == "sandbox" else "Sut"


def _ended(box: ContainerView) -> Failure:
    """Judge a driver's container that has ended without an outcome."""
    if box.reason == "OOMKilled":
        return known("DriverOutOfMemory", f"container {box.name} went over its memory limit")
    try:
        said = OUTCOME.validate_json(box.message)
    except ValidationError:
        return _exited(box)
    return known(said.reason, said.message) if isinstance(said, Failed) else _exited(box)


def _exited(box: ContainerView) -> Failure:
    reasons = {EXIT_RETRY: "DriverAskedForRetry", EXIT_TASK: "TaskAtFault", 0: "NoOutcome"}
    reason = reasons.get(box.exit_code or 0, f"DriverExited{box.exit_code}")
    return known(reason, f"container {box.name} exited {box.exit_code}: {box.message}")
