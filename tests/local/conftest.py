"""Real pods without a cluster, for tests marked `local`: a cluster in memory with a bubblewrap kubelet."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from controller.cluster import Kind, Object
from proctor.local.cgroups import Groups
from proctor.local.image import Image, find_image
from proctor.local.kubelet import Kubelet
from proctor.local.memory import MemoryCluster, wall_clock
from proctor.local.nest import Nest, find_mode
from proctor.local.pods import Machine
from wire.names import LABEL_TIER, LABEL_TRIAL, MANAGED_BY

NAMESPACE = "lab"
PATIENCE_SECONDS = 60.0


class Lab:
    """A cluster with one node, and short words for what tests do with it."""

    def __init__(self, cluster: MemoryCluster, kubelet: Kubelet, folder: Path) -> None:
        self.cluster, self.kubelet, self.folder = cluster, kubelet, folder
        self.patience_seconds = PATIENCE_SECONDS

    def pod(self, name: str, script: str, **changes: object) -> Object:
        """Create a pod with one container `box`; keywords: tier, trial, uid, env, mounts, and fields of its spec."""
        tier, trial = changes.pop("tier", "driver"), changes.pop("trial", "trial")
        box: Object = {
            "name": "box",
            "command": ["tini", "-s", "--", "sh", "-c", script],
            "env": [{"name": key, "value": value} for key, value in dict(changes.pop("env", {})).items()],  # type: ignore[call-overload]
            "volumeMounts": changes.pop("mounts", []),
            "securityContext": {"runAsUser": changes.pop("uid", 1000)},
            "resources": {"limits": {"memory": changes.pop("memory", "512Mi")}},
        }
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [box], **changes}
        labels = {LABEL_TIER: tier, LABEL_TRIAL: trial, MANAGED_BY[0]: MANAGED_BY[1]}
        meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
        return self.cluster.objects.create(Kind.Pod, {"metadata": meta, "spec": spec})

    async def until(self, name: str, is_so: Callable[[Object | None], bool]) -> Object:
        """Wait until a pod is as wanted; None = gone."""
        deadline = asyncio.get_running_loop().time() + self.patience_seconds
        while not is_so(found := self.cluster.objects.get(Kind.Pod, NAMESPACE, name)):
            assert asyncio.get_running_loop().time() < deadline, f"{name}: {found}"
            await asyncio.sleep(0.02)
        return found or {}

    async def running(self, name: str) -> Object:
        """Wait until a pod runs."""
        return await self.until(name, lambda pod: pod is not None and pod["status"]["phase"] == "Running")

    async def ended(self, name: str) -> Object:
        """Wait until a pod has ended; returns how its container `box` did."""
        pod = await self.until(name, lambda p: p is not None and p["status"]["phase"] in ("Succeeded", "Failed"))
        found: Object = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        return found

    async def gone(self, name: str) -> None:
        """Wait until a pod is deleted."""
        await self.until(name, lambda pod: pod is None)

    async def says(self, name: str, word: str) -> None:
        """Wait until a pod has printed a word."""
        await self.until(name, lambda _: word in self.log(name).read_text())

    async def printed(self, name: str) -> list[str]:
        """Wait for a pod's end and return the lines it printed."""
        await self.ended(name)
        return self.log(name).read_text().splitlines()

    def log(self, name: str, container: str = "box") -> Path:
        """Return a container's log."""
        return self.folder / "logs" / name / f"{container}.log"


Scenario: TypeAlias = Callable[[Lab], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(scope="session")
def image() -> Image:
    """The sandbox image's root, built on first use."""
    return find_image()


@pytest.fixture
def sockets() -> dict[int, Path]:
    """Bridges of the pods: port → socket. A test that wants one overrides this."""
    return {}


@pytest.fixture
def play(image: Image, tmp_path: Path, sockets: dict[int, Path]) -> Play:
    """Run a scenario in a fresh lab; every pod ends with it."""

    async def run(scenario: Scenario) -> None:
        cluster = MemoryCluster()
        async with Nest(find_mode()) as nest:
            machine = Machine(
                nest=nest,
                groups=Groups(),
                root=image.root,
                library=image.library,
                folder=tmp_path / "pods",
                logs=tmp_path / "logs",
            )
            async with Kubelet(cluster.objects, machine, sockets, image.env, wall_clock) as kubelet:
                await scenario(Lab(cluster, kubelet, tmp_path))

    return lambda scenario: asyncio.run(run(scenario))
