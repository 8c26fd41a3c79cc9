"""What the cluster in memory does beyond the contract: graceful pod ends, Jobs, determinism, refusals."""

from datetime import UTC, datetime

import pytest

from controller.cluster import Kind, Object, Rejected
from proctor.local.admission import admit
from proctor.local.memory import MemoryCluster
from proctor.local.objects import Notice, Objects, merge

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def objects() -> Objects:
    return Objects(lambda: NOW)


def body(name: str, **extra: object) -> Object:
    return {"metadata": {"name": name, "namespace": "runs"}, **extra}


def pod(name: str) -> Object:
    return body(name, spec={"containers": [{"name": "box"}], "terminationGracePeriodSeconds": 5})


def job(shards: int = 2) -> Object:
    template = {"metadata": {"labels": {"role": "evaluate"}}, "spec": {"containers": [{"name": "box", "env": []}]}}
    return body("job", spec={"completions": shards, "activeDeadlineSeconds": 60, "template": template})


def shard_pods(cluster: MemoryCluster) -> list[Object]:
    return list(cluster.objects.all(Kind.Pod))


def ended(cluster: MemoryCluster, shard: int, phase: str) -> None:
    cluster.objects.set_status(Kind.Pod, shard_pods(cluster)[shard], {"phase": phase})


def status_of_job(cluster: MemoryCluster) -> Object:
    found = cluster.objects.get(Kind.Job, "runs", "job")
    assert found is not None
    status: Object = found["status"]
    return status


def test_a_running_pod_stays_until_its_kubelet_has_ended_it() -> None:
    """Deleting a bound pod marks it with its grace; the kubelet's own delete ends it."""
    held = objects()
    made = held.create(Kind.Pod, pod("a"))
    held.bind(made, "node")
    held.delete(Kind.Pod, made)
    marked = held.get(Kind.Pod, "runs", "a")
    assert marked is not None
    assert marked["metadata"]["deletionTimestamp"] == "2026-12-01T00:00:05Z"
    held.set_status(Kind.Pod, made, {"phase": "Running"})
    assert held.get(Kind.Pod, "runs", "a") is not None
    held.delete(Kind.Pod, made, grace_seconds=0)
    assert held.get(Kind.Pod, "runs", "a") is None


def test_an_ended_pod_goes_at_once() -> None:
    """There is nothing to wait for."""
    held = objects()
    made = held.create(Kind.Pod, pod("a"))
    held.bind(made, "node")
    held.set_status(Kind.Pod, made, {"phase": "Succeeded"})
    held.delete(Kind.Pod, made)
    assert held.get(Kind.Pod, "runs", "a") is None


def test_a_status_of_an_earlier_pod_is_not_written_to_its_successor() -> None:
    """A kubelet that is late writes to the UID it knows or not at all."""
    held = objects()
    old = held.create(Kind.Pod, pod("a"))
    held.delete(Kind.Pod, old)
    held.create(Kind.Pod, pod("a"))
    held.set_status(Kind.Pod, old, {"phase": "Failed"})
    found = held.get(Kind.Pod, "runs", "a")
    assert found is not None
    assert found["status"]["phase"] == "Pending"


def test_listeners_hear_every_write_in_order() -> None:
    """Also what another listener writes while it is told."""
    held, heard = objects(), list[tuple[str, str]]()

    def answer(seen: Notice) -> None:
        if seen.object["metadata"]["name"] == "a":
            held.create(Kind.Secret, body("b"))

    held.listen(answer)
    held.listen(lambda seen: heard.append((seen.kind.name, seen.object["metadata"]["name"])))
    held.create(Kind.Lease, body("a"))
    assert heard == [("Lease", "a"), ("Secret", "b")]


def test_the_same_calls_give_the_same_objects() -> None:
    """UIDs and versions are counted, so a crash test can compare two lives."""
    first, second = objects(), objects()
    for held in (first, second):
        made = held.create(Kind.Secret, body("a"))
        held.patch(Kind.Secret, made, {"data": {"x": "eA=="}})
    assert list(first.everything()) == list(second.everything())


def test_an_immutable_secret_keeps_its_data() -> None:
    """As the API server has it."""
    held = objects()
    made = held.create(Kind.Secret, body("a", immutable=True, data={"x": "eA=="}))
    with pytest.raises(Rejected, match="immutable"):
        held.patch(Kind.Secret, made, {"data": {"x": "eQ=="}})


def test_what_is_created_for_a_gone_owner_is_collected() -> None:
    """A child that comes too late does not stay."""
    held = objects()
    owned = body("late")
    owned["metadata"]["ownerReferences"] = [{"kind": "Trial", "name": "t", "uid": "gone"}]
    held.create(Kind.Secret, owned)
    assert held.get(Kind.Secret, "runs", "late") is None


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param({"a": 1}, {"b": 2}, {"a": 1, "b": 2}, id="adds"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null removes"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}, id="merges deep"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="replaces lists"),
        pytest.param({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="a value becomes an object"),
    ],
)
def test_a_merge_patch_follows_its_rfc(target: object, patch: object, expected: object) -> None:
    """RFC 7386, the cases that we use."""
    assert merge(target, patch) == expected


def test_an_indexed_job_makes_one_pod_for_each_index() -> None:
    """With the index as label and environment, the Job's deadline, and names that are its own."""
    cluster = MemoryCluster(lambda: NOW)
    cluster.objects.create(Kind.Job, job())
    pods = shard_pods(cluster)
    assert [p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for p in pods] == ["0", "1"]
    assert [p["spec"]["containers"][0]["env"] for p in pods] == [
        [{"name": "JOB_COMPLETION_INDEX", "value": "0"}],
        [{"name": "JOB_COMPLETION_INDEX", "value": "1"}],
    ]
    assert pods[0]["metadata"]["name"].startswith("job-0-")
    assert pods[0]["spec"]["activeDeadlineSeconds"] == 60
    assert status_of_job(cluster)["active"] == 2


def test_a_job_is_complete_when_every_index_is() -> None:
    """Condition Complete, all indexes listed."""
    cluster = MemoryCluster(lambda: NOW)
    cluster.objects.create(Kind.Job, job())
    ended(cluster, 0, "Succeeded")
    assert "conditions" not in status_of_job(cluster)
    ended(cluster, 1, "Succeeded")
    status = status_of_job(cluster)
    assert [condition["type"] for condition in status["conditions"]] == ["Complete"]
    assert (status["succeeded"], status["completedIndexes"]) == (2, "0-1")


@pytest.mark.parametrize("way", ["fails", "is lost"])
def test_a_failed_or_lost_index_fails_the_job_and_makes_no_second_pod(way: str) -> None:
    """backoffLimitPerIndex 0: another try is the operator's decision."""
    cluster = MemoryCluster(lambda: NOW)
    cluster.objects.create(Kind.Job, job())
    ended(cluster, 1, "Succeeded")
    if way == "fails":
        ended(cluster, 0, "Failed")
    else:
        cluster.objects.delete(Kind.Pod, shard_pods(cluster)[0])
    status = status_of_job(cluster)
    assert [condition["type"] for condition in status["conditions"]] == ["Failed"]
    assert (status["failedIndexes"], status["completedIndexes"]) == ("0", "1")
    assert len(shard_pods(cluster)) == (2 if way == "fails" else 1)


def test_deleting_a_job_ends_its_pods() -> None:
    """They belong to it."""
    cluster = MemoryCluster(lambda: NOW)
    made = cluster.objects.create(Kind.Job, job())
    cluster.objects.delete(Kind.Job, made)
    assert not shard_pods(cluster)


def run(**spec: object) -> Object:
    arms = [{"name": "nop", "agent": {"kind": "nop"}}]
    return body("quick", spec={"suite": "engram-transfer", "arms": arms, **spec})


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(run(arms=[]), "spec.arms", id="no arm"),
        pytest.param(run(repetitions=0), "spec.repetitions", id="no repetition"),
        pytest.param(run(color="red"), "spec.color", id="unknown field"),
        pytest.param(run(arms=[{"name": "a"}]), "spec.arms[0].agent", id="arm without agent"),
        pytest.param(
            run(arms=[{"name": "a", "agent": {"kind": "mutant"}}]), "spec.arms[0].agent.mutant", id="no mutant"
        ),
        pytest.param(run(arms=2 * [{"name": "a", "agent": {"kind": "nop"}}]), "'a' is there 2 times", id="name twice"),
        pytest.param(run(suspendedArms=["b"]), "spec.suspendedArms", id="unknown suspended arm"),
        pytest.param({**run(), "metadata": {"name": "x" * 36}}, "metadata.name", id="long name"),
    ],
)
def test_a_bad_run_is_refused_naming_the_field(broken: Object, said: str) -> None:
    """The same rules as the CRDs' CEL, before anything starts."""
    with pytest.raises(Rejected) as refused:
        admit(Kind.BenchmarkRun, None, broken)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"parallelism": 3, "suspend": True, "repetitions": 2}, None, id="what may change"),
        pytest.param({"repetitions": 1}, "may only grow", id="fewer repetitions"),
        pytest.param({"seed": 7}, "spec.seed", id="another seed"),
        pytest.param({"cancel": False}, "cannot be taken back", id="cancel taken back"),
    ],
)
def test_a_run_changes_only_where_verdicts_stay(change: dict[str, object], said: str | None) -> None:
    """Old verdicts must keep their meaning."""
    old = run(repetitions=2, cancel=True)
    new = run(**{"repetitions": 2, "cancel": True, **change})
    if said is None:
        admit(Kind.BenchmarkRun, old, new)
        return
    with pytest.raises(Rejected) as refused:
        admit(Kind.BenchmarkRun, old, new)
    assert said in str(refused.value)
