"""Deleting a run leaves nothing behind, in the middle of its life or after it; `proctor doctor` says so."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e import objects
from tests.e2e.faults import Trial, without
from tests.e2e.installation import Installation, forwarded
from tests.e2e.kubectl import until

pytestmark = pytest.mark.cluster
KINDS = "bmr,bmt,pods,jobs,secrets,networkpolicies,configmaps,services,persistentvolumeclaims"


def cli(proctor: Installation, *argv: str) -> tuple[int, Any]:
    """Run `proctor` against the cluster; its exit code and what it printed as JSON."""
    with forwarded(proctor.system, "service/proctor-hub", 8080) as url:
        told = {"PROCTOR_HUB_URL": url, "PROCTOR_TOKEN": proctor.token(), "KUBECONFIG": proctor.runs.kubeconfig}
        done = subprocess.run(
            [sys.executable, "-m", "proctor", *argv, "--json"],
            env={**os.environ, **told},  # noqa: TID251  (handed on to the command)
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def everything(proctor: Installation) -> set[str]:
    """Return the name of every object in the run namespace."""
    return set(proctor.runs("get", KINDS, "--output=name").split())


def assert_nothing_left(proctor: Installation, before: set[str]) -> None:
    """All that came has gone, and `proctor doctor` finds nothing."""
    until("everything has gone", lambda: everything(proctor) <= before or None, 60)
    code, findings = cli(proctor, "doctor")
    (left,) = (finding for finding in findings if finding["what"] == "left behind")
    assert left["good"], left
    assert code == 0, findings


@pytest.mark.parametrize("stage", ["session", "gate"])
def test_a_run_deleted_in_mid_life_leaves_nothing(proctor: Installation, stage: str) -> None:
    """With pods, Secret and policy in being, `kubectl delete` takes them all."""
    before = everything(proctor)
    proctor.apply_run(objects.run("gone"))
    Trial(proctor=proctor, run="gone").await_pod(stage)
    assert everything(proctor) - before
    proctor.delete("gone")
    assert_nothing_left(proctor, before)


def test_a_run_can_be_deleted_while_the_hub_is_away(proctor: Installation) -> None:
    """Finalizers are always released: the hub is told, but not waited for beyond a minute."""
    before = everything(proctor)
    proctor.apply_run(objects.run("gone-too"))
    Trial(proctor=proctor, run="gone-too").await_pod("session")
    with without(proctor, "hub"):
        proctor.delete("gone-too")
    assert_nothing_left(proctor, before)


def test_a_cancelled_run_ends_and_holds_nothing(proctor: Installation) -> None:
    """Cancel is one way: the trial ends as cancelled, its pods go, the record stays."""
    proctor.apply_run(objects.run("stopped"))
    trial = Trial(proctor=proctor, run="stopped")
    trial.await_pod("session")
    proctor.runs("patch", "bmr", "stopped", "--type=merge", '--patch={"spec":{"cancel":true}}')
    proctor.wait("stopped", minutes=2)
    assert trial.status["phase"] == "Cancelled"
    until(
        "its pods have gone", lambda: not proctor.runs.items("pods", "--selector=proctor.dev/run=stopped") or None, 60
    )
    assert proctor.record(trial.object)["standing"] == "Cancelled"
    proctor.delete("stopped")
