"""Kubernetes objects as small frozen values: what planners and manifests read. No I/O, no decisions.

`TrialView` also knows the deterministic names of its children, so names are spelled in one place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from controller.cluster import Object
from wire.names import FINALIZER, LABEL_ATTEMPT, LABEL_ROLE, pod_name
from wire.run import BenchmarkRunSpec, BenchmarkRunStatus
from wire.suite import TaskSuiteSpec, TaskSuiteStatus
from wire.trial import TrialSpec, TrialStatus

MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What every object has."""

    namespace: str
    name: str
    uid: str
    generation: int = 0
    deleting: datetime | None = None
    finalized: bool = False
    """Holds our finalizer."""


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """A Trial as it is."""

    meta: Meta
    spec: TrialSpec
    status: TrialStatus

    @property
    def name(self) -> str:
        return self.meta.name

    def child(self, role: str, number: int | None = None) -> str:
        """Return the name of a child of the current attempt."""
        return pod_name(self.name, self.status.attempt, role, number)

    @property
    def sandbox(self) -> str:
        return pod_name(self.name, self.status.sandbox, "sandbox")

    @property
    def session(self) -> str:
        return self.child("session", self.status.conversation)

    @property
    def sut(self) -> str:
        return self.child("sut", self.status.conversation)

    @property
    def gate(self) -> str:
        return self.child("gate", self.status.conversation)

    @property
    def shard_suts(self) -> tuple[str, ...]:
        return tuple(self.child(f"sut-e{shard}") for shard in range(self.spec.evaluation.shards))

    @property
    def job(self) -> str:
        return self.child("evaluate")

    @property
    def secrets(self) -> str:
        return self.child("secrets")

    @property
    def policy(self) -> str:
        return f"{self.name}-pair"


@dataclass(frozen=True, kw_only=True)
class ContainerView:
    """A container's state; `exit_code` is None until it has ended."""

    name: str
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    waiting: str = ""
    """Why it does not start, such as `ImagePullBackOff`."""


@dataclass(frozen=True, kw_only=True)
class PodView:
    """A pod as a planner sees it."""

    name: str
    uid: str
    owner: str
    attempt: int
    role: str
    shard: int | None = None
    ip: str = ""
    phase: str = "Pending"
    reason: str = ""
    deleting: bool = False
    disruption: str = ""
    """Reason of the DisruptionTarget condition."""
    unschedulable: str = ""
    """The scheduler's message when no node fits."""
    containers: tuple[ContainerView, ...] = ()

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> ContainerView | None:
        """Return the container of this name as far as it has a state."""
        return next((c for c in self.containers if c.name == name), None)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A Job as a planner sees it."""

    name: str
    uid: str
    attempt: int
    deleting: bool = False
    failed: str = ""
    """Reason of the Failed condition."""
    complete: bool = False


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A BenchmarkRun as it is."""

    meta: Meta
    spec: BenchmarkRunSpec
    status: BenchmarkRunStatus


@dataclass(frozen=True, kw_only=True)
class SuiteView:
    """A TaskSuite as it is."""

    meta: Meta
    spec: TaskSuiteSpec
    status: TaskSuiteStatus


@dataclass(frozen=True, kw_only=True)
class Children:
    """A trial's own pods and Jobs by name, and its Jobs' pods by name."""

    pods: Mapping[str, PodView] = field(default_factory=dict)
    jobs: Mapping[str, JobView] = field(default_factory=dict)
    shard_pods: Mapping[str, PodView] = field(default_factory=dict)


def meta_of(found: Object) -> Meta:
    """Read an object's metadata."""
    meta = found["metadata"]
    return Meta(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        deleting=_moment(meta.get("deletionTimestamp")),
        finalized=FINALIZER in (meta.get("finalizers") or ()),
    )


def trial_of(found: Object) -> TrialView:
    """Read a Trial; raises pydantic's ValidationError when somebody wrote what we do not."""
    return TrialView(
        meta=meta_of(found),
        spec=TrialSpec.model_validate(found["spec"]),
        status=TrialStatus.model_validate(found.get("status") or {}),
    )


def run_of(found: Object) -> RunView:
    """Read a BenchmarkRun; raises pydantic's ValidationError."""
    return RunView(
        meta=meta_of(found),
        spec=BenchmarkRunSpec.model_validate(found["spec"]),
        status=BenchmarkRunStatus.model_validate(found.get("status") or {}),
    )


def suite_of(found: Object) -> SuiteView:
    """Read a TaskSuite; raises pydantic's ValidationError."""
    return SuiteView(
        meta=meta_of(found),
        spec=TaskSuiteSpec.model_validate(found["spec"]),
        status=TaskSuiteStatus.model_validate(found.get("status") or {}),
    )


def pod_of(found: Object) -> PodView:
    """Read a pod's state."""
    meta, status = found["metadata"], found.get("status") or {}
    labels = meta.get("labels") or {}
    index = labels.get(COMPLETION_INDEX) or (meta.get("annotations") or {}).get(COMPLETION_INDEX)
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    scheduled, disrupted = conditions.get("PodScheduled", {}), conditions.get("DisruptionTarget", {})
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        owner=owner_of(found),
        attempt=int(labels.get(LABEL_ATTEMPT, 0)),
        role=labels.get(LABEL_ROLE, ""),
        shard=None if index is None else int(index),
        ip=status.get("podIP") or "",
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or "",
        deleting=bool(meta.get("deletionTimestamp")),
        disruption=disrupted.get("reason", "Disrupted") if disrupted.get("status") == "True" else "",
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
        containers=tuple(_container(c) for c in _container_statuses(status)),
    )


def job_of(found: Object) -> JobView:
    """Read a Job's state."""
    meta = found["metadata"]
    conditions = (found.get("status") or {}).get("conditions") or ()
    ended = {c["type"]: c.get("reason") or c["type"] for c in conditions if c.get("status") == "True"}
    return JobView(
        name=meta["name"],
        uid=meta["uid"],
        attempt=int((meta.get("labels") or {}).get(LABEL_ATTEMPT, 0)),
        deleting=bool(meta.get("deletionTimestamp")),
        failed=ended.get("Failed", ended.get("FailureTarget", "")),
        complete="Complete" in ended,
    )


def owner_of(found: Object) -> str:
    """Return the UID of the owner that controls an object, or nothing."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _container_statuses(status: Object) -> list[dict[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _container(status: dict[str, Any]) -> ContainerView:
    state = status.get("state") or {}
    ended, waiting = state.get("terminated"), state.get("waiting") or {}
    if ended is None:
        return ContainerView(
            name=status["name"], waiting=waiting.get("reason") or "", message=waiting.get("message") or ""
        )
    return ContainerView(
        name=status["name"],
        exit_code=ended.get("exitCode", 0),
        reason=ended.get("reason") or "",
        message=ended.get("message") or "",
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else MOMENT.validate_python(text)
