"""One pass over one Trial: observe, plan, execute in order. Errors fly to the engine, which asks again later."""

from typing import Any

import structlog
from pydantic import ValidationError

from controller import execute
from controller.actions import (
    Action,
    Confirm,
    Create,
    Delete,
    Emit,
    Finalize,
    Note,
    Register,
    SetStatus,
    Settle,
    Wait,
)
from controller.admit import wider
from controller.cluster import Kind, Object
from controller.plan_trial import plan
from controller.state import PUMP, Key, Memory, Ports
from controller.status import settled
from controller.views import Children, JobView, PodView, TrialView, job_of, meta_of, owner_of, pod_of
from controller.world import World
from wire.errors import Broken
from wire.journal import Settlement, TrialRecord
from wire.trial import Phase, TrialStatus

LOG = structlog.get_logger()
COMING_UP = frozenset({Phase.PENDING, Phase.ADMITTED})


class Trials:
    """Reconciles Trials."""

    def __init__(self, ports: Ports, memory: Memory) -> None:
        self._ports, self._memory = ports, memory

    async def reconcile(self, key: Key) -> None:
        """Do one pass; what remains to be done later is queued."""
        found = self._memory.store.get(Kind.Trial, key[1], key[2])
        if found is None:
            return
        try:
            world = self._observe(found)
        except ValidationError:
            if not meta_of(found).deleting:
                raise
            # What cannot be read cannot be settled either; its pods are deleted as what it owned.
            await let_go(self._ports, self._memory, Kind.Trial, found)
            return
        if world is None:
            return
        await _Pass(self._ports, self._memory, key, world, found).run(plan(world))

    def _observe(self, found: Object) -> World | None:
        """Return the trial's world; None = its run is not known, then the trial is the garbage collector's."""
        memory, trial = self._memory, self._memory.store.trial(found)
        run = memory.store.get(Kind.BenchmarkRun, trial.meta.namespace, trial.spec.run_ref.name)
        if (run is None or run["metadata"]["uid"] != trial.spec.run_ref.uid) and not trial.meta.deleting:
            return None
        wants = {} if run is None else run["spec"]
        return World(
            trial=trial,
            children=self._children(trial),
            now=self._ports.clock(),
            settings=self._ports.settings,
            suspended=is_suspended(wants, trial),
            cancelled=bool(wants.get("cancel")) or trial.spec.cancel,
            registered=memory.registered.get(trial.meta.uid),
            made=memory.made.get(trial.meta.uid, {}),
            lost=frozenset(memory.lost & set(trial.status.pods.values())),
        )

    def _children(self, trial: TrialView) -> Children:
        """Return the trial's own pods and Jobs, and its Jobs' pods; namesakes of another owner are left out."""
        place, uid = (trial.meta.namespace, trial.name), trial.meta.uid
        jobs = [self._job(found) for found in self._memory.store.children(Kind.Job, *place) if _is_of(found, uid)]
        pods = [self._pod(found) for found in self._memory.store.children(Kind.Pod, *place)]
        return Children(
            pods={pod.name: pod for pod in pods if pod.owner == uid},
            jobs={job.name: job for job in jobs},
            shard_pods={pod.name: pod for pod in pods if pod.shard is not None and pod.owner != uid},
        )

    def _pod(self, found: Object) -> PodView:
        return pod_of(self._as_deleted(found))

    def _job(self, found: Object) -> JobView:
        return job_of(self._as_deleted(found))

    def _as_deleted(self, found: Object) -> Object:
        """Show a child whose deletion we have asked for as being deleted, before the watch says so."""
        meta = found["metadata"]
        if meta["uid"] not in self._memory.deleted or meta.get("deletionTimestamp"):
            return found
        return {**found, "metadata": {**meta, "deletionTimestamp": "1970-01-01T00:00:00Z"}}


class _Pass:
    """The execution of one trial's plan."""

    def __init__(self, ports: Ports, memory: Memory, key: Key, world: World, found: Object) -> None:
        self._ports, self._memory, self._key = ports, memory, key
        self._world, self._trial, self._current = world, world.trial, found
        self._note: Note | None = None

    async def run(self, actions: list[Action]) -> None:
        """Execute in order; anything done may make more possible, so look again at once."""
        moved = False
        for action in actions:
            moved = await self._do(action) or moved
        set_note(self._memory, self._trial, self._note)
        if moved:
            self._memory.queue.add(self._key)

    async def _do(self, action: Action) -> bool:
        """Execute one action and tell whether it changed what the planner sees."""
        match action:
            case Create():
                return await self._create(action)
            case Delete():
                return await self._delete(action)
            case Confirm():
                return await self._confirm(action)
            case SetStatus(status=TrialStatus() as status):
                return await self._set_status(status)
            case Settle(settlement=settlement):
                return await self._settle(settlement)
            case _:
                return await self._do_rest(action)

    async def _do_rest(self, action: Action) -> bool:
        match action:
            case Register():
                await self._register()
            case Finalize(held=held):
                await self._finalize(held)
                return held
            case Wait(seconds=seconds):
                self._memory.queue.add(self._key, seconds)
            case Note():
                self._note = action
            case Emit():
                self._ports.events.record(self._current, action, self._world.now)
            case _:
                raise Broken(f"a trial's plan holds {action}")
        return False

    async def _create(self, action: Create) -> bool:
        uid = self._trial.meta.uid
        made = await execute.create(self._ports.cluster, action.kind, action.body, uid)
        LOG.info("created", kind=action.kind.name, name=action.name, trial=self._trial.name)
        if action.kind in (Kind.Pod, Kind.Job):
            self._memory.store.apply(action.kind, made)
        else:
            self._memory.made.setdefault(uid, {})[action.name] = made["metadata"]["uid"]
        return True

    async def _delete(self, action: Delete) -> bool:
        meta = {"namespace": self._trial.meta.namespace, "name": action.name, "uid": action.uid}
        owner = self._trial.meta.uid
        await execute.delete(self._ports.cluster, action.kind, {"metadata": meta}, owner=owner, at_once=action.at_once)
        LOG.info("deleted", kind=action.kind.name, name=action.name, trial=self._trial.name)
        if action.kind in (Kind.Pod, Kind.Job):
            self._memory.deleted.add(action.uid)
        return False

    async def _confirm(self, action: Confirm) -> bool:
        found = await self._ports.cluster.get(action.kind, self._trial.meta.namespace, action.name)
        if found is None or found["metadata"]["uid"] != action.uid:
            self._memory.lost.add(action.uid)
            return True
        self._memory.store.apply(action.kind, found)
        self._memory.queue.add(self._key, 1.0)
        return False

    async def _set_status(self, status: TrialStatus) -> bool:
        before = self._trial.status
        self._current = await execute.set_status(self._ports.cluster, Kind.Trial, self._current, status)
        self._memory.store.apply(Kind.Trial, self._current)
        watch_progress(self._ports, self._memory, self._trial, before, status)
        return True

    async def _register(self) -> None:
        trial, status = self._trial, self._trial.status
        record = TrialRecord(
            uid=trial.meta.uid,
            name=trial.name,
            run_uid=trial.spec.run_ref.uid,
            spec=trial.spec,
            attempt=status.attempt,
            sandbox=status.sandbox,
        )
        await self._ports.hub.put_trial(record)
        self._memory.registered[trial.meta.uid] = (status.attempt, status.sandbox)

    async def _settle(self, settlement: Settlement) -> bool:
        answer = await self._ports.hub.settle(self._trial.meta.uid, settlement)
        phase = answer.phase or settlement.phase
        if phase == "Graded" and answer.result is None:
            raise Broken(f"the hub has settled trial {self._trial.name} without a verdict")
        # The first settlement counts: after a race (a cancel beside the last verdict) ours follows it.
        if phase != settlement.phase:
            settlement = Settlement(phase=phase, reason=phase, message="settled before; the first settlement counts")
        status = settled(self._trial.status, settlement, answer.result, self._world.now)
        return await self._set_status(status)

    async def _finalize(self, held: bool) -> None:
        self._current = await execute.finalize(self._ports.cluster, Kind.Trial, self._current, held=held)
        if not held and self._current["metadata"].get("deletionTimestamp"):
            self._memory.store.discard(Kind.Trial, self._current)
        else:
            self._memory.store.apply(Kind.Trial, self._current)


async def let_go(ports: Ports, memory: Memory, kind: Kind, found: Object) -> None:
    """Release our finalizer of a deleted object that cannot be read: nothing waits for ever for us."""
    if meta_of(found).finalized:
        LOG.warning("let go unread", kind=kind.name, name=found["metadata"]["name"])
        memory.store.discard(kind, await execute.finalize(ports.cluster, kind, found, held=False))


def is_suspended(wants: Any, trial: TrialView) -> bool:
    """Tell whether the trial must hold no pods; `wants` is its run's spec as it is stored."""
    return bool(wants.get("suspend")) or trial.spec.arm.name in (wants.get("suspendedArms") or ()) or trial.spec.suspend


def set_note(memory: Memory, trial: TrialView, note: Note | None) -> None:
    """Keep what holds a trial up, and wake its run when that has changed."""
    if memory.notes.get(trial.meta.uid) == note:
        return
    if note is None:
        del memory.notes[trial.meta.uid]
    else:
        memory.notes[trial.meta.uid] = note
        memory.widths[(trial.spec.run_ref.uid, trial.spec.task)] = 1
    memory.queue.add(("run", trial.meta.namespace, trial.spec.run_ref.name))


def watch_progress(ports: Ports, memory: Memory, trial: TrialView, before: TrialStatus, after: TrialStatus) -> None:
    """Count a move, and widen or narrow the slow start of the trial's run and task."""
    group = (trial.spec.run_ref.uid, trial.spec.task)
    if after.failures > before.failures:
        last = after.attempts[-1]
        ports.metrics.failures.labels(last.failure_class.value, last.reason).inc()
        memory.widths[group] = 1
    elif before.phase in COMING_UP and after.phase not in COMING_UP:
        memory.widths[group] = wider(memory.widths.get(group, 1))
    if before.phase is not after.phase:
        ports.metrics.moves.labels(after.phase.value).inc()
        LOG.info("trial moved", trial=trial.name, phase=after.phase.value, attempt=after.attempt)
        memory.queue.add(PUMP)


def _is_of(found: Object, uid: str) -> bool:
    return owner_of(found) == uid
