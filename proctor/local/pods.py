"""Pods without a cluster: processes, folders and namespaces of one pod, started and ended on request.

A pod is a holder process that owns a network without any route, mounts and process numbers; whatever ends the holder
ends every container. Decisions (which container next, what status) are the kubelet's.
"""

import asyncio
import sys
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import Final

from controller.cluster import Object
from proctor.local.bwrap import Places, start_words
from proctor.local.cgroups import Group, Groups
from proctor.local.mode import Mode
from proctor.local.nest import Nest
from proctor.local.podspec import Container, PodPlan, Volume
from wire.errors import NotReady
from wire.outcome import MESSAGE_LIMIT_BYTES

HOLDER: Final = Path(__file__).with_name("holder.py")
# Volumes a pod's users write to; like Kubernetes' emptyDir.
EMPTY_DIR_MODE: Final = 0o777


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What all pods of one launcher share."""

    nest: Nest
    groups: Groups
    root: Path
    """The sandbox image's root file system."""
    library: Mapping[str, Path]
    folder: Path
    """Pods have their folders here; on an ordinary file system, not on another overlay."""
    logs: Path


@dataclass(kw_only=True)
class Running:
    """A container that was started."""

    box: Container
    process: asyncio.subprocess.Process
    places: Places
    group: Group | None

    async def ended(self) -> int:
        """Wait for the end and return the exit code as a shell counts."""
        code = await self.process.wait()
        return 128 - code if code < 0 else code

    def first_process(self) -> int | None:
        """Return the container's process 1 by its number outside: the child of bwrap, the child of what we hold."""
        pid = self.process.pid
        try:
            for _ in range(2):
                pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        except (OSError, IndexError):
            return None
        return pid

    def message(self) -> str:
        """Return what it wrote to its termination log, bounded."""
        try:
            with self.places.message.open("rb") as file:
                return file.read(MESSAGE_LIMIT_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def out_of_memory(self) -> bool:
        """Tell whether the memory limit ended something in it."""
        return self.group is not None and self.group.memory_kills() > 0


class LocalPod:
    """One pod's processes and folders."""

    def __init__(self, machine: Machine, plan: PodPlan, uid: str) -> None:
        self._machine, self._plan, self._uid = machine, plan, uid
        self._folder = machine.folder / uid
        self._running: dict[str, Running] = {}
        self._process: asyncio.subprocess.Process | None = None
        self.holder = 0

    async def open(self, bridges: Mapping[int, Path], secrets: Mapping[str, Object]) -> None:
        """Make the folders and the namespaces. Raises NotReady when the holder does not start."""
        self._folder.mkdir(parents=True, mode=0o700)
        for volume in self._plan.volumes:
            await self._make_volume(volume, secrets)
        carried = [f"{port}={path}" for port, path in bridges.items()]
        self._process = await asyncio.create_subprocess_exec(
            *[*self._machine.nest.enter(), "unshare", "--net", "--mount", "--pid", "--kill-child", "--"],
            *[sys.executable, "-I", str(HOLDER), *carried],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout
        answer = (await self._process.stdout.readline()).strip()
        if not answer:
            raise NotReady(f"the holder of pod {self._plan.name} did not start")
        self.holder = int(answer)

    async def start(self, box: Container) -> Running:
        """Start one container; its output goes to a log of its own."""
        group = self._machine.groups.make(f"{self._uid}-{box.name}", box.memory_bytes)
        places = self._places(box, group)
        words = start_words(box, places, self._machine.nest.mode, self._plan.name)
        log = self._machine.logs / self._plan.name / f"{box.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *[*(group.enter() if group else []), *self._enter(), *words],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        running = Running(box=box, process=process, places=places, group=group)
        self._running[box.name] = running
        return running

    async def stop(self, grace_seconds: float) -> None:
        """Ask every container to end, then end what is left."""
        alive = [running for running in self._running.values() if running.process.returncode is None]
        for running in alive:
            await self._signal(running, SIGTERM)
        if alive:
            await asyncio.wait([asyncio.ensure_future(r.process.wait()) for r in alive], timeout=grace_seconds)
        await self.close()

    async def close(self) -> None:
        """End the holder, and with it everything in the pod's process namespace; harmless when repeated."""
        if self._process is not None:
            assert self._process.stdin
            self._process.stdin.close()
            for process in (self._process, *(running.process for running in self._running.values())):
                await process.wait()
        for running in self._running.values():
            if running.group is not None:
                running.group.remove()

    async def remove(self) -> None:
        """Remove the pod's folder."""
        await self._machine.nest.remove(self._folder)

    def _enter(self) -> list[str]:
        """Return the words that run a command in the pod's namespaces with the host's files."""
        users = [] if self._machine.nest.mode is Mode.ROOT else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.holder}", *users, "--net", "--mount", "--pid", "--"]

    async def _signal(self, running: Running, number: int) -> None:
        """Signal a container's first process; a signal to what we hold would only ever kill it at once."""
        first = running.first_process()
        if first is None:
            return
        await self._machine.nest.run("kill", f"-{int(number)}", str(first))

    def _places(self, box: Container, group: Group | None) -> Places:
        folder = self._folder / "containers" / box.name
        for part in ("upper", "work", "root"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        volumes = {volume.name: self._folder / "volumes" / volume.name for volume in self._plan.volumes}
        places = Places(
            root=self._machine.root,
            folder=folder,
            volumes=volumes,
            library=self._machine.library,
            groups=dict(zip(group.seen_at, group.folders, strict=True)) if group else {},
        )
        places.message.touch()
        places.message.chmod(0o666)
        return places

    async def _make_volume(self, volume: Volume, secrets: Mapping[str, Object]) -> None:
        folder = self._folder / "volumes" / volume.name
        folder.mkdir(parents=True)
        if volume.secret is None:
            folder.chmod(EMPTY_DIR_MODE)
            return
        data = secrets[volume.secret].get("data") or {}
        files = volume.files if volume.files is not None else {key: (key, volume.mode) for key in data}
        for name, (key, mode) in files.items():
            if key not in data:
                raise NotReady(f"Secret {volume.secret} has no key {key}")
            path = folder / name
            path.touch(mode=0o600)
            path.write_bytes(b64decode(data[key]))
            await self._machine.nest.own(path, self._plan.group)
            await self._machine.nest.run("chmod", f"{mode:o}", str(path))
        folder.chmod(0o755)
