"""The CRDs on a real API server: documentation, refusals that name the field, rules that hold."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e import objects
from tests.e2e.kubectl import Kubectl, Object

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def sandbox(kubectl: Kubectl, crds: None) -> Iterator[Kubectl]:
    """Give a namespace that no operator watches."""
    name = f"objects-{uuid4().hex[:8]}"
    kubectl("create", "namespace", name)
    yield Kubectl(kubeconfig=kubectl.kubeconfig, namespace=name)
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        pytest.param("benchmarkrun.spec.arms", "The experimental conditions.", id="arms"),
        pytest.param("bmr.spec.arms.agent", "one declared mistake", id="agent, by the short name"),
        pytest.param("trial.status.result", "The verdict as counted by the hub", id="result"),
        pytest.param("bts.spec.tasks.package", "Digest of the package in the hub", id="package"),
    ],
)
def test_explain_shows_the_documentation(sandbox: Kubectl, path: str, sentence: str) -> None:
    """The literal under a field in wire/ is what `kubectl explain` prints."""
    assert sentence in " ".join(sandbox("explain", path).split())


def changed(**spec: Any) -> Object:
    """Return a run with other fields; None takes a field away."""
    body = objects.run("bad")
    body["spec"] = {key: value for key, value in {**body["spec"], **spec}.items() if value is not None}
    return body


NOP = objects.arm("nop")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(changed(arms=[]), "spec.arms", id="no arms"),
        pytest.param(changed(arms=None), "spec.arms", id="arms left out"),
        pytest.param(changed(suite=None), "spec.suite", id="suite left out"),
        pytest.param(changed(arms=[{"name": "a"}]), "spec.arms[0].agent", id="arm without agent"),
        pytest.param(changed(arms=[{"name": "a", "agent": {"kind": "gpt"}}]), "spec.arms[0].agent.kind", id="kind"),
        pytest.param(changed(arms=[{"name": "A", "agent": {"kind": "nop"}}]), "spec.arms[0].name", id="arm's name"),
        pytest.param(changed(arms=[NOP, NOP]), "spec.arms[1]", id="an arm twice"),
        pytest.param(changed(tasks=["a", "a"]), "spec.tasks[1]", id="a task twice"),
        pytest.param(changed(arms=[{"name": "m", "agent": {"kind": "mutant"}}]), "agent.mutant", id="mutant missing"),
        pytest.param(
            changed(arms=[{"name": "m", "agent": {"kind": "nop", "mutant": "x"}}]), "agent.mutant", id="mutant too many"
        ),
        pytest.param(changed(suspendedArms=["other"]), "spec.suspendedArms", id="suspended arm unknown"),
        pytest.param(changed(repetitions=0), "spec.repetitions", id="no repetitions"),
        pytest.param(changed(parallelism=-1), "spec.parallelism", id="parallelism below zero"),
        pytest.param(changed(limits={"turns": 0}), "spec.limits.turns", id="no turns"),
        pytest.param(changed(evaluation={"shards": 17}), "spec.evaluation.shards", id="too many shards"),
        pytest.param(changed(arm=[]), 'unknown field "spec.arm"', id="a field that does not exist"),
        pytest.param(changed(user={"kind": "llm"}), "spec.user.kind", id="user not to be had"),
        pytest.param({**changed(), "metadata": {"name": "x" * 36}}, "metadata.name", id="name too long"),
        pytest.param({**changed(), "metadata": {"name": "1-run"}}, "metadata.name", id="name starts with a digit"),
        pytest.param({**changed(), "metadata": {"name": "a.b"}}, "metadata.name", id="name with a dot"),
    ],
)
def test_a_bad_run_is_refused_naming_the_field(sandbox: Kubectl, body: Object, field: str) -> None:
    """No bad manifest gets past `kubectl apply`."""
    assert field in sandbox.refusal("apply", "-f", "-", given=body)


@pytest.mark.parametrize(
    ("tasks", "field"),
    [
        pytest.param([], "spec.tasks", id="no tasks"),
        pytest.param([{"name": "a", "package": "sha256:12"}], "spec.tasks[0].package", id="not a digest"),
        pytest.param([{"name": "a", "package": objects.DIGEST}] * 2, "spec.tasks[1]", id="a task twice"),
    ],
)
def test_a_bad_suite_is_refused_naming_the_field(sandbox: Kubectl, tasks: list[Object], field: str) -> None:
    """The same for suites."""
    assert field in sandbox.refusal("apply", "-f", "-", given=objects.suite("bad", *tasks))


def merge(kind: str, name: str, patch: Object, *flags: str) -> tuple[str, ...]:
    """Return the arguments of a merge patch."""
    return ("patch", kind, name, "--type=merge", f"--patch={json.dumps(patch)}", *flags)


@pytest.fixture(scope="module")
def stored_run(sandbox: Kubectl) -> str:
    """Give the name of a stored run with two repetitions."""
    sandbox.apply(objects.run("kept", ("nop", "oracle"), repetitions=2))
    return "kept"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("suite", "other", id="suite"),
        pytest.param("tasks", [], id="tasks"),
        pytest.param("arms", [NOP], id="an arm taken away"),
        pytest.param("arms", [NOP, objects.arm("oracle"), objects.arm("mutant:x")], id="an arm added"),
        pytest.param("seed", 1, id="seed"),
        pytest.param("limits", {"turns": 3}, id="limits"),
        pytest.param("evaluation", {"shards": 3}, id="evaluation"),
        pytest.param("formal", True, id="formal"),
    ],
)
def test_what_a_run_measures_cannot_be_edited(sandbox: Kubectl, stored_run: str, field: str, value: Any) -> None:
    """The refusal names the field and says what to do instead."""
    said = sandbox.refusal(*merge("benchmarkrun", stored_run, {"spec": {field: value}}))
    assert f"spec.{field}" in said
    assert "copy the run under a new name" in said


def test_what_may_change_changes_in_its_direction(sandbox: Kubectl, stored_run: str) -> None:
    """Parallelism, suspension and TTL go both ways; repetitions only grow; cancel stays."""
    for spec in (
        {"parallelism": 0, "suspend": True, "suspendedArms": ["nop"], "ttlSecondsAfterFinished": 60},
        {"parallelism": 3, "suspend": False, "suspendedArms": [], "ttlSecondsAfterFinished": None},
        {"repetitions": 3},
        {"cancel": True},
    ):
        sandbox(*merge("benchmarkrun", stored_run, {"spec": spec}))
    fewer = sandbox.refusal(*merge("benchmarkrun", stored_run, {"spec": {"repetitions": 2}}))
    assert "repetitions may only grow" in fewer
    again = sandbox.refusal(*merge("benchmarkrun", stored_run, {"spec": {"cancel": False}}))
    assert "cancel cannot be taken back" in again


def test_a_trial_is_fixed_but_for_three_switches(sandbox: Kubectl) -> None:
    """Every pinned field refuses an edit, the optional image in both directions; suspend, cancel, retries move."""
    sandbox.apply(objects.trial("fixed"))
    others = {
        "runRef": {"name": "x"}, "index": 1, "task": "x", "package": "sha256:" + "b" * 64, "image": "x",
        "arm": {"name": "x"}, "repetition": 2, "limits": {"turns": 1}, "evaluation": {"shards": 1}, "formal": True,
    }  # fmt: skip
    for field, value in others.items():
        assert f"spec.{field}" in sandbox.refusal(*merge("trial", "fixed", {"spec": {field: value}}))
    sandbox(*merge("trial", "fixed", {"spec": {"suspend": True, "retries": 1}}))
    sandbox(*merge("trial", "fixed", {"spec": {"suspend": False, "cancel": True}}))
    for back in ({"retries": 0}, {"cancel": False}):
        assert "spec." in sandbox.refusal(*merge("trial", "fixed", {"spec": back}))


def test_a_verdict_is_written_once(sandbox: Kubectl) -> None:
    """Rules under status hold on the status subresource: neither another result nor none, and no attempt taken back."""
    sandbox.apply(objects.trial("judged"))
    status = ("--subresource=status",)
    sandbox(*merge("trial", "judged", {"status": {"attempt": 2, "phase": "Evaluating"}}, *status))
    sandbox(*merge("trial", "judged", {"status": {"result": objects.RESULT, "phase": "Graded"}}, *status))
    sandbox(*merge("trial", "judged", {"status": {"result": objects.RESULT}}, *status))
    for change in ({"result": {"passed": 15}}, {"result": None}):
        assert "written once" in sandbox.refusal(*merge("trial", "judged", {"status": change}, *status))
    assert "may only grow" in sandbox.refusal(*merge("trial", "judged", {"status": {"attempt": 1}}, *status))


def test_status_cannot_be_written_with_the_spec(sandbox: Kubectl) -> None:
    """A user's apply cannot set a result."""
    sandbox.apply({**objects.trial("forged"), "status": {"phase": "Graded", "result": objects.RESULT}})
    assert "result" not in sandbox.get("trial", "forged").get("status", {})


def test_wait_follows_conditions(sandbox: Kubectl) -> None:
    """`kubectl wait --for=condition=Complete` works, and not by a condition of an older generation."""
    sandbox.apply(objects.run("waited"))
    done = {
        "type": "Complete",
        "status": "True",
        "reason": "AllTrialsFinished",
        "lastTransitionTime": "2026-11-30T00:00:00Z",
    }
    wait = ("wait", "--for=condition=Complete", "bmr/waited")
    sandbox(*merge("bmr", "waited", {"status": {"conditions": [done]}}, "--subresource=status"))
    assert "timed out" in sandbox.refusal(*wait, "--timeout=1s")
    current = {"observedGeneration": 1, "conditions": [{**done, "observedGeneration": 1}]}
    sandbox(*merge("bmr", "waited", {"status": current}, "--subresource=status"))
    assert "condition met" in sandbox(*wait, "--timeout=5s")


def test_lists_select_and_show_what_matters(sandbox: Kubectl) -> None:
    """Printer columns, short names, the category and field selectors."""
    sandbox.apply(objects.run("shown"), objects.trial("chosen", task="other"), objects.trial("ignored"))
    sandbox(*merge("trial", "chosen", {"status": {"phase": "Checking"}}, "--subresource=status"))
    for selector in ("spec.task=other", "status.phase=Checking", "spec.runRef.name=none,spec.task=other"):
        names = [item["metadata"]["name"] for item in sandbox.items("bmt", f"--field-selector={selector}")]
        assert names == ["chosen"]
    assert sandbox("get", "bmr").split()[:7] == ["NAME", "PHASE", "TOTAL", "ACTIVE", "GRADED", "ERRORED", "AGE"]
    assert sandbox("get", "bmt").split()[:7] == ["NAME", "RUN", "TASK", "ARM", "PHASE", "ATTEMPT", "AGE"]
    assert "benchmarkrun.proctor.dev/shown" in sandbox("get", "proctor", "--output=name")
