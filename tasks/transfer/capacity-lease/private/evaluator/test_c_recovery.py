"""Dimension C: worker recovery and durability. Workers are held at a point that the evaluator owns."""

import time

from house import OPEN, Claim, Desk, House, soon
from runner.kit import case, eventually, require
from runner.kit.answers import Fields
from runner.kit.fixtures import Receivers
from runner.kit.webhooks import Delivery, Hold, Lose, Receiver, Reply


def _due(desk: Desk, seconds: float = 600) -> Claim:
    """Return a confirmed lease whose activation is due now."""
    return desk.act(desk.book({"p": 1}, soon(), soon(seconds)), "confirm")


def _activation(desk: Desk, claim: Claim) -> Fields:
    rows = desk.work(claim.id, "lease.activate")
    require(len(rows) == 1, f"lease {claim.id} has {len(rows)} activations")
    return rows[0]


def _held(desk: Desk, provider: Receiver, claim: Claim, worker: str) -> Delivery:
    """Wait until the provider is asked for a lease and prove that the worker is held there, its claim stored."""
    asked = provider.wait_for(
        lambda delivery: delivery.json["leaseId"] == claim.id, "the provider should be asked for the lease", seconds=12
    )
    require(asked.status is None, "the provider has answered already")
    row = _activation(desk, claim)
    require(row["state"] == "leased", f"while the provider is asked, the work is {row['state']!r}")
    require(row["leaseOwner"] == worker, f"the work belongs to {row['leaseOwner']!r}, not to {worker!r}")
    require(asked.headers.get("idempotency-key") == row["workId"], "the provider's key is not the work's id")
    return asked


@case(
    "C-02",
    dimension="C",
    title="A worker killed after its claim is replaced, and the work is finished once",
    clauses=["7.1", "7.3", "7.4", "8.1", "8.2"],
    tags=["quick"],
)
def test_a_killed_worker_is_replaced(house: House, receivers: Receivers) -> None:
    """The worker is held at the provider, killed, and its claim taken over by another one."""
    provider = receivers()
    house.env["ADMISSION_URL"] = provider.url
    (desk,) = house.open()
    desk.pool("p", 5)
    hold = Hold(then=Reply(200, {"grant": "first"}))
    provider.script(hold, then=Reply(200, {"grant": "second"}))
    first = house.worker("worker-1")
    claim = _due(desk)
    asked = _held(desk, provider, claim, "worker-1")
    require(desk.lease(claim.id)["state"] == "confirmed", "the lease is active before it was granted")
    first.kill()
    hold.release.set()
    asked.gone.wait(5)
    house.worker("worker-2")
    lease = desk.await_state(claim.id, "active")
    require(lease["grant"] == "second", f"the grant is {lease['grant']!r}, not that of the claim that finished")
    require(lease["revision"] == 3, f"the lease's revision is {lease['revision']}, not 3")
    row = eventually(
        lambda: row if (row := _activation(desk, claim))["state"] == "succeeded" else None,
        "the work should succeed",
        seconds=6,
    )
    require(row["attempt"] == 2, f"the work was claimed {row['attempt']} times, not twice")
    assert (row["leaseOwner"], row["leaseExpiresAt"]) == (None, None)
    assert desk.history(claim.id) == ["lease.held", "lease.confirmed", "lease.activated"]
    requests = [delivery.json for delivery in provider.seen()]
    assert [(each["workId"], each["attempt"]) for each in requests] == [(row["workId"], 1), (row["workId"], 2)]


@case(
    "C-05",
    dimension="C",
    title="Whoever lost a claim can change nothing any more",
    clauses=["7.4", "7.5", "7.6", "8.2", "8.3", "8.4"],
    tags=["quick"],
)
def test_an_expired_claim_is_fenced(house: House, receivers: Receivers) -> None:
    """A slow answer outlives its claim; another one finishes meanwhile, then the slow answer arrives."""
    provider = receivers()
    house.env["ADMISSION_URL"] = provider.url
    (desk,) = house.open()
    desk.pool("p", 5)
    slow, gone = Hold(then=Reply(200, {"grant": "stale"})), Hold(then=Reply(200, {"grant": "late"}))
    provider.script(slow, then=Reply(200, {"grant": "fresh"}))
    first = house.worker("worker-1")
    claim = _due(desk)
    asked = _held(desk, provider, claim, "worker-1")
    house.worker("worker-2")
    lease = desk.await_state(claim.id, "active")
    require(lease["grant"] == "fresh", f"the grant is {lease['grant']!r} after the second claim")
    before = desk.history(claim.id)
    slow.release.set()
    require(asked.gone.wait(5), "the slow answer could not be sent")
    released = _due(desk)
    provider.script(gone, gone, gone)
    other = _due(desk)
    asked = provider.wait_for(lambda each: each.json["leaseId"] == other.id, "the provider should be asked", seconds=12)
    desk.act(other, "release")
    gone.release.set()
    asked.gone.wait(5)
    # By now the stale answers have been read; another second lets a wrong write arrive.
    time.sleep(1.2)
    after = desk.lease(claim.id)
    require(after == lease, f"an answer to a lost claim has changed the lease from {lease} to {after}")
    assert desk.history(claim.id) == before
    row = _activation(desk, claim)
    assert (row["state"], row["attempt"], row["leaseOwner"]) == ("succeeded", 2, None)
    require(first.is_running(), "the worker has ended after it lost its claim")
    final = desk.lease(other.id)
    require(final["state"] == "released", f"a released lease has become {final['state']!r} by a late grant")
    left = [each for each in desk.work(other.id) if each["state"] in OPEN]
    assert not left, f"a released lease still has work: {left}"
    desk.await_state(released.id, "active", "confirmed")


@case(
    "C-07",
    dimension="C",
    title="A webhook that is tried again keeps its identity, its bytes and its order",
    clauses=["9.2", "9.5", "9.6", "9.7", "10.1"],
    tags=["quick"],
)
def test_retried_webhooks_keep_their_identity(house: House, receivers: Receivers) -> None:
    """The first event is refused, then its acknowledgement is lost; its aggregate waits, the others do not."""
    receiver = receivers()
    house.env["WEBHOOK_URL"] = receiver.url
    (desk,) = house.open()
    desk.pool("slow", 5)
    desk.pool("other", 5)
    desk.call("PATCH", "/api/v1/pools/slow", {"capacity": 6}, admin=True, revision=1).expect(200)
    steps: list[Reply | Lose] = [Reply(503), Lose()]

    def behave(delivery: Delivery) -> Reply | Lose:
        about_slow = delivery.json["aggregateId"] == "slow"
        return steps.pop(0) if about_slow and steps else Reply(200)

    receiver.behave(behave)
    house.worker()
    desk.pool("third", 5)
    receiver.wait_for(lambda each: each.json["type"] == "pool.changed", "pool.changed should be delivered", seconds=25)
    receiver.wait_for(lambda each: each.json["aggregateId"] == "third", "an event should be delivered", seconds=12)
    seen = [each for each in receiver.seen() if each.json["aggregateId"] == "slow"]
    types = [each.json["type"] for each in seen]
    require(types == ["pool.created"] * 3 + ["pool.changed"], f"the deliveries for one aggregate were {types}")
    require(len({each.body for each in seen[:3]}) == 1, "a retried event has other bytes")
    ids = {each.headers.get("event-id") for each in seen[:3]}
    require(ids == {seen[0].json["eventId"]}, f"a retried event has the ids {ids}")
    other = receiver.wait_for(lambda each: each.json["aggregateId"] == "other", "other events should come", seconds=12)
    require(other.number < seen[2].number, "another aggregate has waited for one that is refused")

    def delivered() -> Fields | None:
        snapshot = desk.snapshot()
        return snapshot if all(each["delivery"]["state"] == "delivered" for each in snapshot["events"]) else None

    events = eventually(delivered, "all events should be marked as delivered", seconds=10)["events"]
    for event in events:
        sent = [each.json for each in receiver.seen() if each.json["eventId"] == event["eventId"]]
        public = {name: value for name, value in event.items() if name != "delivery"}
        require(sent and all(each == public for each in sent), f"event {event['eventId']} was sent in another form")
    attempts = {event["type"]: event["delivery"]["attempts"] for event in events if event["aggregateId"] == "slow"}
    assert attempts == {"pool.created": 3, "pool.changed": 1}
