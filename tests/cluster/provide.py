"""Give a command a cluster that has the images: the one of KUBECONFIG, else `kind` where Docker runs, else our node.

A node that this started is ended whatever happens to the command; one that was up before is used and left as it was.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.cluster import binaries, node
from tests.cluster.layout import Layout
from tests.cluster.processes import anchor_pid

ROOT = Path(__file__).parents[2]
KIND_NAME = "proctor-test"


def run(at: Layout, argv: list[str]) -> int:
    """Run a command with a cluster and return its exit code."""
    signal.signal(signal.SIGTERM, interrupt)  # so that `finally` runs
    environment = dict(os.environ)
    with cluster(at, environment.get("KUBECONFIG")) as kubeconfig:
        environment["KUBECONFIG"] = str(kubeconfig)
        return subprocess.run(argv, check=False, env=environment).returncode


def interrupt(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exception."""
    raise KeyboardInterrupt


@contextmanager
def cluster(at: Layout, told: str | None) -> Iterator[Path]:
    """Choose a cluster, give its kubeconfig, and leave nothing behind."""
    if told:
        print(f"cluster: the one of KUBECONFIG={told}; its nodes must have {', '.join(refs())}", flush=True)
        yield Path(told)
    elif has_kind():
        with kind(at) as kubeconfig:
            yield kubeconfig
    else:
        with own_node(at):
            yield at.kubeconfig


@contextmanager
def own_node(at: Layout) -> Iterator[None]:
    """Use the node that is up, or start one for as long as it is needed."""
    was_up = anchor_pid(at) is not None
    try:
        if not was_up:
            node.up(at)
        load_images(at)
        yield
    finally:
        if not was_up:
            node.down(at)


def prepare(at: Layout) -> None:
    """Do beforehand what takes long, unless another cluster is at hand."""
    if not is_elsewhere():
        binaries.build(at)


def load_images(at: Layout) -> None:
    """Load what the node lacks of the images."""
    present = node.images(at)
    for ref, archive in archives().items():
        if ref not in present:
            print(f"loading {ref} …", flush=True)
            node.load(at, archive)


@contextmanager
def kind(at: Layout) -> Iterator[Path]:
    """Start a `kind` cluster for as long as it is needed."""
    kubeconfig = at.state.with_suffix(".kind-kubeconfig")
    try:
        subprocess.run(["kind", "create", "cluster", "--name", KIND_NAME, "--kubeconfig", str(kubeconfig)], check=True)
        for archive in archives().values():
            subprocess.run(["kind", "load", "image-archive", str(archive), "--name", KIND_NAME], check=True)
        yield kubeconfig
    finally:
        subprocess.run(["kind", "delete", "cluster", "--name", KIND_NAME], check=True)
        kubeconfig.unlink(missing_ok=True)


def is_elsewhere() -> bool:
    """Tell whether another cluster than our node is at hand."""
    return bool(os.environ.get("KUBECONFIG")) or has_kind()


def has_kind() -> bool:
    """Tell whether `kind` can work: a Docker server is needed, not merely its client."""
    docker = shutil.which("docker") if shutil.which("kind") else None
    return docker is not None and subprocess.run([docker, "info"], check=False, capture_output=True).returncode == 0


def refs() -> list[str]:
    """Return the names of the images that the checkout's code belongs to."""
    told: dict[str, str] = json.loads(images("refs"))
    return list(told.values())


def archives() -> dict[str, Path]:
    """Build the images if needed; return their archives by name."""
    told: dict[str, dict[str, str]] = json.loads(images("archives"))
    return {image["ref"]: Path(image["archive"]) for image in told.values()}


def images(verb: str) -> str:
    """Ask the image builder."""
    argv = [sys.executable, str(ROOT / "images" / "build.py"), verb]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
