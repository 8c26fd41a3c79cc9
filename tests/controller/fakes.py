"""A cluster that behaves, for the operator's tests: the memory cluster, a scripted kubelet, a hub, and a killer.

Time does not matter here: the clock stands still unless a test moves it, and waits are set to nothing.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from controller.cluster import Change, Cluster, Kind, Object
from controller.hub import HubRefused, HubUnreachable
from controller.settings import Settings
from proctor.local.memory import MemoryCluster
from proctor.local.objects import Notice
from wire.digest import Digest, of_bytes
from wire.journal import RunRecord, Settled, Settlement, TrialRecord
from wire.names import LABEL_ROLE
from wire.outcome import Checked, Delivered, Evaluated, Failed
from wire.package import Operations, PackageManifest, SuiteInfo, TaskInfo
from wire.trial import Result

NAMESPACE = "runs"
START = datetime(2026, 12, 1, tzinfo=UTC)
CANDIDATE = of_bytes(b"candidate")
PREPARED = of_bytes(b"prepared")
COMMAND = ["true"]
TASK = TaskInfo(
    id="lease",
    title="A task",
    version="1",
    tags=[],
    memory_mb=1024,
    operations=Operations(install=COMMAND, build=COMMAND, migrate=COMMAND, api=COMMAND, worker=COMMAND, test=COMMAND),
    suite=SuiteInfo(applicable=2, scheduled=3),
)
PACKAGE = PackageManifest(task=TASK, parts={"public": of_bytes(b"public")}, mutants=["late", "lax"])
RESULT = Result(applicable=2, passed=2, failed=0, blocked=0, unresolved=0, scheduled=3, digest=of_bytes(b"verdict"))


def settings(**changes: object) -> Settings:
    """Return settings without waits."""
    quick = {
        "namespaces": [NAMESPACE],
        "installation_key": b"key",
        "retry_seconds": 0,
        "status_interval_seconds": 0,
        "blocked_retry_seconds": 0.01,
        "workers": 4,
    }
    return Settings.model_validate(quick | changes)


def suite(name: str = "lab", tasks: tuple[str, ...] = ("lease",)) -> Object:
    """Return a TaskSuite of tasks that all are the one package."""
    entries = [{"name": task, "package": PACKAGE.digest()} for task in tasks]
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"tasks": entries}}


def run(name: str = "quick", **spec: object) -> Object:
    """Return a BenchmarkRun with one arm unless told otherwise."""
    whole = {"suite": "lab", "arms": [{"name": "oracle", "agent": {"kind": "oracle"}}], **spec}
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": whole}


class MemoryHub:
    """A hub without a database: records grow, a settlement is stored once."""

    def __init__(self) -> None:
        self.runs: dict[str, RunRecord] = {}
        self.trials: dict[str, TrialRecord] = {}
        self.settlements: dict[tuple[str, int], list[Settlement]] = defaultdict(list)
        self.packages = {PACKAGE.digest(): PACKAGE}
        self.down = False

    async def put_run(self, record: RunRecord) -> None:
        self._listen()
        self.runs[record.uid] = record

    async def put_trial(self, record: TrialRecord) -> None:
        self._listen()
        if record.run_uid not in self.runs:
            raise HubRefused(f"runUid: run {record.run_uid} is not known here")
        known = self.trials.get(record.uid)
        if known is None or known.attempt <= record.attempt:
            self.trials[record.uid] = record

    async def settle(self, uid: str, settlement: Settlement) -> Settled:
        self._listen()
        if uid not in self.trials:
            raise HubRefused(f"trial {uid} is not known here")
        stored = self.settlements[(uid, self.trials[uid].spec.retries)]
        if not stored:
            stored.append(settlement)
        first = stored[0].phase
        return Settled(phase=first, result=RESULT if first == "Graded" else None)

    async def manifest(self, digest: str) -> PackageManifest | None:
        self._listen()
        return self.packages.get(Digest(digest))

    def _listen(self) -> None:
        if self.down:
            raise HubUnreachable("the hub is down", retry_seconds=0.01)


Script = Callable[[Object], list[Object]]
"""A driver's pod → its container statuses at the end."""


def ended(container: str, exit_code: int = 0, message: str = "", reason: str = "Completed") -> Object:
    """Return the status of a container that has ended."""
    state = {"exitCode": exit_code, "reason": reason, "message": message}
    return {"name": container, "state": {"terminated": state}}


def waiting(container: str, reason: str, message: str) -> Object:
    """Return the status of a container that does not start."""
    return {"name": container, "state": {"waiting": {"reason": reason, "message": message}}}


def role(pod: Object) -> str:
    """Return a pod's role."""
    return str(pod["metadata"]["labels"][LABEL_ROLE])


def obedient(pod: Object) -> list[Object]:
    """Script of drivers that all do well: delivered, passed, evaluated."""
    env = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
    if role(pod) == "session":
        delivered = Delivered(conversation=int(env["PROCTOR_CONVERSATION"]), candidate=CANDIDATE)
        return [ended("agent"), ended("user", message=said(delivered))]
    if role(pod) == "gate":
        conversation, candidate = int(env["PROCTOR_CONVERSATION"]), env["PROCTOR_CANDIDATE"]
        checked = Checked(conversation=conversation, candidate=candidate, passed=True, prepared=PREPARED)
        return [ended("gate", message=said(checked))]
    digest = json.loads(env["PROCTOR_SUBMISSION"])["digest"]
    evaluated = Evaluated(shard=int(env["JOB_COMPLETION_INDEX"]), submission=digest, unresolved=0)
    return [ended("evaluator", message=said(evaluated))]


def said(outcome: Delivered | Checked | Evaluated | Failed) -> str:
    """Return a termination message."""
    return json.dumps(outcome.dump())


class Kubelet:
    """Gives untrusted pods an address and drivers an end by the script; one step at a time."""

    def __init__(self, cluster: MemoryCluster, script: Script = obedient) -> None:
        self._objects, self.script = cluster.objects, script
        self._waiting: list[Object] = []
        self._stuck: list[Object] = []
        self.uids: dict[str, set[str]] = defaultdict(set)
        self.created: list[str] = []
        self.alive: dict[str, set[str]] = defaultdict(set)
        self.most_attempts = 0
        self._objects.listen(self._notice)

    def _notice(self, seen: Notice) -> None:
        if seen.kind is not Kind.Pod:
            return
        meta = seen.object["metadata"]
        self._count(seen)
        if not seen.removed and meta["uid"] not in self.uids[meta["name"]]:
            self.uids[meta["name"]].add(meta["uid"])
            self.created.append(meta["name"])
            self._waiting.append(seen.object)

    def _count(self, seen: Notice) -> None:
        """Keep the attempts that have a driver alive at this moment, by trial."""
        meta = seen.object["metadata"]
        labels = meta.get("labels") or {}
        if labels.get(LABEL_ROLE) in ("sandbox", "sut"):
            return
        alive = self.alive[labels.get("proctor.dev/trial", "")]
        place = f"{labels.get('proctor.dev/attempt')}/{meta['name']}"
        if seen.removed or (seen.object.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            alive.discard(place)
        else:
            alive.add(place)
        self.most_attempts = max(self.most_attempts, len({name.split("/")[0] for name in alive}))

    def again(self) -> None:
        """Try pods that did not start once more."""
        self._waiting, self._stuck = [*self._waiting, *self._stuck], []

    def ignore(self, pod: Object) -> None:
        """Leave a pod alone for ever."""
        self._waiting = [other for other in self._waiting if other["metadata"]["uid"] != pod["metadata"]["uid"]]

    def step(self) -> bool:
        """Move one pod on; False = there is none to move."""
        if not self._waiting:
            return False
        pod = self._waiting.pop(0)
        found = self._objects.get(Kind.Pod, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if found is None or found["metadata"]["uid"] != pod["metadata"]["uid"]:
            return True
        if pod["metadata"]["labels"][LABEL_ROLE] in ("sandbox", "sut"):
            running = [{"name": "sandbox", "state": {"running": {}}}]
            number = len(self.created)
            status = {
                "phase": "Running",
                "podIP": f"10.0.{number // 250}.{number % 250 + 1}",
                "containerStatuses": running,
            }
        else:
            boxes = self.script(found)
            if not boxes:
                return True
            status = {"phase": _phase(boxes), "containerStatuses": boxes}
            if status["phase"] == "Pending":
                self._stuck.append(found)
        self._objects.set_status(Kind.Pod, found, status)
        return True


def _phase(boxes: list[Object]) -> str:
    ends = [box["state"].get("terminated") for box in boxes]
    if not all(ends):
        return "Pending"
    return "Succeeded" if all(end["exitCode"] == 0 for end in ends if end) else "Failed"


class Killed(BaseException):
    """The operator's process was killed."""


@dataclass
class Killer:
    """Kills the process just before or just after its n-th write."""

    at: int = 0
    after: bool = False
    writes: int = 0
    dead: bool = False
    log: list[str] = field(default_factory=list)

    async def write(self, what: str, call: Callable[[], object]) -> object:
        """Let a write happen, or not."""
        if self.dead:
            raise Killed
        self.writes += 1
        self.log.append(what)
        if self.writes == self.at and not self.after:
            self.dead = True
            raise Killed
        answer = call()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if self.writes == self.at:
            self.dead = True
            raise Killed
        return answer


class MortalCluster:
    """The cluster as one process of the operator reaches it: every write goes past the killer."""

    def __init__(self, real: Cluster, killer: Killer) -> None:
        self._real, self._killer = real, killer

    def watch(self, kind: Kind, namespace: str) -> AsyncIterator[Change]:
        return self._real.watch(kind, namespace)

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._killer.log.append(f"get {kind.name}")
        return await self._real.get(kind, namespace, name)

    async def create(self, kind: Kind, body: Object) -> Object:
        name = body["metadata"]["name"]
        made = await self._killer.write(f"create {kind.name} {name}", lambda: self._real.create(kind, body))
        assert isinstance(made, dict)
        return made

    async def patch(self, kind: Kind, known: Object, patch: Object, *, status: bool = False) -> Object:
        what = f"patch {kind.name} {'status' if status else 'metadata'}"
        made = await self._killer.write(what, lambda: self._real.patch(kind, known, patch, status=status))
        assert isinstance(made, dict)
        return made

    async def delete(self, kind: Kind, known: Object, *, grace_seconds: int | None = None) -> None:
        what = f"delete {kind.name} {known['metadata']['name']}"
        await self._killer.write(what, lambda: self._real.delete(kind, known, grace_seconds=grace_seconds))


class MortalHub(MemoryHub):
    """The hub as one process of the operator reaches it."""

    def __init__(self, real: MemoryHub, killer: Killer) -> None:
        super().__init__()
        self._real, self._killer = real, killer

    async def put_run(self, record: RunRecord) -> None:
        await self._killer.write("hub run", lambda: self._real.put_run(record))

    async def put_trial(self, record: TrialRecord) -> None:
        await self._killer.write("hub trial", lambda: self._real.put_trial(record))

    async def settle(self, uid: str, settlement: Settlement) -> Settled:
        answer = await self._killer.write("hub settle", lambda: self._real.settle(uid, settlement))
        assert isinstance(answer, Settled)
        return answer

    async def manifest(self, digest: str) -> PackageManifest | None:
        return await self._real.manifest(digest)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
