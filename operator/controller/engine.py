"""The reconcile loop over the two ports, Cluster and Hub: the kopf shell runs it, and so does local mode.

Level-triggered: a change anywhere only puts keys into the queue; a pass looks at everything and decides anew.
Nothing polls: the queue sleeps until an event or a computed deadline.
"""

import asyncio
from datetime import UTC, datetime
from time import monotonic
from typing import Protocol

import structlog
from pydantic import ValidationError

from controller import execute
from controller.actions import Note
from controller.cluster import Cluster, Conflict, Kind, Object, Rejected
from controller.events import Recorder
from controller.hub import Hub, HubRefused, HubUnreachable
from controller.metrics import Metrics
from controller.reflect import WATCHED, Reflector, Store
from controller.runs import Pump, Runs
from controller.settings import Settings
from controller.state import PUMP, Clock, Key, Memory, Ports
from controller.suites import Suites
from controller.trials import Trials, set_note
from controller.work import Pending
from wire.errors import NotReady, ProctorError
from wire.names import LABEL_TRIAL

LOG = structlog.get_logger()
CONFLICT_SECONDS = 0.2
# A run looks at all its trials: one look for a burst of their changes.
COUNT_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 60.0
STOP_SECONDS = 20.0


def wall_clock() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)  # noqa: TID251 - the shell's clock; tests and planners are given one


class Reconciler(Protocol):
    """Does one pass over one object."""

    async def reconcile(self, key: Key) -> None:
        """Observe, plan, execute; errors fly."""
        ...


class Engine:
    """Reconciles every run and trial of the settings' namespaces."""

    def __init__(
        self,
        cluster: Cluster,
        hub: Hub,
        settings: Settings,
        clock: Clock = wall_clock,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        events = Recorder(cluster, settings.identity)
        self._ports = Ports(
            cluster=cluster, hub=hub, settings=settings, clock=clock, events=events, metrics=self.metrics
        )
        self._count_seconds = min(COUNT_SECONDS, settings.status_interval_seconds)
        self.queue: Pending[Key] = Pending()
        self.store = Store(self._noticed)
        self._memory = Memory(store=self.store, queue=self.queue)
        self.reflectors = [
            Reflector(cluster, self.store, kind, namespace) for namespace in settings.namespaces for kind in WATCHED
        ]
        self._passing: set[asyncio.Task[None]] = set()
        self._reconcilers: dict[str, Reconciler] = {
            "trial": Trials(self._ports, self._memory),
            "run": Runs(self._ports, self._memory),
            "suite": Suites(self._ports, self._memory),
            "pump": Pump(self._ports, self._memory),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then let passes in flight end. A crash of any part ends the whole."""
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(reflector.run()) for reflector in self.reflectors]
            events = group.create_task(self._ports.events.run())
            await self._synced(stop)
            workers = [group.create_task(self._work(stop)) for _ in range(self._ports.settings.workers)]
            await stop.wait()
            for worker in set(workers) - self._passing:
                worker.cancel()
            await asyncio.wait(workers, timeout=STOP_SECONDS)
            for task in (*watches, events, *workers):
                task.cancel()

    def is_synced(self) -> bool:
        """Tell whether every kind has been listed once."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    def touch_run(self, namespace: str, name: str) -> None:
        """Look at a run again: a hint from outside, harmless at any time."""
        self.queue.add(("run", namespace, name))

    def touch_runs(self, namespace: str) -> None:
        """Look at all runs of a namespace again."""
        for run in self.store.all(Kind.BenchmarkRun):
            if run["metadata"]["namespace"] == namespace:
                self.touch_run(namespace, run["metadata"]["name"])

    async def _synced(self, stop: asyncio.Event) -> None:
        """Wait until every kind was listed once, or the end."""
        tasks = [asyncio.create_task(stop.wait()), asyncio.create_task(self._all_synced())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _all_synced(self) -> None:
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def _work(self, stop: asyncio.Event) -> None:
        me = asyncio.current_task()
        assert me is not None, "a worker is a task"
        while not stop.is_set():
            key = await self.queue.take()
            self._passing.add(me)
            try:
                await self._pass(key)
            finally:
                self._passing.discard(me)
                self.queue.done(key)
                self.metrics.queue.set(len(self.queue))

    async def _pass(self, key: Key) -> None:
        """Do one pass; whatever keeps it from ending is asked for again later, never taken for a result."""
        began, outcome = monotonic(), "done"
        try:
            await self._reconcilers[key[0]].reconcile(key)
            self._memory.strikes.pop(key, None)
        except Conflict:
            outcome = "conflict"
            self.queue.add(key, CONFLICT_SECONDS)
        except (ProctorError, ValidationError) as error:
            outcome = self._failed(key, error)
        except Exception:
            outcome = "crashed"
            LOG.exception("pass crashed", key=key)
            self._again(key, LONGEST_RETRY_SECONDS)
        self.metrics.passes.labels(key[0], outcome).inc()
        self.metrics.pass_seconds.labels(key[0]).observe(monotonic() - began)

    def _failed(self, key: Key, error: ProctorError | ValidationError) -> str:
        """Queue the key again and tell the run what holds its trial up."""
        reason = error.reason if isinstance(error, ProctorError) else "Unreadable"
        note = Note(reason=reason, message=str(error))
        if isinstance(error, Rejected):
            reason, message = execute.refusal(error)
            note = Note(reason=reason, message=message)
            self.queue.add(key, self._ports.settings.blocked_retry_seconds)
        elif isinstance(error, NotReady):
            self._again(key, error.retry_seconds)
        else:
            self._again(key, self._ports.settings.blocked_retry_seconds)
        LOG.warning("pass not finished", key=key, reason=reason, error=str(error))
        self._tell(key, note, error)
        return reason

    def _again(self, key: Key, seconds: float) -> None:
        """Queue a key that could not finish, later with every strike."""
        strikes = self._memory.strikes[key] = self._memory.strikes.get(key, 0) + 1
        self.queue.add(key, min(LONGEST_RETRY_SECONDS, seconds * 2.0 ** min(strikes - 1, 6)))

    def _tell(self, key: Key, note: Note, error: Exception) -> None:
        """Keep what holds a run or trial up; a moment of the API server's is nobody's business."""
        if isinstance(error, NotReady) and not isinstance(error, HubUnreachable | execute.NameTaken):
            return
        if key[0] == "run" and (run := self.store.get(Kind.BenchmarkRun, key[1], key[2])):
            self._memory.notes[run["metadata"]["uid"]] = note
        found = self.store.get(Kind.Trial, key[1], key[2]) if key[0] == "trial" else None
        if found is None or isinstance(error, ValidationError):
            return
        trial = self.store.trial(found)
        if isinstance(error, HubRefused):
            # A hub that has lost its memory of the run is told again.
            self._memory.registered.pop(trial.spec.run_ref.uid, None)
            self._memory.registered.pop(trial.meta.uid, None)
        set_note(self._memory, trial, note)

    def _noticed(self, kind: Kind, before: Object | None, now: Object | None) -> None:
        """Queue whatever a change concerns."""
        seen = now or before or {}
        meta = seen["metadata"]
        namespace = meta["namespace"]
        if now is None:
            self._forget(meta["uid"])
        if kind is Kind.Trial:
            self.queue.add(("trial", namespace, meta["name"]))
            self.queue.add(("run", namespace, seen["spec"]["runRef"]["name"]), self._count_seconds)
            self.queue.add(PUMP)
        elif kind is Kind.BenchmarkRun:
            self._run_noticed(before, now, meta)
        elif kind is Kind.TaskSuite:
            self._suite_noticed(before, now, meta)
        elif trial := (meta.get("labels") or {}).get(LABEL_TRIAL):
            self.queue.add(("trial", namespace, trial))

    def _suite_noticed(self, before: Object | None, now: Object | None, meta: Object) -> None:
        # Its status is ours to write: nobody has to look at it again.
        if before is None or now is None or before["spec"] != now["spec"]:
            self.queue.add(("suite", meta["namespace"], meta["name"]))
            self.touch_runs(meta["namespace"])

    def _run_noticed(self, before: Object | None, now: Object | None, meta: Object) -> None:
        self.queue.add(("run", meta["namespace"], meta["name"]))
        self.queue.add(PUMP)
        if now is not None and (before is None or before["spec"] != now["spec"]):
            for trial in self.store.trials(meta["uid"]):
                self.queue.add(("trial", meta["namespace"], trial["metadata"]["name"]))

    def _forget(self, uid: str) -> None:
        memory = self._memory
        for known in (memory.registered, memory.made, memory.notes, memory.written):
            known.pop(uid, None)
        memory.deleted.discard(uid)
