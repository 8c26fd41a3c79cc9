"""What untrusted code can reach and read on a real cluster: as the agent in the sandbox, as a submission in the sut.

One trial is held while its sandbox, its sut and its gate live, by stopping the operator; afterwards it goes on and is
graded as if nothing had happened.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from proctor.crds import REPOSITORY
from tests.e2e import inside, objects
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, Object, until
from wire.names import LABEL_ROLE, LABEL_TRIAL
from wire.sandbox import CommandSpec

pytestmark = pytest.mark.cluster
TASK = REPOSITORY / "tasks" / "transfer" / "capacity-lease"


@dataclass(frozen=True, kw_only=True)
class Held:
    """A trial in mid-life: its untrusted pods, and where everything else is."""

    trial: Object
    pods: dict[str, Object]
    targets: dict[str, str]


def serving(kubectl: Kubectl, image: str, name: str) -> str:
    """Start a pod that answers HTTP to anyone, and return its address."""
    kubectl("delete", "pod", name, "--ignore-not-found")
    box = {
        "name": "box",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "http.server", "9000", "--directory", "/submission"],
        "readinessProbe": {"httpGet": {"path": "/", "port": 9000}, "periodSeconds": 1},
    }
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [box]}})
    kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    return str(kubectl.get("pod", name)["status"]["podIP"])


def addresses(proctor: Installation) -> dict[str, str]:
    """Return every place that untrusted pods must not reach, and what they must see there."""
    system = proctor.system
    services = {item["metadata"]["name"]: item["spec"]["clusterIP"] for item in system.items("services")}
    pods = {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["status"]["podIP"]
        for item in system.items("pods", "--field-selector=status.phase=Running")
    }
    node = system.items("nodes")[0]
    node_ip = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    resolver = system("exec", "deploy/proctor-hub", "--", "cat", "/etc/resolv.conf")
    name_server = next(line.split()[1] for line in resolver.splitlines() if line.startswith("nameserver"))
    everywhere = Kubectl(kubeconfig=system.kubeconfig)
    api_service = everywhere.get("service", "kubernetes")["spec"]["clusterIP"]
    endpoint = everywhere.items("endpointslices", "--selector=kubernetes.io/service-name=kubernetes")[0]
    api = endpoint["endpoints"][0]["addresses"][0], endpoint["ports"][0]["port"]
    return {
        "hub's service": f"tcp://{services['proctor-hub']}:8080",
        "hub's pod": f"tcp://{pods['hub']}:8080",
        "database's service": f"tcp://{services['proctor-postgresql']}:5432",
        "database's pod": f"tcp://{pods['postgresql']}:5432",
        "API server's service": f"tcp://{api_service}:443",
        "API server": f"tcp://{api[0]}:{api[1]}",
        "metadata address": "tcp://169.254.169.254:80",
        "name server by UDP": f"udp-dns://{name_server}",
        "name server by TCP": f"tcp://{name_server}:53",
        "a name": "name://kubernetes.default.svc.cluster.local",
        "the world": "tcp://1.1.1.1:443",
        "kubelet": f"https://{node_ip}:10250/pods",
        "kubelet, read-only port": f"tcp://{node_ip}:10255",
        "gateway's service": f"http://{services['proctor-gateway']}:8081/healthz",
    }


@pytest.fixture(scope="module")
def held(proctor: Installation) -> Iterator[Held]:
    """Hold a nop trial while the gate is at work."""
    proctor.apply_run(objects.run("isolation"))
    trial = until("the trial is made", lambda: next(iter(proctor.trials("isolation")), None), 30)
    name = trial["metadata"]["name"]

    def living() -> dict[str, Object] | None:
        found = {role: inside.pods(proctor, name, role) for role in ("sandbox", "sut")}
        ready = {role: pods[0] for role, pods in found.items() if pods and inside.is_ready(pods[0])}
        return ready if len(ready) == 2 else None

    living_pods = until("sandbox and sut live side by side", living, 240, 0.3)
    proctor.system("scale", "deployment/proctor-operator", "--replicas=0")
    # Before it ends, the gate stops every process of the agent's user in the sut: a probe would be one of them.
    gate = f"--selector={LABEL_TRIAL}={name},{LABEL_ROLE}=gate"
    until("the gate is over", lambda: "Succeeded" in proctor.runs("get", "pods", gate, "--output=yaml") or None, 240)
    others = Kubectl(kubeconfig=proctor.runs.kubeconfig)
    image = proctor.images["sandbox"]
    bystanders = {
        "a pod beside it": f"tcp://{serving(proctor.runs, image, 'bystander')}:9000",
        "a pod elsewhere": f"tcp://{serving(others, image, 'bystander')}:9000",
        "the sut": f"tcp://{living_pods['sut']['status']['podIP']}:7070",
        "the sandbox": f"tcp://{living_pods['sandbox']['status']['podIP']}:7070",
    }
    yield Held(trial=trial, pods=living_pods, targets={**addresses(proctor), **bystanders})
    for there in (proctor.runs, others):
        there("delete", "pod", "bystander", "--grace-period=0", "--force", "--ignore-not-found")
    proctor.system("scale", "deployment/proctor-operator", "--replicas=1")
    proctor.wait("isolation")
    assert proctor.trials("isolation")[0]["status"]["phase"] == "Graded"
    proctor.delete("isolation")


@pytest.mark.parametrize(("role", "self_name"), [("sandbox", "the sandbox"), ("sut", "the sut")])
def test_nothing_but_the_gateway_can_be_reached(proctor: Installation, held: Held, role: str, self_name: str) -> None:
    """Hub, database, API server, other pods, DNS, metadata and the world are closed; the kubelet answers 401."""
    found = inside.probe(proctor, held.pods[role], held.targets)
    assert found.pop("uid") == 1000
    assert found.pop("gateway's service") == "200", "the control: were it closed too, the rest would prove nothing"
    assert found.pop(self_name) == "open", "a pod reaches itself"
    assert found.pop("kubelet") in {"401", "closed"}
    assert {name for name, answer in found.items() if answer != "closed"} == set()


def secret_lines() -> Iterator[str]:
    """Yield lines that only hidden material has: the longest of each hidden file that no public file holds."""
    public = "\n".join(_text(path) for path in (TASK / "public").rglob("*") if path.is_file())
    hidden = chain((TASK / "private").rglob("*"), (TASK / "user").rglob("*"))
    for path in hidden:
        if path.is_file() and path.suffix in {".py", ".ts", ".tsx", ".sql", ".toml", ".patch"}:
            lines = [line.strip() for line in _text(path).splitlines()]
            own = [line for line in lines if len(line) >= 40 and line not in public]
            if own:
                yield max(own, key=len)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


@pytest.mark.parametrize("role", ["sandbox", "sut"])
def test_hidden_material_is_nowhere_in_the_pod(proctor: Installation, held: Held, role: str) -> None:
    """Not even root of the container finds a line of the hidden suite, the solution, a mutant or the scenario."""
    lines = sorted(set(secret_lines()))
    assert len(lines) >= 10
    # The pattern file itself is the control: it must be the only find.
    search = "grep -rlF --exclude-dir=proc --exclude-dir=sys -f /tmp/lines / 2>/dev/null"
    script = f"cat > /tmp/lines && {search}; rm /tmp/lines"
    name = held.pods[role]["metadata"]["name"]
    kubectl = proctor.runs
    found = kubectl.feed("\n".join(lines) + "\n", "exec", "-i", name, "--container=sandbox", "--", "sh", "-c", script)
    assert found.split() == ["/tmp/lines"]


def test_the_agent_cannot_read_its_pods_secrets(proctor: Installation, held: Held) -> None:
    """Token and bearer belong to root; there is no account token; the daemon's environment is closed."""
    script = (
        "for f in /run/secrets/proctor/token /run/secrets/proctor/daemon /proc/1/environ "
        "/var/run/secrets/kubernetes.io/serviceaccount/token; do cat $f >/dev/null 2>&1 && echo $f; done; true"
    )
    for pod in held.pods.values():
        with inside.daemon(proctor, pod) as daemon:
            done = daemon.run("secrets", CommandSpec(argv=["sh", "-c", script], cwd="/"))
        assert done.passed
        assert done.tail == b""


def calls(uid: str) -> list[tuple[str, str, Any]]:
    """Return every call that could change a result."""
    entry = {
        "kind": "caseReported",
        "case": "A-01",
        "attempt": 1,
        "shard": 0,
        "outcome": "passed",
        "seconds": 1.0,
        "at": "now",
    }
    return [
        ("POST", f"/v1/trials/{uid}/journal", [entry]),
        ("POST", f"/v1/trials/{uid}/settle", {"phase": "Graded"}),
        ("GET", f"/v1/trials/{uid}/journal", None),
        ("GET", f"/v1/trials/{uid}/parts/evaluator", None),
        ("GET", f"/v1/trials/{uid}/parts/public", None),
        ("PUT", f"/v1/archives/{objects.DIGEST}", None),
        ("GET", f"/v1/archives/{objects.DIGEST}", None),
        ("GET", f"/v1/trials/{uid}", None),
        ("GET", "/v1/runs", None),
    ]


def test_nothing_a_sandbox_holds_can_write_a_result(proctor: Installation, held: Held) -> None:
    """With every secret that root of the container can read, the hub refuses every call, were it reachable."""
    uid = held.trial["metadata"]["uid"]
    for pod in held.pods.values():
        secrets = inside.as_root(
            proctor, pod, "sh", "-c", "cd /run/secrets/proctor && for f in *; do cat $f; echo; done"
        ).split()
        assert secrets
        for secret in secrets:
            with proctor.hub(secret) as hub:
                answers = {path: hub.request(method, path, json=body).status_code for method, path, body in calls(uid)}
            assert set(answers.values()) <= {401, 403}, answers
    with proctor.hub() as hub:
        # The control: the same calls are not refused to those who may.
        assert hub.get(f"/v1/trials/{uid}").status_code == 200
