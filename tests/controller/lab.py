"""A whole small installation in one process: cluster, kubelet, hub, and an operator that can be killed."""

import asyncio
from collections.abc import Callable

from controller.cluster import Kind, Object
from controller.engine import Engine
from controller.settings import Settings
from proctor.local.memory import MemoryCluster
from proctor.local.objects import Admit
from tests.controller.fakes import (
    NAMESPACE,
    Clock,
    Killed,
    Killer,
    Kubelet,
    MemoryHub,
    MortalCluster,
    MortalHub,
    Script,
    obedient,
    settings,
    suite,
)

STEPS_LIMIT = 20_000


class Lab:
    """Everything a test needs to watch a run from its creation to its end."""

    def __init__(self, script: Script = obedient, chosen: Settings | None = None, admit: Admit | None = None) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster(self.clock, admit)
        self.kubelet = Kubelet(self.cluster, script)
        self.hub = MemoryHub()
        self.settings = chosen or settings()
        self.killer = Killer()
        self._stop = asyncio.Event()
        self._process: asyncio.Task[None] | None = None
        self.deaths = 0

    async def apply(self, kind: Kind, body: Object) -> Object:
        return await self.cluster.create(kind, body)

    async def start(self, killer: Killer | None = None) -> None:
        """Start an operator's process."""
        self.killer = killer or Killer()
        self._stop = asyncio.Event()
        engine = Engine(
            MortalCluster(self.cluster, self.killer), MortalHub(self.hub, self.killer), self.settings, self.clock
        )
        self._process = asyncio.create_task(engine.run(self._stop))

    async def stop(self) -> None:
        """Stop the operator in order; it may still be killed in its last pass."""
        await self._revive()
        self._stop.set()
        if self._process is not None:
            await self._ended(self._process)
            self._process = None

    async def until(self, done: Callable[[], bool], *, moving: bool = True) -> None:
        """Let the world go on until something holds; a killed operator is started again."""
        for turn in range(STEPS_LIMIT):
            if done():
                return
            await self._revive()
            if moving:
                self.kubelet.step()
            await asyncio.sleep(0 if turn % 50 else 0.001)
        raise AssertionError(f"the world never came to it; writes so far: {self.killer.log}")

    async def settle_down(self, rounds: int = 40) -> None:
        """Let everything that can happen happen."""
        for _ in range(rounds):
            await self._revive()
            self.kubelet.step()
            await asyncio.sleep(0.001)

    async def _revive(self) -> None:
        if self._process is None or not self._process.done():
            return
        if await self._ended(self._process):
            await self.start()

    async def _ended(self, process: asyncio.Task[None]) -> bool:
        """Wait for a process's end and tell whether it was killed; any other trouble flies."""
        try:
            await process
        except BaseExceptionGroup as group:
            if group.split(Killed)[1] is not None:
                raise
            self.deaths += 1
            return True
        return False

    def all(self, kind: Kind) -> tuple[Object, ...]:
        return self.cluster.objects.all(kind, NAMESPACE)

    def trial(self, index: int = 0) -> Object:
        return next(t for t in self.all(Kind.Trial) if t["spec"]["index"] == index)

    def phase(self, index: int = 0) -> str:
        there = [t for t in self.all(Kind.Trial) if t["spec"]["index"] == index]
        return str((there[0].get("status") or {}).get("phase", "")) if there else ""

    def run_phase(self, name: str = "quick") -> str:
        found = self.cluster.objects.get(Kind.BenchmarkRun, NAMESPACE, name)
        return str(((found or {}).get("status") or {}).get("phase", ""))

    def run_status(self, name: str = "quick") -> Object:
        found = self.cluster.objects.get(Kind.BenchmarkRun, NAMESPACE, name) or {}
        return dict(found.get("status") or {})

    def edit_run(self, name: str = "quick", **spec: object) -> None:
        """Change a run's spec as a user would."""
        found = self.cluster.objects.get(Kind.BenchmarkRun, NAMESPACE, name)
        assert found is not None
        self.cluster.objects.patch(Kind.BenchmarkRun, found, {"spec": spec})

    def condition(self, kind: str, name: str = "quick") -> Object:
        found = self.cluster.objects.get(Kind.BenchmarkRun, NAMESPACE, name) or {}
        conditions = (found.get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def left(self) -> set[str]:
        """Return what exists besides events, suites and the namespace's own policies."""
        return {
            f"{kind.name} {found['metadata']['name']}"
            for kind, found in self.cluster.objects.everything()
            if (kind not in (Kind.Event, Kind.TaskSuite) and found["metadata"].get("ownerReferences") is not None)
            or kind in (Kind.BenchmarkRun, Kind.Trial)
        }


async def ready(script: Script = obedient, admit: Admit | None = None, **changes: object) -> Lab:
    """Return a lab with a suite and a started operator."""
    lab = Lab(script, settings(**changes), admit)
    await lab.apply(Kind.TaskSuite, suite())
    await lab.start()
    return lab
