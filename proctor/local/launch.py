"""A run without a cluster: operator engine, kubelet and services in one place, until every run of the file is over.

The engine, the manifests and the programs in the pods are those of a cluster; only what is below them differs.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx2
from pydantic import SecretBytes

from controller.cluster import Conflict, Kind, Object
from controller.engine import Engine
from controller.hub import HttpHub
from controller.settings import Settings as OperatorSettings
from proctor.documents import Document
from proctor.local.admission import admit
from proctor.local.cgroups import Groups
from proctor.local.control import serve_control
from proctor.local.home import Home
from proctor.local.image import CHECKOUT, Image
from proctor.local.kubelet import Kubelet
from proctor.local.memory import MemoryCluster, wall_clock
from proctor.local.mode import SINGLE_WARNING, Mode
from proctor.local.nest import Nest, find_mode
from proctor.local.objects import Notice
from proctor.local.pods import Machine
from proctor.progress import Progress
from wire.errors import Broken, InvalidInput
from wire.names import API_VERSION, GATEWAY_PORT, HUB_PORT
from wire.packing import pack, task_folders
from wire.suite import SuiteTask, TaskSuiteSpec

PARALLEL_TRIALS = 2
SECOND_SIGNAL_SECONDS = 1.0
SUITE = "engram-transfer"
# What untrusted pods must be refused besides the hub; nothing listens there in a pod.
API_ADDRESS = "127.0.0.1:6443"


@dataclass(kw_only=True)
class Outcome:
    """How the runs of a file ended."""

    runs: list[str] = field(default_factory=list)
    """Their UIDs, in the file's order."""
    refused: list[str] = field(default_factory=list)
    """Why the operator did not accept a run."""
    complete: bool = False
    """Every trial of every run is graded."""
    interrupted: bool = False


def bundled_suite(namespace: str) -> Document:
    """Return the TaskSuite of the tasks that come with Proctor, pinned to what is on disk."""
    folders = [folder for folder in task_folders(CHECKOUT / "tasks") if folder.parent.name == "transfer"]
    tasks = [SuiteTask(name=folder.name, package=pack(folder).digest) for folder in folders]
    body = {
        "apiVersion": API_VERSION,
        "kind": Kind.TaskSuite.name,
        "metadata": {"name": SUITE, "namespace": namespace},
        "spec": TaskSuiteSpec(tasks=tasks).dump(),
    }
    return Document(kind=Kind.TaskSuite, body=body)


def with_bundled(documents: Sequence[Document]) -> list[Document]:
    """Add the bundled suite to each namespace that names it and brings none of its own."""
    own = {(d.namespace, d.name) for d in documents if d.kind is Kind.TaskSuite}
    wanted = {d.namespace for d in documents if d.kind is Kind.BenchmarkRun and d.body["spec"]["suite"] == SUITE}
    missing = sorted(namespace for namespace in wanted if (namespace, SUITE) not in own)
    return [*(bundled_suite(namespace) for namespace in missing), *documents]


def check_isolation(documents: Sequence[Document]) -> None:
    """Refuse formal runs where this user cannot keep an agent from its daemon. Raises InvalidInput."""
    for document in documents:
        if document.body["spec"].get("formal") and find_mode() is Mode.SINGLE:
            raise InvalidInput(f"run {document.name}: spec.formal: {SINGLE_WARNING}")


async def launch(documents: Sequence[Document], home: Home, image: Image, progress: Progress) -> Outcome:
    """Run the documents to their end; the services must be up. Ctrl-C cancels, a second one gives up."""
    outcome = Outcome()
    cluster = MemoryCluster(admit=admit, new_uid=lambda: str(uuid4()))
    async with (
        _kubelet(cluster, home, image, progress) as kubelet,
        _engine(cluster, home, image, documents) as engine,
    ):
        follower = Follower(cluster, progress, outcome)
        for document in documents:
            made = cluster.objects.create(document.kind, document.body)
            if document.kind is Kind.BenchmarkRun:
                follower.add(made)
        async with serve_control(home.socket("control"), cluster, kubelet.first_process):
            await _until_over(follower, engine, outcome)
    return outcome


class Follower:
    """Watches runs and trials, tells the screen, and knows when all is over."""

    def __init__(self, cluster: MemoryCluster, progress: Progress, outcome: Outcome) -> None:
        self.over = asyncio.Event()
        self._objects, self._progress, self._outcome = cluster.objects, progress, outcome
        self._open: dict[str, Object] = {}
        self._objects.listen(self._notice)

    def add(self, run: Object) -> None:
        """Follow one more run."""
        self._outcome.runs.append(run["metadata"]["uid"])
        self._outcome.complete = True
        self._open[run["metadata"]["uid"]] = run

    def cancel(self) -> None:
        """Ask for the end of every run that is not over."""
        for run in self._open.values():
            held = self._objects.get(Kind.BenchmarkRun, run["metadata"]["namespace"], run["metadata"]["name"])
            if held is not None:
                with contextlib.suppress(Conflict):
                    self._objects.patch(Kind.BenchmarkRun, held, {"spec": {"cancel": True}})

    def _notice(self, seen: Notice) -> None:
        if seen.kind is Kind.Trial and not seen.removed:
            self._progress.trial(seen.object)
        elif seen.kind is Kind.BenchmarkRun and seen.object["metadata"]["uid"] in self._open:
            self._run(seen.object)

    def _run(self, run: Object) -> None:
        conditions = {c["type"]: c for c in (run.get("status") or {}).get("conditions") or ()}
        accepted, complete = conditions.get("Accepted", {}), conditions.get("Complete", {})
        # A hub that is not there yet may come; everything else is for whoever wrote the file.
        refused = accepted.get("status") == "False" and accepted.get("reason") != "HubUnreachable"
        if refused:
            self._outcome.refused.append(f"run {run['metadata']['name']}: {accepted['message']}")
        if refused or complete.get("status") == "True":
            counts = run["status"].get("trials") or {}
            self._outcome.complete &= not refused and counts.get("graded") == counts.get("total")
            del self._open[run["metadata"]["uid"]]
        if not self._open:
            self.over.set()


async def _until_over(follower: Follower, engine: "asyncio.Task[None]", outcome: Outcome) -> None:
    over = asyncio.ensure_future(follower.over.wait())
    gave_up = asyncio.Event()

    loop = asyncio.get_running_loop()
    first: list[float] = []

    def interrupt() -> None:
        # One wish may come as two signals at once, to the process and to its group.
        if first and loop.time() - first[0] > SECOND_SIGNAL_SECONDS:
            gave_up.set()
        first.append(loop.time())
        outcome.interrupted = True
        follower.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    giving_up = asyncio.ensure_future(gave_up.wait())
    try:
        await asyncio.wait({over, engine, giving_up}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        over.cancel()
        giving_up.cancel()
    if engine.done():
        raise Broken(f"the operator ended: {engine.exception()!r}")


@asynccontextmanager
async def _kubelet(cluster: MemoryCluster, home: Home, image: Image, progress: Progress) -> AsyncIterator[Kubelet]:
    mode = find_mode()
    if mode is Mode.SINGLE:
        progress.say(SINGLE_WARNING)
    groups = Groups()
    if not groups.available:
        progress.say("memory is limited for each process, not for each pod: this user may not make control groups")
    async with Nest(mode) as nest:
        machine = Machine(
            nest=nest, groups=groups, root=image.root, library=image.library, folder=home.pods, logs=home.logs / "pods"
        )
        sockets: dict[int, Path] = {HUB_PORT: home.socket("hub"), GATEWAY_PORT: home.socket("gateway")}
        async with Kubelet(cluster.objects, machine, sockets, image.env, wall_clock) as kubelet:
            yield kubelet


@asynccontextmanager
async def _engine(
    cluster: MemoryCluster, home: Home, image: Image, documents: Sequence[Document]
) -> AsyncIterator["asyncio.Task[None]"]:
    key = home.key.read_bytes().strip()
    settings = OperatorSettings(
        namespaces=sorted({document.namespace for document in documents}),
        installation_key=SecretBytes(key),
        hub_address=f"127.0.0.1:{HUB_PORT}",
        gateway_address=f"127.0.0.1:{GATEWAY_PORT}",
        api_address=API_ADDRESS,
        sandbox_image=f"rootfs:{image.root.name}",
        max_running=PARALLEL_TRIALS,
    )
    transport = httpx2.AsyncHTTPTransport(uds=str(home.socket("hub")))
    async with httpx2.AsyncClient(base_url="http://hub", transport=transport) as client:
        stop = asyncio.Event()
        engine = asyncio.ensure_future(Engine(cluster, HttpHub(client, key), settings, wall_clock).run(stop))
        try:
            yield engine
        finally:
            stop.set()
            await asyncio.wait({engine}, timeout=10)
            engine.cancel()
