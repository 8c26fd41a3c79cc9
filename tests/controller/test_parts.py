"""The small parts around the planners: queue, store, merge patches, Lease, hub client, settings."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from controller.cluster import Kind, Object
from controller.execute import difference
from controller.hub import HttpHub, HubRefused, HubUnreachable
from controller.lease import NAME, Elector, LeaseLost
from controller.limiter import Limiter, patience
from controller.reflect import Store
from controller.settings import Settings
from controller.work import Pending
from proctor.local.memory import MemoryCluster
from proctor.local.objects import merge
from tests.controller.fakes import NAMESPACE, PACKAGE, Clock
from wire.journal import Settlement
from wire.token import Role, verify

KEY = b"0123456789abcdef"


def test_a_key_is_worked_on_once_at_a_time_and_again_when_touched() -> None:
    """De-duplicated while it waits, remembered while it is worked on."""

    async def story() -> None:
        queue: Pending[str] = Pending()
        queue.add("a")
        queue.add("a", 5)
        assert await queue.take() == "a"
        queue.add("a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 0.01)
        queue.done("a")
        assert await queue.take() == "a"
        queue.done("a")
        assert len(queue) == 0

    asyncio.run(story())


def test_an_earlier_time_replaces_a_later_one() -> None:
    """A deadline sleeps until it is due; an event does not wait for it."""

    async def story() -> None:
        queue: Pending[str] = Pending()
        queue.add("late", 60)
        queue.add("soon", 0.01)
        assert await queue.take() == "soon"
        assert queue.oldest_seconds() == 0
        queue.add("late")
        assert await queue.take() == "late"

    asyncio.run(story())


def pod(version: int, uid: str = "u", name: str = "p") -> Object:
    labels = {"proctor.dev/trial": "t"}
    return {
        "metadata": {
            "namespace": NAMESPACE,
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": labels,
        }
    }


def test_the_store_never_goes_backwards() -> None:
    """An event older than our own last write is dropped; what is gone does not come back."""
    told: list[tuple[Object | None, Object | None]] = []
    store = Store(lambda kind, before, now: told.append((before, now)))
    store.apply(Kind.Pod, pod(5))
    store.apply(Kind.Pod, pod(4))
    assert store.children(Kind.Pod, NAMESPACE, "t") == [pod(5)]
    store.discard(Kind.Pod, pod(6))
    store.apply(Kind.Pod, pod(5))
    assert store.children(Kind.Pod, NAMESPACE, "t") == []
    store.apply(Kind.Pod, pod(3, uid="another"))
    assert len(told) == 3


def test_a_relist_announces_what_went_away_unseen() -> None:
    """Deletes during a broken stream are made up for."""
    gone: list[str] = []
    store = Store(lambda kind, before, now: gone.append(before["metadata"]["name"]) if before and not now else None)
    store.replace(Kind.Pod, NAMESPACE, (pod(1, "a", "a"), pod(2, "b", "b")))
    store.replace(Kind.Pod, NAMESPACE, (pod(2, "b", "b"),))
    assert gone == ["a"]


values = st.integers() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(), max_size=3)
json_objects = st.recursive(
    st.dictionaries(st.sampled_from("abc"), values),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)


@given(json_objects, json_objects)
def test_a_merge_patch_leads_from_one_object_to_the_other(before: Object, after: Object) -> None:
    """The patch of a status drops what is no longer there and touches nothing else."""
    assert merge(before, difference(before, after)) == after


def elector(cluster: MemoryCluster, identity: str, clock: Clock) -> Elector:
    return Elector(cluster, NAMESPACE, identity, clock)


def test_one_process_leads_and_gives_the_lease_back() -> None:
    """The second waits; a release lets it in at once."""

    async def story() -> None:
        cluster, clock, stop = MemoryCluster(), Clock(), asyncio.Event()
        first, second = elector(cluster, "one", clock), elector(cluster, "two", clock)
        assert await first.acquire(stop)
        assert not await second._try()
        await first.release()
        assert await second.acquire(stop)
        lease = cluster.objects.get(Kind.Lease, NAMESPACE, NAME)
        assert lease is not None
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("two", 1)

    asyncio.run(story())


def test_a_leader_that_cannot_renew_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another may lead by then; two writers are harmless but useless."""
    monkeypatch.setattr("controller.lease.TRY_SECONDS", 0.01)
    monkeypatch.setattr("controller.lease.RENEW_SECONDS", 0.05)

    async def story() -> None:
        cluster, clock, stop = MemoryCluster(), Clock(), asyncio.Event()
        leader = elector(cluster, "one", clock)
        assert await leader.acquire(stop)
        lease = cluster.objects.get(Kind.Lease, NAMESPACE, NAME)
        assert lease is not None
        cluster.objects.patch(Kind.Lease, lease, {"spec": {"holderIdentity": "thief"}})
        with pytest.raises(LeaseLost):
            await leader.hold(stop)

    asyncio.run(story())


def hub(answer: httpx2.Response | Exception, calls: list[httpx2.Request]) -> HttpHub:
    def handle(request: httpx2.Request) -> httpx2.Response:
        calls.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx2.AsyncClient(base_url="http://hub", transport=httpx2.MockTransport(handle))
    return HttpHub(client, KEY)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(httpx2.ConnectError("refused"), HubUnreachable, id="nobody there"),
        pytest.param(httpx2.Response(503), HubUnreachable, id="no database"),
        pytest.param(httpx2.Response(429), HubUnreachable, id="too busy"),
        pytest.param(httpx2.Response(403, json={"error": {"reason": "Refused"}}), HubRefused, id="refused"),
        pytest.param(httpx2.Response(404), HubRefused, id="unknown trial"),
    ],
)
def test_what_the_hub_does_not_do_is_asked_again_or_said(
    answer: httpx2.Response | Exception, error: type[Exception]
) -> None:
    """Unreachable is NotReady; a refusal is not retried blindly."""
    with pytest.raises(error):
        asyncio.run(hub(answer, []).settle("uid", Settlement(phase="Cancelled")))


def test_the_hub_is_asked_with_the_operators_token() -> None:
    """Signed with the installation key; a missing package is None, not an error."""
    calls: list[httpx2.Request] = []
    body = PACKAGE.dump()
    assert asyncio.run(hub(httpx2.Response(200, json=body), calls).manifest(PACKAGE.digest())) == PACKAGE
    assert asyncio.run(hub(httpx2.Response(404), calls).manifest("sha256:0")) is None
    assert verify(KEY, calls[0].headers["Authorization"].removeprefix("Bearer ")).role is Role.OPERATOR


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 1), ("", 1), ("7", 7), ("86400", 60), ("-1", 0), ("nan", 0), ("Tue, 01 Dec 2026 00:00:00 GMT", 1)],
)
def test_patience_is_bounded_whatever_a_server_or_a_proxy_writes(header: str | None, seconds: float) -> None:
    """A date ended the pass, or the whole operator when it came in answer to a renewal of the Lease."""
    assert patience(header) == seconds


def test_the_limiter_doubles_while_answered_and_halves_when_throttled() -> None:
    """Starts at 20 a second; a 429 keeps everybody waiting."""

    async def story() -> None:
        limiter = Limiter()
        for _ in range(20):
            limiter.answered()
        assert limiter.per_second == 40
        limiter.throttled(0.05)
        assert limiter.per_second == 20
        before = asyncio.get_running_loop().time()
        await limiter.slot()
        assert asyncio.get_running_loop().time() - before >= 0.04

    asyncio.run(story())


def test_bad_settings_stop_the_program_with_the_fields_name(tmp_path: Path) -> None:
    """An address without a port, a key that is none."""
    with pytest.raises(ValidationError, match="hub_address"):
        Settings(hub_address="hub")
    short = tmp_path / "key"
    short.write_text("short")
    with pytest.raises(ValueError, match="shorter than 16 bytes"):
        Settings(installation_key_file=short).read_key()
