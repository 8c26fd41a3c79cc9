"""One real Kubernetes node: bring it up, take it down, load images into it."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.configuration import files
from tests.cluster.keys import make_keys
from tests.cluster.layout import API_IP, HOST_IP, NODE, NODE_IP, Layout
from tests.cluster.pause import build_pause
from tests.cluster.processes import anchor_pid, attempt, enter, inhabitants, run, start, stop, wait

INSIDE = (
    "ip link set lo up",
    "ip link add br-kube type bridge",
    f"ip addr add {NODE_IP}/24 dev br-kube",
    "ip link set br-kube up",
    "sysctl -qw net.ipv4.ip_forward=1",
    "sysctl -qw net.ipv4.conf.all.route_localnet=1",
)
HOST_LINK, NODE_LINK = "proctor0", "proctor1"


def up(at: Layout) -> None:
    """Start every component and wait until the node is Ready."""
    if os.geteuid() != 0:
        raise RuntimeError("the test cluster needs root: it makes network namespaces and runs containerd")
    if lacking := binaries.missing_packages():
        raise RuntimeError(f"install {' '.join(lacking)} (apt-get install {' '.join(lacking)})")
    binaries.build(at)
    down(at)
    for folder in ("log", "pid", "etcd", "cni"):
        (at.state / folder).mkdir(parents=True, exist_ok=True)
    (at.state / "etcd").chmod(0o700)
    make_keys(at.pki)
    for name, text in files(at).items():
        (at.state / name).write_text(text)
    began = time.monotonic()
    make_network(at)
    start_components(at)
    print(f"cluster up in {time.monotonic() - began:.1f} s; KUBECONFIG={at.kubeconfig}", flush=True)


def start_components(at: Layout) -> None:
    """Start the components in the order in which they need each other."""
    for name in ("etcd", "containerd", "kube-apiserver"):
        start(at, name)
    wait("API server", 90, lambda: ask(at, "get", "--raw", "/readyz") == "ok")
    for name in ("kube-controller-manager", "kube-scheduler"):
        start(at, name)
    wait("containerd", 30, lambda: "Server" in ctr(at, "version"))
    load(at, build_pause(at.state / "pause"))
    for name in ("kubelet", "kube-proxy", "coredns"):
        start(at, name)
    ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    wait("node", 90, lambda: ask(at, "get", "node", NODE, "-o", ready) == "True")
    start(at, "kube-router")  # after the node object exists, or it gives up
    wait(
        "service account", 60, lambda: ask(at, "-n", "default", "get", "serviceaccount", "default", "-o", "name") != ""
    )


def make_network(at: Layout) -> None:
    """Make the namespaces and one veth pair through which this machine reaches the API server."""
    sleep = ["unshare", "--net", "--mount", "--propagation", "unchanged", "sleep", "infinity"]
    quiet = subprocess.DEVNULL
    anchor = subprocess.Popen(sleep, start_new_session=True, stdin=quiet, stdout=quiet, stderr=quiet)
    at.anchor.write_text(str(anchor.pid))
    ours = Path("/proc/self/ns/mnt").readlink()
    wait("namespaces", 5, lambda: anchor_pid(at) is not None and Path(f"/proc/{anchor.pid}/ns/mnt").readlink() != ours)
    run(*enter(at), "mount", "--make-rshared", "/")
    for line in INSIDE:
        run(*enter(at), *line.split())
    attempt("ip", "link", "del", HOST_LINK)
    run("ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", NODE_LINK, "netns", str(anchor.pid))
    run("ip", "addr", "add", f"{HOST_IP}/30", "dev", HOST_LINK)
    run("ip", "link", "set", HOST_LINK, "up")
    run(*enter(at), "ip", "addr", "add", f"{API_IP}/30", "dev", NODE_LINK)
    run(*enter(at), "ip", "link", "set", NODE_LINK, "up")
    run(*enter(at), "ip", "route", "add", "default", "via", HOST_IP)


def kubectl() -> str:
    """Return the machine's kubectl, else the one of the tools."""
    return shutil.which("kubectl") or binaries.fetch("kubectl")


def ask(at: Layout, *arguments: str) -> str:
    """Ask the API server by kubectl; what fails gives an empty answer."""
    return attempt(kubectl(), f"--kubeconfig={at.kubeconfig}", "--request-timeout=5s", *arguments)


def ctr(at: Layout, *arguments: str) -> str:
    """Talk to containerd; what fails gives an empty answer."""
    return attempt(*enter(at), "ctr", "-n", "k8s.io", *arguments)


def load(at: Layout, archive: Path) -> None:
    """Import an image from an OCI or docker archive into the node."""
    run(*enter(at), "ctr", "-n", "k8s.io", "images", "import", str(archive.resolve()))


def images(at: Layout) -> set[str]:
    """Return the names of the images the node has."""
    return set(ctr(at, "images", "ls", "-q").split())


def down(at: Layout) -> None:
    """End every process of the node and remove its state; harmless when there is none."""
    anchor = anchor_pid(at)
    if anchor is not None:
        ask(at, "delete", "pods", "--all", "-A", "--grace-period=0", "--force", "--wait=false")
        for name in ("kube-router", "coredns", "kube-proxy", "kubelet"):
            stop(at, name)
        tasks = ctr(at, "tasks", "ls", "-q").split()
        for task in tasks:
            ctr(at, "tasks", "kill", "-s", "SIGKILL", "-a", task)
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            stop(at, name)
        for task in tasks:
            ctr(at, "tasks", "delete", "-f", task)
        stop(at, "containerd")
        unmount(at, anchor)
        for pid in inhabitants(anchor):
            attempt("kill", f"-{signal.SIGKILL.value}", str(pid))
    attempt("ip", "link", "del", HOST_LINK)
    shutil.rmtree(at.state, ignore_errors=True)


def unmount(at: Layout, anchor: int) -> None:
    """Unmount what containers left in the node's mount namespace."""
    ours = (str(at.state), "/run/containerd", "/run/netns", "/var/run/netns")
    for line in reversed(Path(f"/proc/{anchor}/mounts").read_text().splitlines()):
        target = line.split()[1]
        if target.startswith(ours):
            attempt(*enter(at), "umount", "-l", target)
        if target.startswith("/run/netns/"):
            # The mount was the pod's network; the file that it was mounted on lies in the host's /run.
            Path(target).unlink(missing_ok=True)
