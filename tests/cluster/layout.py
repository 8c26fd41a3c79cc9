"""Where the test cluster keeps its things and which addresses it uses.

Binaries outlive everything (they take minutes to compile), state is thrown away by `down`. The node lives in a network
namespace of its own; its addresses are private to it, so they are constants. One node at a time on a machine.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = "1.36.3"
NODE: Final = "n1"
NODE_IP: Final = "10.250.0.1"
HOST_IP: Final = "10.251.0.1"
"""This machine, as pods see it."""
API_IP: Final = "10.251.0.2"
"""The API server, as this machine sees it."""
POD_CIDR: Final = "10.244.0.0/16"
NODE_POD_CIDR: Final = "10.244.0.0/24"
SERVICE_CIDR: Final = "10.96.0.0/16"
API_SERVICE_IP: Final = "10.96.0.1"
PAUSE_IMAGE: Final = "proctor.test/pause:1"

KUBERNETES: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
COMPONENTS: Final = ("etcd", "containerd", *KUBERNETES, "coredns", "kube-router")
MODULES: Final = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Layout:
    """The two folders."""

    binaries: Path
    state: Path

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def kubeconfig(self) -> Path:
        """What a client on this machine uses; it names certificates by path."""
        return self.pki / "outside.kubeconfig"

    @property
    def anchor(self) -> Path:
        """The pid of the process that keeps the node's namespaces."""
        return self.state / "anchor.pid"


def layout() -> Layout:
    """Return the folders as the environment says."""
    binaries = os.environ.get("PROCTOR_CLUSTER_BIN", "/var/cache/proctor-cluster/bin")
    state = os.environ.get("PROCTOR_CLUSTER_STATE", "/var/lib/proctor-cluster")
    return Layout(Path(binaries), Path(state))
