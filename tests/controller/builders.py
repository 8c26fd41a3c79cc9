"""One builder per noun: trials, pods and worlds for planner tests."""

import json
from typing import Any

from controller.views import Children, ContainerView, JobView, Meta, PodView, TrialView
from controller.world import World
from tests.controller.fakes import CANDIDATE, NAMESPACE, PACKAGE, START, settings
from wire.outcome import Checked, Delivered, Evaluated, Failed
from wire.run import AgentKind, AgentSpec, Arm, Evaluation, Limits, UserSpec
from wire.trial import EndReason, Phase, RunRef, Submission, TrialSpec, TrialStatus

SUBMISSION = Submission(digest=CANDIDATE, gate_passed=True, end_reason=EndReason.GATE_PASSED)


def trial_spec(**changes: Any) -> TrialSpec:
    """Return a trial's spec."""
    whole: dict[str, Any] = {
        "run_ref": RunRef(name="quick", uid="run-uid"),
        "index": 0,
        "task": "lease",
        "package": PACKAGE.digest(),
        "arm": Arm(name="oracle", agent=AgentSpec(kind=AgentKind.ORACLE)),
        "repetition": 1,
        "user": UserSpec(),
        "limits": Limits(),
        "evaluation": Evaluation(shards=1),
        "formal": False,
    }
    return TrialSpec.model_validate(whole | changes)


def trial(status: TrialStatus | None = None, *, deleting: bool = False, **spec: Any) -> TrialView:
    """Return a trial called `t`."""
    meta = Meta(namespace=NAMESPACE, name="t", uid="t-uid", deleting=START if deleting else None, finalized=True)
    return TrialView(meta=meta, spec=trial_spec(**spec), status=status or TrialStatus())


def status(phase: Phase = Phase.ADMITTED, **changes: Any) -> TrialStatus:
    """Return the status of an admitted trial in its first attempt."""
    whole = {"phase": phase, "admitted": True, "attempt": 1, "sandbox": 1, "conversation": 1, "pods": FENCED}
    return TrialStatus.model_validate(whole | changes)


FENCED = {"t-1-secrets": "s-uid", "t-pair": "p-uid"}
"""The recorded Secret and policy of the first attempt."""


def pod(name: str, *containers: ContainerView, **changes: Any) -> PodView:
    """Return a pod of trial `t`; its attempt and role are read from its name."""
    parts = name.split("-")
    whole: dict[str, Any] = {
        "name": name,
        "uid": f"{name}-uid",
        "owner": "t-uid",
        "attempt": int(parts[1]),
        "role": parts[2],
        "ip": "10.0.0.1",
        "phase": "Running",
        "containers": containers,
    }
    return PodView(**(whole | changes))


def shard(index: int, *containers: ContainerView, **changes: Any) -> PodView:
    """Return a pod of the evaluation's Job."""
    return pod(f"t-1-evaluate-{index}", *containers, owner="t-1-evaluate-uid", shard=index, **changes)


def job(name: str = "t-1-evaluate", **changes: Any) -> JobView:
    """Return a Job."""
    whole: dict[str, Any] = {"name": name, "uid": f"{name}-uid", "attempt": int(name.split("-")[1])}
    return JobView(**(whole | changes))


def exited(
    container: str, outcome: Delivered | Checked | Evaluated | Failed | None = None, code: int = 0, reason: str = ""
) -> ContainerView:
    """Return a container that has ended."""
    message = "" if outcome is None else json.dumps(outcome.dump())
    return ContainerView(name=container, exit_code=code, message=message, reason=reason)


def world(seen: TrialView, *pods: PodView, **changes: Any) -> World:
    """Return a trial's world; pods owned by a Job are its shards."""
    jobs = changes.pop("jobs", ())
    own = {found.name: found for found in pods if found.owner == seen.meta.uid}
    shards = {found.name: found for found in pods if found.owner != seen.meta.uid}
    children = Children(pods=own, jobs={found.name: found for found in jobs}, shard_pods=shards)
    whole: dict[str, Any] = {
        "trial": seen,
        "children": children,
        "now": START,
        "settings": settings(),
        "registered": (seen.status.attempt, seen.status.sandbox),
    }
    return World(**(whole | changes))
