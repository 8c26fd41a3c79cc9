"""One pass over one BenchmarkRun, and the pump that admits trials of all runs."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog
from pydantic import ValidationError

from controller import execute, manifests
from controller.accept import Packages, wanted
from controller.actions import Action, Create, Emit, Finalize, Note, Register, Remove, SetStatus, Wait
from controller.admit import Load, Waiting, choose
from controller.cluster import Conflict, Kind, Object
from controller.packages import ask
from controller.plan_run import RunWorld, needs_packages, plan
from controller.run_status import unreadable
from controller.state import PUMP, Key, Memory, Ports
from controller.status import admitted, is_holding
from controller.trials import is_suspended, let_go, watch_progress
from controller.views import RunView, SuiteView, TrialView, meta_of, run_of, suite_of
from wire.errors import Broken
from wire.journal import RunRecord
from wire.run import BenchmarkRunStatus
from wire.trial import Phase

LOG = structlog.get_logger()


class Runs:
    """Reconciles BenchmarkRuns."""

    def __init__(self, ports: Ports, memory: Memory) -> None:
        self._ports, self._memory = ports, memory

    async def reconcile(self, key: Key) -> None:
        """Do one pass; what remains to be done later is queued."""
        found = self._memory.store.get(Kind.BenchmarkRun, key[1], key[2])
        if found is None:
            return
        try:
            run = run_of(found)
        except ValidationError as error:
            if meta_of(found).deleting:
                # Its trials are deleted as what it owned, and each is let go by its own pass.
                await let_go(self._ports, self._memory, Kind.BenchmarkRun, found)
            else:
                await self._refuse(found, error)
            return
        world = await self._observe(run)
        current, moved = found, False
        for action in plan(world):
            current, did = await self._do(action, world, current, key)
            moved = moved or did
        if moved:
            self._memory.queue.add(key)

    async def _observe(self, run: RunView) -> RunWorld:
        memory, place = self._memory, (run.meta.namespace, run.spec.suite)
        suite = memory.store.get(Kind.TaskSuite, *place)
        trials = [memory.store.trial(found) for found in memory.store.trials(run.meta.uid)]
        world = RunWorld(
            run=run,
            suite=None if suite is None else suite_of(suite),
            trials={trial.spec.index: trial for trial in trials},
            packages=Packages(manifests={}),
            now=self._ports.clock(),
            settings=self._ports.settings,
            registered=memory.registered.get(run.meta.uid) == (run.meta.generation, 0),
            note=_note(memory, run.meta.uid, trials),
            written=memory.written.get(run.meta.uid),
        )
        return await self._with_packages(world) if needs_packages(world) else world

    async def _with_packages(self, world: RunWorld) -> RunWorld:
        """Ask the hub about the packages that the run's tasks need."""
        known = set(self._memory.manifests)
        packages = await ask(self._ports, self._memory, _digests(world.run, world.suite))
        if set(self._memory.manifests) != known:
            # Nobody else tells a suite that its package has come.
            self._memory.queue.add(("suite", world.run.meta.namespace, world.run.spec.suite))
        return replace(world, packages=packages)

    async def _do(self, action: Action, world: RunWorld, current: Object, key: Key) -> tuple[Object, bool]:
        """Execute one action; return the run as it is now and whether the planner may have more to do."""
        cluster, memory = self._ports.cluster, self._memory
        match action:
            case Create(kind=kind, body=body):
                memory.store.apply(kind, await execute.create(cluster, kind, body, world.run.meta.uid))
                return current, True
            case SetStatus(status=BenchmarkRunStatus() as status):
                current = await execute.set_status(cluster, Kind.BenchmarkRun, current, status)
                memory.written[world.run.meta.uid] = world.now
                memory.store.apply(Kind.BenchmarkRun, current)
                return current, True
            case Finalize(held=held):
                current = await execute.finalize(cluster, Kind.BenchmarkRun, current, held=held)
                self._keep(current, held)
                return current, held
            case Wait(seconds=seconds):
                memory.queue.add(key, seconds)
            case Emit():
                self._ports.events.record(current, action, world.now)
            case _:
                await self._do_rest(action, world)
        return current, False

    async def _do_rest(self, action: Action, world: RunWorld) -> None:
        meta = world.run.meta
        match action:
            case Register():
                await self._register(world.run)
            case Remove(kind=kind, name=name, uid=uid):
                known = {"metadata": {"namespace": meta.namespace, "name": name, "uid": uid}}
                if uid not in self._memory.deleted:
                    await self._ports.cluster.delete(kind, known)
                    self._memory.deleted.add(uid)
            case _:
                raise Broken(f"a run's plan holds {action}")

    def _keep(self, current: Object, held: bool) -> None:
        if not held and current["metadata"].get("deletionTimestamp"):
            self._memory.store.discard(Kind.BenchmarkRun, current)
        else:
            self._memory.store.apply(Kind.BenchmarkRun, current)

    async def _register(self, run: RunView) -> None:
        """Fence the namespace before the first pod, and tell the hub about the run."""
        namespace = run.meta.namespace
        if namespace not in self._memory.fenced:
            for policy in manifests.namespace_policies(self._ports.settings, namespace):
                await execute.ensure(self._ports.cluster, Kind.NetworkPolicy, policy)
            self._memory.fenced.add(namespace)
        record = RunRecord(uid=run.meta.uid, name=run.meta.name, namespace=namespace, spec=run.spec.dump())
        await self._ports.hub.put_run(record)
        self._memory.registered[run.meta.uid] = (run.meta.generation, 0)
        self._memory.notes.pop(run.meta.uid, None)

    async def _refuse(self, found: Object, error: ValidationError) -> None:
        """Say what is wrong with a run that cannot even be read."""
        first = error.errors(include_url=False)[0]
        message = f"spec.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        status = BenchmarkRunStatus.model_validate(found.get("status") or {})
        after = unreadable(meta_of(found), status, message, self._ports.clock())
        if after != status:
            current = await execute.set_status(self._ports.cluster, Kind.BenchmarkRun, found, after)
            self._memory.store.apply(Kind.BenchmarkRun, current)
            emit = Emit(reason="InvalidSpec", message=message, warning=True)
            self._ports.events.record(current, emit, self._ports.clock())


class Pump:
    """Admits waiting trials of all runs."""

    def __init__(self, ports: Ports, memory: Memory) -> None:
        self._ports, self._memory = ports, memory

    async def reconcile(self, _: Key) -> None:
        """Admit what may start now."""
        runs = self._memory.store.all(Kind.BenchmarkRun)
        loads = [self._load(found) for found in runs]
        room = self._ports.settings.max_running - sum(load.holding for load in loads)
        places = {found["metadata"]["uid"]: found["metadata"]["namespace"] for found in runs}
        for run, waiting in choose(loads, self._memory.widths, room):
            await self._admit(places[run], waiting.name)

    def _readable(self, run_uid: str) -> list[TrialView]:
        """Return a run's trials; one that another release wrote stops its own run, which says so, and no other."""
        trials: list[TrialView] = []
        for found in self._memory.store.trials(run_uid):
            with suppress(ValidationError):
                trials.append(self._memory.store.trial(found))
        return trials

    async def _admit(self, namespace: str, name: str) -> None:
        found = self._memory.store.get(Kind.Trial, namespace, name)
        if found is None:
            return
        trial = self._memory.store.trial(found)
        status = admitted(trial, self._ports.clock())
        try:
            current = await execute.set_status(self._ports.cluster, Kind.Trial, found, status)
        except Conflict:
            self._memory.queue.add(PUMP, 0.2)
            return
        self._memory.store.apply(Kind.Trial, current)
        watch_progress(self._ports, self._memory, trial, trial.status, status)

    def _load(self, found: Object) -> Load:
        """Return what a run holds and wants."""
        wants: dict[str, Any] = found["spec"]
        uid = found["metadata"]["uid"]
        trials = self._readable(uid)
        holding = [trial for trial in trials if is_holding(trial.status)]
        starting: dict[str, int] = {}
        for trial in holding:
            if trial.status.phase is Phase.ADMITTED:
                starting[trial.spec.task] = starting.get(trial.spec.task, 0) + 1
        may = not (wants.get("cancel") or wants.get("suspend") or found["metadata"].get("deletionTimestamp"))
        return Load(
            run=uid,
            seed=wants.get("seed", 0),
            parallelism=wants.get("parallelism", 50),
            holding=len(holding),
            starting=starting,
            waiting=tuple(_waiting(trial) for trial in trials if may and _is_waiting(trial, wants)),
        )


def _is_waiting(trial: TrialView, wants: dict[str, Any]) -> bool:
    status = trial.status
    waits = status.phase is Phase.PENDING and not status.admitted and not trial.meta.deleting
    return waits and not trial.spec.cancel and not is_suspended(wants, trial)


def _waiting(trial: TrialView) -> Waiting:
    spec = trial.spec
    return Waiting(name=trial.name, task=spec.task, repetition=spec.repetition, index=spec.index)


def _digests(run: RunView, suite: SuiteView | None) -> list[str]:
    if run.status.suite_digest is not None:
        return list(run.status.packages.values())
    return [] if suite is None else [task.package for task in wanted(run, suite)]


def _note(memory: Memory, run_uid: str, trials: list[TrialView]) -> Note | None:
    """Return what holds the run or one of its trials up, the same one while it lasts."""
    if note := memory.notes.get(run_uid):
        return note
    for trial in sorted(trials, key=lambda t: t.spec.index):
        if note := memory.notes.get(trial.meta.uid):
            return note
    return None
