"""A run's world → what to do now, in order. Pure: same world, same actions; asking again is harmless.

A run is accepted once (suite and packages are pinned), registered at the hub, expanded into Trials, counted. Trials
do all the work; a run never touches a pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controller.accept import Packages, Problem, judge, suite_digest
from controller.actions import Action, Create, Emit, Finalize, Note, Register, Remove, SetStatus, Wait
from controller.cluster import Kind, Object
from controller.run_status import counted, indexes, is_over, with_acceptance, with_problem
from controller.settings import Settings
from controller.views import MOMENT, RunView, SuiteView, TrialView
from wire.names import (
    API_VERSION,
    FINALIZER,
    LABEL_ARM,
    LABEL_RUN,
    LABEL_TASK,
    MANAGED_BY,
    label_value,
    trial_name,
)
from wire.run import BenchmarkRunStatus
from wire.trial import RunRef, TrialSpec


@dataclass(frozen=True, kw_only=True)
class RunWorld:
    """Everything a run's planner may look at."""

    run: RunView
    suite: SuiteView | None
    trials: Mapping[int, TrialView]
    """By index."""
    packages: Packages
    now: datetime
    settings: Settings
    registered: bool = False
    """The hub knows this generation of the spec."""
    note: Note | None = None
    """What keeps one of its trials from going on."""
    written: datetime | None = None
    """When the status was last written by this process."""


def plan(world: RunWorld) -> list[Action]:
    """Return what to do now for one run."""
    run = world.run
    if run.meta.deleting:
        return _teardown(world)
    if not run.meta.finalized:
        return [Finalize(held=True)]
    if run.status.suite_digest is None:
        return _accept(world)
    register: list[Action] = [] if world.registered else [Register()]
    created = _missing(world)
    if isinstance(created, Problem):
        return [*register, *_problem(world, created)]
    # Counting first: when the hub cannot be told, the run still shows why.
    return [*_count(world), *register, *created, *_expire(world)]


def cells(run: RunView) -> int:
    """Return how many trials the run has now."""
    return len(run.status.packages) * len(run.spec.arms) * run.spec.repetitions


def needs_packages(world: RunWorld) -> bool:
    """Tell whether the hub must be asked about packages before this world can be planned."""
    run = world.run
    if run.meta.deleting or not run.meta.finalized:
        return False
    return run.status.suite_digest is None or any(_sibling(world, task) is None for task in run.status.packages)


def _accept(world: RunWorld) -> list[Action]:
    verdict = judge(world.run, world.suite, world.packages)
    if isinstance(verdict, Problem):
        return _problem(world, verdict)
    pinned = {"suite_digest": verdict.suite_digest, "packages": verdict.packages}
    pending = len(verdict.packages) * len(world.run.spec.arms) * world.run.spec.repetitions
    return [SetStatus(status=with_acceptance(world.run, pending, world.now).model_copy(update=pinned))]


def _problem(world: RunWorld, problem: Problem) -> list[Action]:
    status = with_problem(world.run, problem, world.now)
    # A suite that appears wakes the run; only what nobody tells us about is asked for again.
    again: list[Action] = [Wait(seconds=world.settings.blocked_retry_seconds)] if problem.passing else []
    if status == world.run.status:
        return again
    event = Emit(reason=problem.reason, message=problem.message, warning=True)
    return [SetStatus(status=status), event, *again]


def _missing(world: RunWorld) -> list[Action] | Problem:
    """Create the trials that do not exist and never ended."""
    run, actions = world.run, list[Action]()
    if run.spec.cancel:
        return actions
    done = indexes(run.status.completed_indexes)
    for index in range(cells(run)):
        if index in world.trials or index in done:
            continue
        body = _trial(world, index)
        if isinstance(body, Problem):
            return body
        actions.append(Create(kind=Kind.Trial, body=body))
    return actions


def _trial(world: RunWorld, index: int) -> Object | Problem:
    """Return the body of a run's trial; growing repetitions only adds indexes."""
    # Sorted: the API server does not keep the order of a map's keys.
    run, tasks, arms = world.run, sorted(world.run.status.packages), world.run.spec.arms
    rest, arm = divmod(index, len(arms))
    repetition, task = divmod(rest, len(tasks))
    pinned = _pinned(world, tasks[task])
    if isinstance(pinned, Problem):
        return pinned
    spec = TrialSpec(
        run_ref=RunRef(name=run.meta.name, uid=run.meta.uid),
        index=index,
        task=tasks[task],
        package=run.status.packages[tasks[task]],
        image=pinned[0],
        memory_mb=pinned[1],
        arm=arms[arm],
        repetition=repetition + 1,
        user=run.spec.user,
        limits=run.spec.limits,
        evaluation=run.spec.evaluation,
        formal=run.spec.formal,
    )
    return _body(run, spec)


def _pinned(world: RunWorld, task: str) -> tuple[str | None, int] | Problem:
    """Return a task's image and memory as they were at acceptance."""
    if sibling := _sibling(world, task):
        return sibling.spec.image, sibling.spec.memory_mb
    suite, manifest = world.suite, world.packages.manifests.get(world.run.status.packages[task])
    if suite is None or suite_digest(suite) != world.run.status.suite_digest:
        message = f"suite {world.run.spec.suite!r} has changed since it was accepted; copy the run under a new name"
        return Problem(reason="SuiteChanged", message=message)
    if manifest is None:
        message = world.packages.unreachable or f"the hub no longer has the package of task {task!r}"
        return Problem(reason="HubUnreachable", message=message, passing=True)
    image = next(entry.image for entry in suite.spec.tasks if entry.name == task)
    return image, manifest.task.memory_mb


def _sibling(world: RunWorld, task: str) -> TrialView | None:
    return next((trial for trial in world.trials.values() if trial.spec.task == task), None)


def _body(run: RunView, spec: TrialSpec) -> Object:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "BenchmarkRun",
        "name": run.meta.name,
        "uid": run.meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {
        MANAGED_BY[0]: MANAGED_BY[1],
        LABEL_RUN: label_value(run.meta.name),
        LABEL_TASK: spec.task,
        LABEL_ARM: spec.arm.name,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Trial",
        "metadata": {
            "name": trial_name(run.meta.name, run.meta.uid, spec.index),
            "namespace": run.meta.namespace,
            "labels": labels,
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": spec.dump(),
    }


def _count(world: RunWorld) -> list[Action]:
    """Write counters and conditions when they have changed; mere counters not too often."""
    run = world.run
    status = counted(run, world.trials.values(), cells(run), world.note, world.now)
    if status == run.status:
        return []
    if world.written and _matters(status) == _matters(run.status):
        due = world.written + timedelta(seconds=world.settings.status_interval_seconds)
        if (left := (due - world.now).total_seconds()) > 0:
            return [Wait(seconds=left)]
    over: list[Action] = []
    if is_over(status) and not is_over(run.status):
        over = [Emit(reason="Finished", message=f"all {status.trials.total} trials have ended")]
    if world.note and world.note.reason not in {c.reason for c in run.status.conditions}:
        over.append(Emit(reason=world.note.reason, message=world.note.message, warning=True))
    return [SetStatus(status=status), *over]


def _matters(status: BenchmarkRunStatus) -> object:
    return status.phase, [(c.type, c.status, c.reason) for c in status.conditions], status.observed_generation


def _expire(world: RunWorld) -> list[Action]:
    """Delete the run some time after its end, when it says so."""
    run, ttl = world.run, world.run.spec.ttl_seconds_after_finished
    if ttl is None or run.status.completion_time is None:
        return []
    left = (MOMENT.validate_python(run.status.completion_time) + timedelta(seconds=ttl) - world.now).total_seconds()
    if left > 0:
        return [Wait(seconds=left)]
    return [Remove(kind=Kind.BenchmarkRun, name=run.meta.name, uid=run.meta.uid)]


def _teardown(world: RunWorld) -> list[Action]:
    """Delete the trials, and let the run go with the last of them."""
    if not world.run.meta.finalized:
        return []
    if not world.trials:
        return [Finalize(held=False)]
    alive = [trial for trial in world.trials.values() if not trial.meta.deleting]
    return [Remove(kind=Kind.Trial, name=trial.name, uid=trial.meta.uid) for trial in alive]
