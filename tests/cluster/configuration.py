"""What each component is told: configuration files as text and command lines, from a layout and nothing else.

The flags that look odd serve machines with cgroup v1, without CAP_SYS_RESOURCE, and images that cannot be pulled again.
"""

import json
from pathlib import Path

from tests.cluster.layout import NODE, NODE_IP, NODE_POD_CIDR, PAUSE_IMAGE, POD_CIDR, SERVICE_CIDR, Layout


def files(at: Layout) -> dict[str, str]:
    """Return every configuration file by its path below the state folder."""
    return {
        "kubelet.yaml": json.dumps(kubelet(at), indent=1),
        "proxy.yaml": json.dumps(proxy(at), indent=1),
        "resolv.conf": f"nameserver {NODE_IP}\n",
        "Corefile": corefile(at),
        "containerd.toml": containerd(at),
        "cni/10-pods.conflist": json.dumps(cni(), indent=1),
    }


def kubelet(at: Layout) -> dict[str, object]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "enforceNodeAllocatable": ["none"],
        "failSwapOn": False,
        "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
        "maxOpenFiles": 20000,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [NODE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": str(at.state / "resolv.conf"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(at.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(at.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(at.pki / "kubelet-server.key"),
        "maxPods": 200,
        "podPidsLimit": 2048,  # forks are bounded, as formal runs require
        "registryPullQPS": 0,
        # A disk that looks full must not delete images: nothing here can be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def proxy(at: Layout) -> dict[str, object]:
    """Return kube-proxy's configuration; it leaves the host's connection tracking limits alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE,
        "clientConnection": {"kubeconfig": str(at.pki / "kube-proxy.kubeconfig")},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def corefile(at: Layout) -> str:
    """Return the DNS server's configuration: a name that is not there yet is not remembered as absent."""
    return f""".:53 {{
  bind {NODE_IP}
  errors
  ready {NODE_IP}:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {at.pki}/admin.kubeconfig k
    pods insecure
  }}
  cache 5 {{
    disable denial
  }}
}}
"""


def containerd(at: Layout) -> str:
    """Return containerd's configuration."""
    return f"""version = 2
oom_score = 0
root = "{at.state}/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  tolerate_missing_hugetlb_controller = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{at.state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni() -> dict[str, object]:
    """Return the pod network: one bridge, addresses handed out on this node."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": NODE_POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{**bridge, "ipam": addresses}, ports]}


def command(at: Layout, name: str) -> list[str]:
    """Return the command line of a component."""
    program = "/usr/bin/containerd" if name == "containerd" else str(at.binaries / name)
    return [program, *arguments(at)[name]]


def arguments(at: Layout) -> dict[str, list[str]]:
    """Return the arguments of every component."""
    return {
        "etcd": etcd(at.state / "etcd"),
        "containerd": ["--config", str(at.state / "containerd.toml")],
        "kube-apiserver": api_server(at.pki),
        "kube-controller-manager": controller_manager(at.pki),
        "kube-scheduler": [*clients(at.pki, "kube-scheduler"), *QUICK],
        "kubelet": [
            f"--config={at.state}/kubelet.yaml",
            f"--kubeconfig={at.pki}/kubelet.kubeconfig",
            f"--root-dir={at.state}/kubelet",
            f"--hostname-override={NODE}",
            f"--node-ip={NODE_IP}",
        ],
        "kube-proxy": [f"--config={at.state}/proxy.yaml"],
        "coredns": ["-conf", str(at.state / "Corefile")],
        "kube-router": [
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-firewall=true",
            f"--hostname-override={NODE}",
            f"--kubeconfig={at.pki}/admin.kubeconfig",
        ],
    }


# The defaults of 20 and 50 requests a second finish under 4 Jobs and 50 pods a second.
QUICK = ["--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400"]


def clients(pki: Path, name: str) -> list[str]:
    """Return the arguments by which a component knows its clients and is known as one."""
    config = f"{pki}/{name}.kubeconfig"
    return [f"--{flag}={config}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]


def etcd(folder: Path) -> list[str]:
    """Return etcd's arguments: nothing is synced, a test cluster does not outlive the machine."""
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        "--name=e",
        f"--data-dir={folder}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=e={peer}",
    ]


def api_server(pki: Path) -> list[str]:
    """Return the API server's arguments."""
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        f"--advertise-address={NODE_IP}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        "--event-ttl=1h",
        "--profiling=false",
    ]


def controller_manager(pki: Path) -> list[str]:
    """Return the controller manager's arguments."""
    return [
        *clients(pki, "kube-controller-manager"),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={POD_CIDR}",
        "--node-cidr-mask-size=24",
        "--terminated-pod-gc-threshold=20000",
        "--concurrent-job-syncs=10",
        "--node-monitor-grace-period=20s",
        *QUICK,
    ]
