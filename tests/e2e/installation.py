"""Proctor on the cluster, installed by its chart, and what tests ask of it."""

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

from proctor.crds import REPOSITORY
from tests.e2e import volumes
from tests.e2e.kubectl import Failed, Kubectl, Object, fetched, run
from wire.token import Role, Token, mint

SYSTEM, RUNS = "proctor-system", "proctor-runs"
CHART = REPOSITORY / "charts" / "proctor"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A running installation: kubectl for both namespaces, and the hub's API by a forwarded port."""

    system: Kubectl
    runs: Kubectl
    images: dict[str, str]

    def key(self) -> bytes:
        """Return the installation key."""
        return b64decode(self.system.get("secret", "proctor-installation-key")["data"]["key"])

    def token(self, role: Role = Role.OPERATOR, trial: str = "-", attempt: int = 0) -> str:
        """Mint a token; the operator's own unless told otherwise."""
        return mint(self.key(), Token(trial=trial, attempt=attempt, role=role))

    @contextmanager
    def hub(self, token: str | None = None) -> Iterator[httpx.Client]:
        """Give a client of the hub with a token; by default the operator's."""
        with forwarded(self.system, "service/proctor-hub", 8080) as url:
            bearer = {"Authorization": f"Bearer {token or self.token()}"}
            with httpx.Client(base_url=url, headers=bearer, timeout=30) as client:
                yield client

    def wait(self, name: str, condition: str = "Complete", minutes: float = 15) -> None:
        """Wait for a condition of a run, and say how its trials stand if it does not come."""
        try:
            self.runs(
                "wait", f"--for=condition={condition}", f"bmr/{name}", f"--timeout={int(minutes * 60)}s",
                timeout_seconds=minutes * 60 + 30,
            )  # fmt: skip
        except Failed as late:
            raise AssertionError(f"{late}\n{self.state(name)}") from late

    def state(self, name: str) -> str:
        """Return what a person would look at."""
        parts = (
            self.runs("get", "bmr,bmt,pods,jobs", "--output=wide"),
            json.dumps(self.runs.get("bmr", name).get("status"), indent=1),
            *(json.dumps(trial["status"], indent=1) for trial in self.trials(name) if "status" in trial),
            self.runs("get", "events", "--sort-by=.lastTimestamp"),
            self.system("logs", "deployment/proctor-operator", "--tail=60"),
        )
        return "\n".join(parts)

    def trials(self, name: str) -> list[Object]:
        """Return a run's trials in their order."""
        found = self.runs.items("trials", f"--field-selector=spec.runRef.name={name}")
        return sorted(found, key=lambda trial: int(trial["spec"]["index"]))

    def trial(self, name: str, arm: str) -> Object:
        """Return the one trial of an arm."""
        (found,) = (trial for trial in self.trials(name) if trial["spec"]["arm"]["name"] == arm)
        return found

    def record(self, trial: Object) -> Any:
        """Return what the hub knows of a trial: record, settlement, verdict with every case."""
        with self.hub() as hub:
            return hub.get(f"/v1/trials/{trial['metadata']['uid']}").raise_for_status().json()

    def apply_run(self, body: Object) -> Object:
        """Apply a run; a leftover of the same name is deleted first."""
        self.delete(body["metadata"]["name"])
        self.runs.apply(body)
        return body

    def delete(self, name: str) -> None:
        """Delete a run and wait until it is gone."""
        self.runs("delete", "bmr", name, "--ignore-not-found", "--timeout=120s", timeout_seconds=150)


def refs() -> dict[str, str]:
    """Return the image names that belong to the checkout's code."""
    told: dict[str, str] = json.loads(run([sys.executable, str(REPOSITORY / "images" / "build.py"), "refs"]))
    return told


def install(kubectl: Kubectl) -> Installation:
    """Install the chart as the README says, with persistence, and wait until everything is ready."""
    images = refs()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}})
    values = [
        f"{name}.{key}"
        for name, ref in (("image", "proctor"), ("sandboxImage", "sandbox"))
        for key in _parts(images[ref])
    ]
    if not volumes.has_default_class(kubectl):
        volumes.provide(kubectl, SYSTEM, images["sandbox"])
        values += [
            "postgresql.persistence.existingClaim=e2e-postgresql",
            "store.folder.persistence.existingClaim=e2e-store",
        ]
    helm(
        kubectl,
        "upgrade",
        "--install",
        "proctor",
        str(CHART),
        "--wait",
        "--timeout=5m",
        *(f"--set={value}" for value in values),
    )
    system, runs = (Kubectl(kubeconfig=kubectl.kubeconfig, namespace=name) for name in (SYSTEM, RUNS))
    return Installation(system=system, runs=runs, images=images)


def uninstall(kubectl: Kubectl) -> None:
    """Remove everything that an installation made, what Helm keeps included."""
    runs = Kubectl(kubeconfig=kubectl.kubeconfig, namespace=RUNS)
    runs("delete", "bmr", "--all", "--timeout=180s", timeout_seconds=200)
    helm(kubectl, "uninstall", "proctor", "--wait", "--ignore-not-found")
    kubectl("delete", "namespace", RUNS, SYSTEM, "--ignore-not-found", "--timeout=180s", timeout_seconds=200)
    if not volumes.has_default_class(kubectl):
        volumes.remove(kubectl, refs()["sandbox"])


def helm(kubectl: Kubectl, *argv: str) -> str:
    """Run helm on the installation's namespace."""
    program = fetched("helm")
    return run([program, f"--kubeconfig={kubectl.kubeconfig}", f"--namespace={SYSTEM}", *argv], timeout_seconds=400)


def _parts(ref: str) -> Sequence[str]:
    """Return an image's name as values."""
    repository, _, tag = ref.rpartition(":")
    return f"repository={repository}", f"tag={tag}"


@contextmanager
def forwarded(kubectl: Kubectl, target: str, port: int) -> Iterator[str]:
    """Forward a free local port to a Service or pod and give its URL."""
    argv = [fetched("kubectl"), f"--kubeconfig={kubectl.kubeconfig}", f"--namespace={kubectl.namespace}"]
    with subprocess.Popen([*argv, "port-forward", target, f":{port}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "->" in line, f"cannot forward to {target}"
            yield f"http://{line.split(' ')[2]}"
        finally:
            process.terminate()
