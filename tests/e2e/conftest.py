"""A real cluster for the tests marked `cluster`: KUBECONFIG says which. Nothing is skipped when it is missing."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from proctor.crds import REPOSITORY
from tests.e2e.installation import Installation, install, uninstall
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.outcomes import outcomes


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """Give kubectl for the cluster of KUBECONFIG."""
    kubeconfig = os.environ.get("KUBECONFIG")  # noqa: TID251  (the one place where the tests learn their cluster)
    assert kubeconfig, "KUBECONFIG is not set; `make test` starts a cluster and sets it"
    return Kubectl(kubeconfig=kubeconfig)


@pytest.fixture(scope="session")
def crds(kubectl: Kubectl) -> None:
    """Apply the CRDs as the README says."""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
    for plural in ("benchmarkruns", "trials", "tasksuites"):
        kubectl("wait", "--for=condition=Established", f"crd/{plural}.proctor.dev", "--timeout=30s")


@pytest.fixture(scope="session")
def proctor(kubectl: Kubectl, crds: None) -> Iterator[Installation]:
    """Install the chart; with PROCTOR_E2E_KEEP set leave it there, for a quick second run."""
    yield install(kubectl)
    if not os.environ.get("PROCTOR_E2E_KEEP"):  # noqa: TID251  (for people at work on the tests)
        uninstall(kubectl)


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """The finished quickstart: its trials and their cases, by the kind of their agent."""

    trials: dict[str, Object]
    outcomes: dict[str, dict[str, str]]


@pytest.fixture(scope="session")
def quickstart(proctor: Installation) -> Quickstart:
    """Run the quickstart as the README says."""
    proctor.delete("quickstart")
    proctor.runs("apply", "-f", str(REPOSITORY / "examples" / "quickstart.yaml"))
    proctor.wait("quickstart", minutes=20)
    trials = {trial["spec"]["arm"]["agent"]["kind"]: trial for trial in proctor.trials("quickstart")}
    return Quickstart(trials=trials, outcomes={kind: outcomes(proctor.record(trial)) for kind, trial in trials.items()})


@pytest.fixture(scope="session")
def undisturbed(quickstart: Quickstart) -> dict[str, dict[str, str]]:
    """Give what every case comes to without any fault, by the kind of the agent."""
    return quickstart.outcomes
