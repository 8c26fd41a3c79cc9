"""What the operator may rely on, whichever cluster it talks to: one test for both adapters of the port.

Pods carry a node selector that no node has: they stay Pending on a real cluster too, and the test needs no image.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias
from uuid import uuid4

import pytest

from controller.cluster import (
    AlreadyExists,
    Change,
    Cluster,
    Conflict,
    Kind,
    Object,
    Rejected,
    Removed,
    Replaced,
    Updated,
)
from controller.kube import KubeCluster
from proctor.local.memory import MemoryCluster
from wire.digest import of_bytes
from wire.names import MANAGED_BY
from wire.run import AgentKind, AgentSpec, Arm, Evaluation, Limits, UserSpec
from wire.trial import RunRef, TrialSpec

NAMESPACE = "proctor-runs"
HOLD = "example.com/contract"
PATIENCE_SECONDS = 20.0
Scenario: TypeAlias = Callable[[Cluster], Awaitable[None]]
Play: TypeAlias = Callable[[Scenario], None]


@pytest.fixture(params=["memory", pytest.param("kube", marks=pytest.mark.cluster)])
def play(request: pytest.FixtureRequest) -> Play:
    """Run a scenario against one adapter; the real one talks to the cluster of KUBECONFIG."""

    async def run(scenario: Scenario) -> None:
        if request.param == "memory":
            await asyncio.wait_for(scenario(MemoryCluster()), 60)
            return
        cluster = KubeCluster()
        try:
            await asyncio.wait_for(scenario(cluster), 60)
        finally:
            await cluster.close()

    return lambda scenario: asyncio.run(run(scenario))


def secret(name: str, **metadata: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "data": {"a": "eA=="},
    }


def pod(name: str, **metadata: object) -> Object:
    box = {"name": "box", "image": "none.invalid/none:1", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict([MANAGED_BY]), **metadata},
        "spec": {"containers": [box], "nodeSelector": {"proctor.dev/no-node-has": "this"}},
    }


def trial(name: str, **metadata: object) -> Object:
    spec = TrialSpec(
        run_ref=RunRef(name="contract", uid=str(uuid4())),
        index=0,
        task="capacity-lease",
        package=of_bytes(b"package"),
        arm=Arm(name="nop", agent=AgentSpec(kind=AgentKind.NOP)),
        repetition=1,
        user=UserSpec(),
        limits=Limits(),
        evaluation=Evaluation(),
        formal=False,
    )
    return {
        "apiVersion": "proctor.dev/v1alpha1",
        "kind": "Trial",
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": spec.dump(),
    }


def fresh(prefix: str = "contract") -> str:
    return f"{prefix}-{uuid4().hex[:8]}"


async def until(found: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for what a real cluster does in its own time."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not await found():
        assert asyncio.get_running_loop().time() < deadline, f"not seen: {what}"
        await asyncio.sleep(0.05)


async def gone(cluster: Cluster, kind: Kind, name: str) -> None:
    async def is_gone() -> bool:
        return await cluster.get(kind, NAMESPACE, name) is None

    await until(is_gone, f"{kind.name} {name} gone")


def test_a_name_is_taken_once(play: Play) -> None:
    """A second create of the same name raises AlreadyExists and leaves the first object alone."""

    async def scenario(cluster: Cluster) -> None:
        name = fresh()
        first = await cluster.create(Kind.Secret, secret(name))
        assert first["metadata"]["uid"]
        with pytest.raises(AlreadyExists):
            await cluster.create(Kind.Secret, {**secret(name), "data": {"a": "eQ=="}})
        held = await cluster.get(Kind.Secret, NAMESPACE, name)
        assert held is not None
        assert (held["metadata"]["uid"], held["data"]) == (first["metadata"]["uid"], {"a": "eA=="})
        await cluster.delete(Kind.Secret, first)

    play(scenario)


def test_what_does_not_exist_is_none(play: Play) -> None:
    """Reading an unknown name answers None, not an error."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.get(Kind.Trial, NAMESPACE, fresh()) is None

    play(scenario)


def test_an_impossible_object_is_rejected(play: Play) -> None:
    """What no retry will mend raises Rejected."""

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(Rejected):
            await cluster.create(Kind.Secret, {**secret("x"), "metadata": {"namespace": NAMESPACE}})

    play(scenario)


def test_a_stale_patch_conflicts(play: Play) -> None:
    """A patch with an old version changes nothing; with the current one it merges and null removes."""

    async def scenario(cluster: Cluster) -> None:
        old = await cluster.create(Kind.Secret, secret(fresh(), annotations={"keep": "1", "drop": "1"}))
        new = await cluster.patch(Kind.Secret, old, {"metadata": {"annotations": {"drop": None, "add": "1"}}})
        assert new["metadata"]["annotations"] == {"keep": "1", "add": "1"}
        assert new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
        with pytest.raises(Conflict):
            await cluster.patch(Kind.Secret, old, {"metadata": {"annotations": {"keep": "2"}}})
        await cluster.delete(Kind.Secret, new)

    play(scenario)


def test_a_patch_that_changes_nothing_keeps_the_version(play: Play) -> None:
    """Writing what is there already causes no new version and so no event."""

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(Kind.Secret, secret(fresh(), annotations={"keep": "1"}))
        same = await cluster.patch(Kind.Secret, made, {"metadata": {"annotations": {"keep": "1"}}})
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await cluster.delete(Kind.Secret, made)

    play(scenario)


def test_a_patch_of_a_gone_or_replaced_object_conflicts(play: Play) -> None:
    """Another object under the old name is not touched."""

    async def scenario(cluster: Cluster) -> None:
        name = fresh()
        old = await cluster.create(Kind.Secret, secret(name))
        await cluster.delete(Kind.Secret, old)
        await gone(cluster, Kind.Secret, name)
        with pytest.raises(Conflict):
            await cluster.patch(Kind.Secret, old, {"metadata": {"annotations": {"a": "1"}}})
        new = await cluster.create(Kind.Secret, secret(name))
        with pytest.raises(Conflict):
            await cluster.patch(Kind.Secret, old, {"metadata": {"annotations": {"a": "1"}}})
        await cluster.delete(Kind.Secret, new)

    play(scenario)


def test_spec_and_status_are_written_apart(play: Play) -> None:
    """A spec write cannot touch status, a status write cannot touch spec, and only a spec write is a new generation."""

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(Kind.Trial, {**trial(fresh()), "status": {"attempt": 7}})
        assert (made.get("status") or {}).get("attempt", 0) != 7
        assert made["metadata"]["generation"] == 1
        told = await cluster.patch(Kind.Trial, made, {"status": {"attempt": 1}, "spec": {"suspend": True}}, status=True)
        assert (told["status"]["attempt"], told["spec"]["suspend"]) == (1, False)
        assert told["metadata"]["generation"] == 1
        paused = await cluster.patch(Kind.Trial, told, {"spec": {"suspend": True}, "status": {"attempt": 2}})
        assert (paused["status"]["attempt"], paused["spec"]["suspend"]) == (1, True)
        assert paused["metadata"]["generation"] == 2
        await cluster.delete(Kind.Trial, paused)

    play(scenario)


def test_delete_ends_only_the_object_it_knows(play: Play) -> None:
    """The UID is a precondition; gone or replaced is success and harms nothing."""

    async def scenario(cluster: Cluster) -> None:
        name = fresh()
        old = await cluster.create(Kind.Secret, secret(name))
        await cluster.delete(Kind.Secret, old)
        await gone(cluster, Kind.Secret, name)
        await cluster.delete(Kind.Secret, old)
        new = await cluster.create(Kind.Secret, secret(name))
        await cluster.delete(Kind.Secret, old)
        held = await cluster.get(Kind.Secret, NAMESPACE, name)
        assert held is not None
        assert held["metadata"]["uid"] == new["metadata"]["uid"]
        await cluster.delete(Kind.Secret, new)

    play(scenario)


def test_a_finalizer_holds_an_object_until_it_is_removed(play: Play) -> None:
    """Deleting marks it; taking the last finalizer away ends it."""

    async def scenario(cluster: Cluster) -> None:
        name = fresh()
        made = await cluster.create(Kind.Trial, trial(name, finalizers=[HOLD]))
        await cluster.delete(Kind.Trial, made)
        held = await cluster.get(Kind.Trial, NAMESPACE, name)
        assert held is not None
        assert held["metadata"]["deletionTimestamp"]
        await cluster.patch(Kind.Trial, held, {"metadata": {"finalizers": []}})
        await gone(cluster, Kind.Trial, name)

    play(scenario)


def test_what_an_object_owns_goes_with_it(play: Play) -> None:
    """Children named by ownerReferences are collected, through several levels."""

    async def scenario(cluster: Cluster) -> None:
        names = [fresh("top"), fresh("middle"), fresh("leaf")]
        top = await cluster.create(Kind.Trial, trial(names[0]))
        middle = await cluster.create(Kind.Pod, pod(names[1], ownerReferences=[owner(top)]))
        await cluster.create(Kind.Secret, secret(names[2], ownerReferences=[owner(middle)]))
        await cluster.delete(Kind.Trial, top)
        for kind, name in zip((Kind.Trial, Kind.Pod, Kind.Secret), names, strict=True):
            await gone(cluster, kind, name)

    play(scenario)


def owner(parent: Object) -> Object:
    return {
        "apiVersion": parent["apiVersion"],
        "kind": parent["kind"],
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_a_new_pod_is_pending(play: Play) -> None:
    """The status a client sends is ignored; a pod without a node is deleted at once."""

    async def scenario(cluster: Cluster) -> None:
        name = fresh()
        made = await cluster.create(Kind.Pod, {**pod(name), "status": {"phase": "Succeeded"}})
        assert made["status"]["phase"] == "Pending"
        await cluster.delete(Kind.Pod, made)
        await gone(cluster, Kind.Pod, name)

    play(scenario)


def test_a_watch_begins_with_everything_and_tells_each_change(play: Play) -> None:
    """Replaced first; then an object's creation, change and end, in order."""

    async def scenario(cluster: Cluster) -> None:
        before, name = fresh("before"), fresh()
        old = await cluster.create(Kind.Trial, trial(before))
        changes = cluster.watch(Kind.Trial, NAMESPACE)
        first = await anext(changes)
        assert isinstance(first, Replaced)
        assert before in [o["metadata"]["name"] for o in first.objects]
        made = await cluster.create(Kind.Trial, trial(name))
        await cluster.patch(Kind.Trial, made, {"status": {"attempt": 1}}, status=True)
        await cluster.delete(Kind.Trial, made)
        seen = await told(changes, name)
        assert [type(change) for change in seen] == [Updated, Updated, Removed]
        assert seen[1].object["status"]["attempt"] == 1
        await cluster.delete(Kind.Trial, old)

    play(scenario)


async def told(changes: AsyncIterator[Change], name: str) -> list[Updated | Removed]:
    """Collect the changes of one object until it is gone."""
    seen: list[Updated | Removed] = []
    async for change in changes:
        if not isinstance(change, Replaced) and change.object["metadata"]["name"] == name:
            seen.append(change)
            if isinstance(change, Removed):
                break
    return seen


def test_only_our_own_pods_are_watched(play: Play) -> None:
    """Pods of others in the namespace cost us nothing."""

    async def scenario(cluster: Cluster) -> None:
        changes = cluster.watch(Kind.Pod, NAMESPACE)
        await anext(changes)
        foreign = await cluster.create(Kind.Pod, pod(fresh("foreign"), labels={}))
        ours = await cluster.create(Kind.Pod, pod(fresh("ours")))
        change = await anext(changes)
        assert isinstance(change, Updated)
        assert change.object["metadata"]["name"] == ours["metadata"]["name"]
        for made in (foreign, ours):
            await cluster.delete(Kind.Pod, made)

    play(scenario)
