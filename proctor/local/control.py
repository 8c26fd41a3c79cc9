"""A socket on which a running launcher takes wishes of other `proctor` calls: cancel, retry, shell.

One JSON line each way: {"verb": …, "name": …} → {"said": …} or {"error": …}. The socket lies in the private home.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from controller.cluster import Kind, Object
from proctor.local.memory import MemoryCluster
from proctor.local.objects import Objects
from wire.errors import InvalidInput, NotReady, ProctorError

LINE_LIMIT_BYTES = 65536
SHELL = "shell"


@asynccontextmanager
async def serve_control(socket: Path, cluster: MemoryCluster, sandbox_pid: Callable[[str], int]) -> AsyncIterator[None]:
    """Serve until the block ends; `sandbox_pid` finds the first process in a pod's first container."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wish = json.loads(await reader.readline())
            answer = {"said": grant(cluster.objects, str(wish["verb"]), str(wish["name"]), sandbox_pid)}
        except (ProctorError, ValueError, KeyError, TypeError) as error:
            answer = {"error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(accept, socket, limit=LINE_LIMIT_BYTES)
    async with server:
        yield


def grant(objects: Objects, verb: str, name: str, sandbox_pid: Callable[[str], int]) -> str:
    """Do what is wished. Raises InvalidInput when there is nothing of that name or nothing to do."""
    runs = {run["metadata"]["name"]: run for run in objects.all(Kind.BenchmarkRun)}
    trials = {trial["metadata"]["name"]: trial for trial in objects.all(Kind.Trial)}
    match verb:
        case "cancel" if name in runs:
            objects.patch(Kind.BenchmarkRun, runs[name], {"spec": {"cancel": True}})
            return f"run {name} is being cancelled"
        case "retry" if name in runs or name in trials:
            chosen = [t for t in trials.values() if name in (t["metadata"]["name"], t["spec"]["runRef"]["name"])]
            return _retry(objects, chosen)
        case "shell" if name in trials:
            return str(_open_shell(objects, trials[name], sandbox_pid))
        case "cancel" | "retry" | "shell":
            raise InvalidInput(f"the running launcher knows no {name!r}")
        case _:
            raise InvalidInput(f"{verb!r} is no wish")


def wish(socket: Path, verb: str, name: str) -> str:
    """Ask a running launcher. Raises NotReady when none runs, InvalidInput when it refuses."""
    return asyncio.run(_wish(socket, verb, name))


async def _wish(socket: Path, verb: str, name: str) -> str:
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_LIMIT_BYTES)
    except OSError as error:
        raise NotReady("no local run is going on; local runs live with their `proctor run --local`") from error
    writer.write(json.dumps({"verb": verb, "name": name}).encode() + b"\n")
    try:
        line = await reader.readline()
    except ConnectionError:
        line = b""
    writer.close()
    if not line:
        raise NotReady("the local run ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise InvalidInput(answer["error"])
    return str(answer["said"])


def _retry(objects: Objects, trials: list[Object]) -> str:
    errored = [trial for trial in trials if (trial.get("status") or {}).get("phase") == "Errored"]
    for trial in errored:
        objects.patch(Kind.Trial, trial, {"spec": {"retries": trial["spec"].get("retries", 0) + 1}})
    if not errored:
        raise InvalidInput("none of these trials is errored; only errored ones are tried again")
    return f"{len(errored)} trials are tried again"


def _open_shell(objects: Objects, trial: Object, sandbox_pid: Callable[[str], int]) -> int:
    """Mark the trial before anybody touches its sandbox; return the process whose namespaces to enter."""
    status = trial.get("status") or {}
    pid = sandbox_pid(f"{trial['metadata']['name']}-{status.get('sandbox', 0)}-sandbox")
    if SHELL not in status.get("notFormal", ()):
        marked = [*status.get("notFormal", ()), SHELL]
        objects.patch(Kind.Trial, trial, {"status": {"notFormal": marked}}, status=True)
    return pid
