"""Dimension B: idempotency and concurrency."""

import random
from datetime import timedelta

from house import Claim, Desk, House, spread, stamp, tomorrow
from runner.kit import Answer, case, require

SEED = 20261130


@case(
    "B-01",
    dimension="B",
    title="What counts is the peak at an instant, not the sum of everything that overlaps",
    clauses=["5.6", "5.9", "5.14"],
    tags=["quick"],
)
def test_capacity_is_the_peak_at_an_instant(house: House) -> None:
    """Forty requests are granted exactly when a model of the clause grants them."""
    (desk,) = house.open()
    desk.pool("p", 10)
    desk.book({"p": 6}, tomorrow(0), tomorrow(1))
    desk.book({"p": 6}, tomorrow(1), tomorrow(2))
    desk.ask({"p": 4}, tomorrow(0), tomorrow(2), wait=False).expect(201)
    desk.refused(desk.ask({"p": 1}, tomorrow(0), tomorrow(2), wait=False), 409, "CAPACITY_UNAVAILABLE")

    desk.pool("model", 10)
    chance = random.Random(SEED)
    used = [0] * 24
    for number in range(40):
        start = chance.randrange(0, 22)
        end, units = start + chance.randrange(1, min(8, 24 - start) + 1), chance.randrange(1, 6)
        fits = max(used[start:end]) + units <= 10
        answer = desk.ask({"model": units}, tomorrow(start), tomorrow(end), wait=False)
        require(
            answer.status == (201 if fits else 409),
            f"request {number} for {units} units in [{start}, {end}) with the use {used}: {answer}, fits: {fits}",
        )
        if fits:
            used[start:end] = [each + units for each in used[start:end]]
    path = f"/api/v1/pools/model/timeline?from={stamp(tomorrow(0))}&to={stamp(tomorrow(24))}"
    pieces = desk.call("GET", path).expect(200).fields["slices"]
    assert [(piece["startAt"], piece["usedUnits"]) for piece in pieces] == _slices(used)
    assert [piece["endAt"] for piece in pieces] == [*(piece["startAt"] for piece in pieces[1:]), stamp(tomorrow(24))]
    assert all(piece["usedUnits"] + piece["availableUnits"] == 10 for piece in pieces)


def _slices(used: list[int]) -> list[tuple[str, int]]:
    changes = [hour for hour in range(24) if hour == 0 or used[hour] != used[hour - 1]]
    return [(stamp(tomorrow(hour)), used[hour]) for hour in changes]


@case(
    "B-02",
    dimension="B",
    title="Intervals are half-open at both ends, to the millisecond",
    clauses=["5.5", "5.6", "5.11"],
    tags=["quick"],
)
def test_intervals_are_half_open(house: House) -> None:
    """Neighbours that touch do not meet; one millisecond of overlap does."""
    (desk,) = house.open()
    desk.pool("p", 1)
    tick = timedelta(milliseconds=1)
    middle = desk.act(desk.book({"p": 1}, tomorrow(1), tomorrow(2)), "confirm")
    for start, end in (
        (tomorrow(0), tomorrow(1) + tick),
        (tomorrow(2) - tick, tomorrow(3)),
        (tomorrow(0), tomorrow(5)),
        (tomorrow(1) + tick, tomorrow(2) - tick),
    ):
        desk.refused(desk.ask({"p": 1}, start, end, wait=False), 409, "CAPACITY_UNAVAILABLE")
    desk.ask({"p": 1}, tomorrow(0), tomorrow(1), wait=False).expect(201)
    desk.ask({"p": 1}, tomorrow(3), tomorrow(4), wait=False).expect(201)
    late = desk.attempt(middle, "renew", {"endAt": stamp(tomorrow(3) + tick)})
    desk.refused(late, 409, "CAPACITY_UNAVAILABLE")
    desk.act(middle, "renew", {"endAt": stamp(tomorrow(3))})
    assert desk.peak("p", tomorrow(0), tomorrow(4)) == 1


@case(
    "B-06",
    dimension="B",
    title="64 concurrent requests with one key over several API processes: one lease, one event, one answer",
    clauses=["4.3", "4.5", "4.7"],
    tags=["quick"],
)
def test_one_key_has_one_effect(house: House) -> None:
    """The race is run three times, then the same for confirming."""
    desks = house.open(3)
    desks[0].pool("p", 1000)
    for race in range(3):
        answers = spread(desks, [f"key-{race}"] * 64, _ask)
        for answer in answers:
            answer.expect(201)
        bodies = {answer.body for answer in answers}
        require(len(bodies) == 1, f"race {race}: {len(bodies)} different answers to one key")
        require(len({answer.headers.get("etag") for answer in answers}) == 1, f"race {race}: different ETags")
        snapshot = desks[1].snapshot()
        leases, events = snapshot["resources"]["leases"], snapshot["events"]
        require(len(leases) == race + 1, f"race {race}: {len(leases)} leases after {race + 1} keys")
        held = [event for event in events if event["type"] == "lease.held"]
        require(len(held) == race + 1, f"race {race}: {len(held)} lease.held events after {race + 1} keys")
        require(desks[2].peak("p", tomorrow(), tomorrow(1)) == race + 1, "the pool's use is not one unit for each key")

    created = desks[0].ask({"p": 1}, tomorrow(), tomorrow(1), key="key-0")
    require(created.headers.get("idempotency-replayed") == "true", "a repeated request is not marked as replayed")
    desks[1].refused(desks[1].ask({"p": 2}, tomorrow(), tomorrow(1), key="key-0"), 409, "IDEMPOTENCY_KEY_REUSED")
    claim = Claim(created.fields["leaseToken"], created.fields["lease"])
    confirms = spread(desks, ["c"] * 24, lambda desk, key: desk.attempt(claim, "confirm", key=key))
    require({answer.status for answer in confirms} == {200}, f"confirming: {sorted(a.status for a in confirms)}")
    assert desks[0].history(claim.id) == ["lease.held", "lease.confirmed"]


def _ask(desk: Desk, key: str) -> Answer:
    return desk.ask({"p": 1}, tomorrow(), tomorrow(1), key=key)


@case(
    "B-07",
    dimension="B",
    title="Concurrent requests with different keys never lend more than a hot pool has",
    clauses=["5.6", "5.9", "3.13"],
    tags=["quick"],
)
def test_a_hot_pool_is_never_oversubscribed(house: House) -> None:
    """Sixty requests race for seven units through three instances; so do renewals into one free place."""
    desks = house.open(3)
    desks[0].pool("p", 7)
    answers = spread(desks, range(60), lambda desk, _: desk.ask({"p": 1}, tomorrow(), tomorrow(1), wait=False))
    granted = [answer for answer in answers if answer.expect(201, 409).status == 201]
    require(len(granted) == 7, f"{len(granted)} leases of one unit in a pool of 7")
    require(desks[1].peak("p", tomorrow(), tomorrow(1)) == 7, "the timeline does not show the pool as full")
    snapshot = desks[2].snapshot()
    assert (
        len(snapshot["resources"]["leases"]) == len([e for e in snapshot["events"] if e["type"] == "lease.held"]) == 7
    )

    desks[0].pool("q", 6)
    claims = [desks[0].act(desks[0].book({"q": 1}, tomorrow(), tomorrow(1)), "confirm") for _ in range(6)]
    desks[0].book({"q": 4}, tomorrow(1), tomorrow(2))
    later = {"endAt": stamp(tomorrow(2))}
    renewals = spread(desks, claims, lambda desk, claim: desk.attempt(claim, "renew", later))
    won = [answer for answer in renewals if answer.expect(200, 409).status == 200]
    require(len(won) == 2, f"{len(won)} of 6 renewals got the 2 units that were free")
    require(desks[1].peak("q", tomorrow(), tomorrow(2)) == 6, "renewals have oversubscribed the pool")


@case(
    "B-09",
    dimension="B",
    title="A lease over several pools is granted in all of them or in none, and never in a deadlock",
    clauses=["5.7", "5.9", "3.13"],
    tags=["quick"],
)
def test_gangs_are_all_or_none(house: House) -> None:
    """Gangs that name their pools in every order race for four pools."""
    desks = house.open(3)
    pools = ["a", "b", "c", "d"]
    for pool in pools:
        desks[0].pool(pool, 5)
    desks[0].pool("tiny", 1)
    desks[0].book({"tiny": 1}, tomorrow(), tomorrow(1))
    desks[0].refused(
        desks[0].ask({"a": 2, "tiny": 1}, tomorrow(), tomorrow(1), wait=False), 409, "CAPACITY_UNAVAILABLE"
    )
    require(desks[0].peak("a", tomorrow(), tomorrow(1)) == 0, "a refused gang has kept the units of one of its pools")

    chance = random.Random(SEED)
    orders = [chance.sample(pools, 3) for _ in range(48)]
    answers = spread(desks, orders, _gang)
    granted = [
        set(order) for order, answer in zip(orders, answers, strict=True) if answer.expect(201, 409).status == 201
    ]
    for pool in pools:
        expected = sum(pool in gang for gang in granted)
        used = desks[1].peak(pool, tomorrow(), tomorrow(1))
        require(used == expected <= 5, f"pool {pool} lends {used} of 5 units, its granted gangs hold {expected}")
    # Three pools of four, at most five units each: six gangs or fewer fit, and the greedy order gets at least five.
    require(len(granted) >= 5, f"only {len(granted)} gangs were granted although pools were free")
    snapshot = desks[2].snapshot()
    states = [lease["state"] for lease in snapshot["resources"]["leases"]]
    assert states.count("held") == len(granted) + 1
    assert len([event for event in snapshot["events"] if event["type"] == "lease.held"]) == len(granted) + 1


def _gang(desk: Desk, pools: list[str]) -> Answer:
    return desk.ask(dict.fromkeys(pools, 1), tomorrow(), tomorrow(1), wait=False)
