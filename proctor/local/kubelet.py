"""The kubelet of local mode: takes every pod that appears, runs it, writes its status, ends it when it is deleted.

One task for each pod. A fault of this machine ends the pod as Failed with a reason, never the launcher.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import structlog

from controller.cluster import Kind, Object
from proctor.local.links import Addresses, Block, driver_side, join
from proctor.local.objects import Clock, Notice, Objects, rfc3339
from proctor.local.pods import LocalPod, Machine, Running
from proctor.local.podspec import Container, PodPlan, is_untrusted, peer_address, read_pod, trial_of
from proctor.local.podstatus import Ended, PodFacts, Started, State, Waiting, pod_status
from wire.errors import InvalidInput, NotReady, ProctorError
from wire.names import GATEWAY_PORT, HUB_PORT

NODE = "laptop"
log = structlog.get_logger()


class Kubelet:
    """Runs the pods of one cluster in memory; use it as a context, at whose end every pod ends."""

    def __init__(
        self,
        objects: Objects,
        machine: Machine,
        sockets: Mapping[int, Path],
        image_env: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.objects, self.machine, self.image_env, self.clock = objects, machine, image_env, clock
        self._sockets = sockets
        self._addresses = Addresses()
        self._pods: dict[str, Lodger] = {}
        self._forget: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self.machine.groups.sweep()
        await self.machine.nest.remove(self.machine.folder)
        self.machine.folder.mkdir(parents=True, mode=0o700)
        self._forget = self.objects.listen(self._notice)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._forget is not None:
            self._forget()
        tasks = [lodger.task for lodger in self._pods.values() if lodger.task is not None]
        for lodger in self._pods.values():
            lodger.end(0)
        if tasks:
            await asyncio.wait(tasks)
        await self.machine.nest.remove(self.machine.folder)

    def bridges(self, pod: Object) -> dict[int, Path]:
        """Return the ports a pod may reach: the gateway for all, the hub for trusted pods alone."""
        ports = (GATEWAY_PORT,) if is_untrusted(pod) else (GATEWAY_PORT, HUB_PORT)
        return {port: self._sockets[port] for port in ports if port in self._sockets}

    def claim(self) -> Block:
        """Return addresses for an untrusted pod and its drivers."""
        return self._addresses.claim()

    async def connect(self, pod: Object, holder: int) -> None:
        """Lay a driver's wire to the untrusted pod it is told to drive, if that is of the same trial and lives."""
        address, trial = peer_address(pod), trial_of(pod)
        for lodger in tuple(self._pods.values()):
            block = lodger.block
            if block is not None and block.untrusted == address and trial_of(lodger.pod) == trial:
                await join(self.machine.nest, (lodger.holder, holder), block)
                return

    def first_process(self, pod: str) -> int:
        """Return the first process of a running pod's first container. Raises InvalidInput when there is none."""
        for lodger in self._pods.values():
            if lodger.pod["metadata"]["name"] == pod and (pid := lodger.first_process()):
                return pid
        raise InvalidInput(f"the pod {pod} does not run")

    def _notice(self, seen: Notice) -> None:
        if seen.kind is not Kind.Pod:
            return
        uid = seen.object["metadata"]["uid"]
        lodger = self._pods.get(uid)
        if lodger is not None:
            if seen.removed:
                lodger.end(0)
            elif seen.object["metadata"].get("deletionTimestamp"):
                lodger.end(seen.object["metadata"].get("deletionGracePeriodSeconds", 0))
        elif not seen.removed:
            self._pods[uid] = lodger = Lodger(self, seen.object)
            self.objects.bind(seen.object, NODE)
            lodger.task = asyncio.get_running_loop().create_task(self._lodge(uid, lodger))

    async def _lodge(self, uid: str, lodger: "Lodger") -> None:
        try:
            await lodger.live()
        finally:
            if lodger.block is not None:
                self._addresses.release(lodger.block)
            self._pods.pop(uid, None)


class Lodger:
    """One pod on this machine: from its first container to the end of its deletion."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        self.pod = pod
        self.task: asyncio.Task[None] | None = None
        self.block: Block | None = kubelet.claim() if is_untrusted(pod) else None
        self._kubelet = kubelet
        self._local: LocalPod | None = None
        self._ending = asyncio.Event()
        self._grace_seconds = 0.0
        self._started = rfc3339(kubelet.clock())
        self._address = self.block.untrusted if self.block else self._driver_address()
        self._inits: dict[str, State] = _waiting(pod, "initContainers")
        self._containers: dict[str, State] = _waiting(pod, "containers")
        self._running: list[tuple[Running, dict[str, State]]] = []

    @property
    def holder(self) -> int:
        """Return the process that holds the pod's namespaces."""
        return self._local.holder if self._local else 0

    def first_process(self) -> int | None:
        """Return the first process of the first container that runs."""
        alive = [running for running, states in self._running if isinstance(states[running.box.name], Started)]
        return alive[0].first_process() if alive else None

    def end(self, grace_seconds: float) -> None:
        """Begin the pod's end."""
        self._grace_seconds = grace_seconds
        self._ending.set()

    async def live(self) -> None:
        """Run the pod to its end, then wait for its deletion and confirm it."""
        reason, message = await self._until_over()
        if self._local is not None:
            await self._local.stop(self._grace_seconds if self._ending.is_set() else 0)
            for running, states in self._running:
                if isinstance(states[running.box.name], Started):
                    await self._note(running, states)
        self._write(reason, message)
        if self._local is not None:
            await self._local.remove()
        held = self._kubelet.objects.get(Kind.Pod, self.pod["metadata"]["namespace"], self.pod["metadata"]["name"])
        if held is not None and held["metadata"].get("deletionTimestamp"):
            self._kubelet.objects.delete(Kind.Pod, self.pod, grace_seconds=0)

    async def _until_over(self) -> tuple[str, str]:
        """Run until every container has ended, the deadline is reached or deletion began; returns the pod's reason."""
        work = asyncio.ensure_future(self._run())
        ending = asyncio.ensure_future(self._ending.wait())
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        await asyncio.wait({work, ending}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        late = not work.done() and not ending.done()
        ending.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
            return ("DeadlineExceeded", f"the pod was active longer than {deadline} s") if late else ("", "")
        error = work.exception()
        if error is None:
            return "", ""
        # Not only ours: a missing program or a full disk must end this pod, and neither the others nor the launcher.
        log.warning("pod did not start", pod=self.pod["metadata"]["name"], error=str(error))
        return (error.reason if isinstance(error, ProctorError) else "StartError"), str(error)

    async def _run(self) -> None:
        plan = read_pod(self.pod, self._address, self._kubelet.image_env)
        self._local = local = LocalPod(self._kubelet.machine, plan, self.pod["metadata"]["uid"])
        await local.open(self._kubelet.bridges(self.pod), self._secrets(plan))
        if not plan.untrusted:
            await self._kubelet.connect(self.pod, local.holder)
        self._write()
        for box in plan.inits:
            await self._follow(await self._start(box, self._inits), self._inits)
            if not isinstance(state := self._inits[box.name], Ended) or state.exit_code:
                return
        running = [await self._start(box, self._containers) for box in plan.containers]
        self._write()
        await asyncio.gather(*(self._follow(each, self._containers) for each in running))

    async def _start(self, box: Container, states: dict[str, State]) -> Running:
        assert self._local is not None
        running = await self._local.start(box)
        states[box.name] = Started(at=rfc3339(self._kubelet.clock()))
        self._running.append((running, states))
        return running

    async def _follow(self, running: Running, states: dict[str, State]) -> None:
        """Wait for a container's end and write it down."""
        await running.ended()
        await self._note(running, states)
        self._write()

    async def _note(self, running: Running, states: dict[str, State]) -> None:
        state = states[running.box.name]
        states[running.box.name] = Ended(
            exit_code=await running.ended(),
            message=running.message(),
            out_of_memory=running.out_of_memory(),
            started=state.at if isinstance(state, Started) else self._started,
            at=rfc3339(self._kubelet.clock()),
        )

    def _write(self, reason: str = "", message: str = "") -> None:
        facts = PodFacts(
            address=self._address,
            started=self._started,
            inits=self._inits,
            containers=self._containers,
            reason=reason,
            message=message,
        )
        self._kubelet.objects.set_status(Kind.Pod, self.pod, pod_status(facts))

    def _secrets(self, plan: PodPlan) -> dict[str, Object]:
        """Return the Secrets the pod mounts. Raises NotReady for one that is not there."""
        found: dict[str, Object] = {}
        for name in {volume.secret for volume in plan.volumes if volume.secret is not None}:
            secret = self._kubelet.objects.get(Kind.Secret, plan.namespace, name)
            if secret is None:
                raise NotReady(f"the Secret {name} of pod {plan.name} does not exist")
            found[name] = secret
        return found

    def _driver_address(self) -> str:
        peer = peer_address(self.pod)
        return driver_side(peer) if peer else "127.0.0.1"


def _waiting(pod: Object, which: str) -> dict[str, State]:
    return {box["name"]: Waiting() for box in pod["spec"].get(which) or ()}
