"""Processes of the node: entering its namespaces, starting, stopping, finding what is left."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.configuration import command
from tests.cluster.layout import Layout


class NotUp(Exception):
    """There is no running node; the message says what to do."""


def run(*argv: str) -> str:
    """Run a command, return what it printed; a failure shows what it complained about."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} exited {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def attempt(*argv: str) -> str:
    """Run a command whose failure changes nothing, as when what it removes is gone already."""
    return subprocess.run(argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def anchor_pid(at: Layout) -> int | None:
    """Return the process that keeps the namespaces, if it runs; a pid of an earlier boot is not one."""
    if not at.anchor.exists():
        return None
    pid = int(at.anchor.read_text())
    if not is_alive(pid) or b"infinity" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return None
    return pid


def enter(at: Layout) -> list[str]:
    """Return the prefix that runs a command inside the node's namespaces."""
    pid = anchor_pid(at)
    if pid is None:
        raise NotUp("no test cluster is up: python -m tests.cluster up")
    return ["nsenter", f"--target={pid}", "--net", "--mount", "--"]


def start(at: Layout, name: str) -> None:
    """Start a component and write its pid down; one that runs already is left alone."""
    file = at.state / "pid" / name
    if file.exists() and is_alive(int(file.read_text())):
        return
    argv = [*enter(at), *command(at, name)]
    with (at.state / "log" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    file.write_text(str(process.pid))


def stop(at: Layout, name: str, sig: int = signal.SIGTERM, wait_seconds: float = 15) -> None:
    """End a component and wait for it; a deaf one is killed."""
    file = at.state / "pid" / name
    if not file.exists():
        return
    pid = int(file.read_text())
    file.unlink()
    if not is_alive(pid):
        return
    os.kill(pid, sig)
    limit = time.monotonic() + wait_seconds
    while is_alive(pid):
        reap(pid)
        if time.monotonic() > limit:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def reap(pid: int) -> None:
    """Collect a process if it is a child of ours: `up` and `down` may be the same process."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def inhabitants(anchor: int) -> list[int]:
    """Return every process in the anchor's mount namespace: shims outlive containerd by design."""
    home = Path(f"/proc/{anchor}/ns/mnt").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns" / "mnt").readlink() == home:
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def wait(what: str, seconds: float, is_ready: Callable[[], bool]) -> None:
    """Wait until a check holds, and say how long it took."""
    began = time.monotonic()
    while not is_ready():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"{what} is not ready after {seconds:.0f} s; logs are in the state folder's log/")
        time.sleep(0.2)
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)
