"""Dimension A: contracts and lifecycle."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta

from house import ENDED_BY_TERM, FINAL, OPEN, Claim, Desk, House, at_once, soon, spread, stamp, tomorrow
from runner.kit import Answer, case, eventually, require
from runner.kit.answers import Fields


@case(
    "A-01",
    dimension="A",
    title="The documented commands work; API and worker start and stop by themselves",
    clauses=["1.2", "1.3", "1.4", "1.5", "1.6", "2.1"],
    tags=["quick", "startup"],
)
def test_commands_start_and_stop_every_role(house: House) -> None:
    """Migrations run twice, each role starts alone and ends with 0, a missing variable is named."""
    (desk,) = house.open()
    house.migrate()
    worker = house.worker()
    for path, word in (("/healthz", "ok"), ("/readyz", "ready")):
        assert desk.call("GET", path).expect(200).json == {"status": word}
    desk.pool("p", 1)
    desk.await_state(desk.book({"p": 1}, tomorrow(), tomorrow(1), holdSeconds=1).id, "expired")
    for role, process in (("worker", worker), ("API", desk.api.process)):
        require(process.is_running(), f"the {role} has ended by itself: {process.log()[:600]}")
        code = process.terminate(6)
        require(code in ENDED_BY_TERM, f"on SIGTERM the {role} ends with {code}")
    for missing, command in (("DATABASE_URL", house.operations.worker), ("ADMIN_TOKEN", house.operations.api)):
        env = {name: value for name, value in house.env.items() if name != missing}
        process = house.launcher.run(f"no-{missing}", command, env, 20)
        assert process.wait(1) != 0, f"without {missing} the process should refuse to start"
        assert missing in process.log(), f"without {missing} one line should name it"


def _bad_requests(desk: Desk, claim: Claim) -> list[tuple[str, Callable[[], Answer], int, str, str | None]]:
    """Return (what, request, status, code, a field that the details must name)."""
    send, call = desk.api.send, desk.call
    start, end = stamp(tomorrow()), stamp(tomorrow(1))
    good = {"ownerId": "a", "members": [{"poolId": "p", "units": 1}], "startAt": start, "endAt": end}
    key = {"idempotency-key": "bad-request"}
    typed = {**key, "content-type": "application/json"}
    leases, confirm = "/api/v1/leases", f"/api/v1/leases/{claim.id}/confirm"
    nobody = "/api/v1/leases/00000000-0000-4000-8000-000000000000"
    member = [{"poolId": "p", "units": "1"}]

    def ask(**changes: object) -> Callable[[], Answer]:
        return lambda: call("POST", leases, {**good, **changes})

    def ask_members(units: object) -> Callable[[], Answer]:
        return ask(members=[{"poolId": "p", "units": units}])

    return [
        ("an unknown route", lambda: send("GET", "/api/v1/nothing"), 404, "NOT_FOUND", None),
        ("another method", lambda: send("DELETE", leases), 405, "METHOD_NOT_ALLOWED", None),
        ("no JSON", lambda: send("POST", leases, body=b"{", headers=typed), 400, "MALFORMED_JSON", None),
        (
            "another media type",
            lambda: send("POST", leases, body=b"x", headers={**key, "content-type": "text/plain"}),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
            None,
        ),
        (
            "a long body",
            lambda: send("POST", leases, body=b'"' + b"x" * 70_000 + b'"', headers=typed),
            413,
            "PAYLOAD_TOO_LARGE",
            None,
        ),
        ("no key", lambda: send("POST", leases, body=good), 400, "IDEMPOTENCY_KEY_REQUIRED", None),
        ("units as text", ask(members=member), 400, "INVALID_REQUEST", "members.0.units"),
        ("no units", ask_members(0), 400, "INVALID_REQUEST", "members.0.units"),
        ("half a unit", ask_members(1.5), 400, "INVALID_REQUEST", "members.0.units"),
        ("an unknown field", ask(colour="red"), 400, "INVALID_REQUEST", "colour"),
        ("a bad owner", ask(ownerId="a b"), 400, "INVALID_REQUEST", "ownerId"),
        ("a day that does not exist", ask(startAt="2030-02-30T00:00:00Z"), 400, "INVALID_REQUEST", "startAt"),
        ("no offset", ask(startAt="2030-02-03T00:00:00"), 400, "INVALID_REQUEST", "startAt"),
        ("microseconds", ask(startAt="2030-02-03T00:00:00.123456Z"), 400, "INVALID_REQUEST", "startAt"),
        ("priority 10", ask(priority=10), 400, "INVALID_REQUEST", "priority"),
        ("a reversed interval", ask(startAt=end, endAt=start), 400, "INVALID_INTERVAL", None),
        ("an empty interval", ask(endAt=start), 400, "INVALID_INTERVAL", None),
        ("31 days", ask(endAt=stamp(tomorrow(31 * 24))), 400, "INVALID_INTERVAL", None),
        ("an unknown pool", ask(members=[{"poolId": "q", "units": 1}]), 404, "POOL_NOT_FOUND", None),
        ("an unknown parameter", lambda: send("GET", f"{leases}?colour=red"), 400, "INVALID_REQUEST", "colour"),
        ("limit 0", lambda: send("GET", f"{leases}?limit=0"), 400, "INVALID_REQUEST", "limit"),
        ("a repeated parameter", lambda: send("GET", f"{leases}?limit=1&limit=2"), 400, "INVALID_REQUEST", "limit"),
        ("a made-up cursor", lambda: send("GET", f"{leases}?cursor=abc"), 400, "INVALID_CURSOR", None),
        ("no administrator", lambda: send("GET", "/api/v1/work"), 401, "ADMIN_AUTH_REQUIRED", None),
        ("an unknown lease", lambda: call("GET", nobody), 404, "LEASE_NOT_FOUND", None),
        ("no If-Match", lambda: call("POST", confirm, {}, token=claim.token), 428, "PRECONDITION_REQUIRED", None),
        (
            "a malformed If-Match",
            lambda: send("POST", confirm, body={}, headers={**key, "lease-token": claim.token, "if-match": "one"}),
            400,
            "INVALID_REQUEST",
            None,
        ),
    ]


@case(
    "A-05",
    dimension="A",
    title="Every refusal has its status, its code and the exact envelope, and changes nothing",
    clauses=["3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.10", "3.11", "3.12", "3.13", "4.1", "5.4"],
    tags=["quick"],
)
def test_refusals_use_the_exact_envelope(house: House) -> None:
    """Each wrong request is refused in the documented way."""
    (desk,) = house.open()
    desk.pool("p", 10)
    claim = desk.book({"p": 1}, tomorrow(), tomorrow(1))
    before = _facts(desk.snapshot())
    for what, request, status, code, named in _bad_requests(desk, claim):
        answer = request().expect(status)
        body = answer.fields
        assert set(body) == {"error"}, f"{what}: {answer}"
        error = body["error"]
        assert set(error) == {"code", "message", "details"}, f"{what}: {answer}"
        assert error["code"] == code, f"{what}: {answer} has the code {error['code']!r}, expected {code!r}"
        assert isinstance(error["message"], str)
        assert isinstance(error["details"], list)
        fields = [detail["field"] for detail in error["details"]]
        assert named is None or named in fields, f"{what}: the details name {fields}, expected {named!r}"
        assert "    at " not in answer.body.decode(errors="replace"), f"{what}: a stack trace"
    allow = desk.api.send("DELETE", "/api/v1/leases").headers.get("allow", "")
    assert {"GET", "POST"} <= {word.strip() for word in allow.split(",")}, f"405 allows {allow!r}"
    assert _facts(desk.snapshot()) == before, "a refused request has changed something"


def _facts(snapshot: Fields) -> str:
    """Return everything of a snapshot that does not change by reading."""
    return json.dumps([snapshot["resources"], snapshot["events"], snapshot["work"]], sort_keys=True)


@case(
    "A-08",
    dimension="A",
    title="A request that fits yields exactly one held lease; one that does not, nothing or a place in the queue",
    clauses=["5.3", "5.6", "5.8", "5.9", "7.1", "7.2", "9.1", "10.1"],
    tags=["quick"],
)
def test_a_request_yields_one_lease_or_nothing(house: House) -> None:
    """Lease, token, event and work come together, or not at all."""
    (desk,) = house.open()
    desk.pool("p", 10)
    begun = soon()
    claim = desk.book({"p": 6}, tomorrow(), tomorrow(2), holdSeconds=60, priority=3)
    lease = claim.lease
    expected = {"state": "held", "revision": 1, "members": [{"poolId": "p", "units": 6}], "priority": 3, "grant": None}
    assert {name: lease[name] for name in expected} == expected
    assert stamp(begun + timedelta(seconds=58)) < lease["holdExpiresAt"] < stamp(soon(62))
    assert len(claim.token) >= 24
    work = {row["kind"]: row for row in desk.work(claim.id)}
    require("lease.expireHold" in work, f"a held lease has the work {sorted(work)}")
    assert work["lease.expireHold"]["state"] == "pending"
    assert work["lease.expireHold"]["dueAt"] == lease["holdExpiresAt"]
    assert desk.history(claim.id) == ["lease.held"]

    before = _facts(desk.snapshot())
    desk.refused(desk.ask({"p": 5}, tomorrow(), tomorrow(2), wait=False), 409, "CAPACITY_UNAVAILABLE")
    desk.refused(desk.ask({"p": 11}, tomorrow(), tomorrow(2)), 409, "EXCEEDS_POOL_CAPACITY")
    desk.refused(desk.ask({"p": 1, "q": 1}, tomorrow(), tomorrow(2)), 404, "POOL_NOT_FOUND")
    assert _facts(desk.snapshot()) == before, "a refused request has left something behind"

    queued = desk.ask({"p": 5}, tomorrow(), tomorrow(2)).expect(202).fields["lease"]
    assert (queued["state"], queued["holdExpiresAt"]) == ("waiting", None)
    assert desk.history(queued["leaseId"]) == ["lease.queued"]
    short = {"ownerId": "old", "poolId": "p", "units": 4, "startAt": stamp(tomorrow(3)), "endAt": stamp(tomorrow(4))}
    legacy = desk.call("POST", "/api/v1/leases", short).expect(201).fields["lease"]
    assert legacy["members"] == [{"poolId": "p", "units": 4}]
    assert len(desk.snapshot()["resources"]["leases"]) == 3
    assert desk.peak("p", tomorrow(), tomorrow(2)) == 6, "a waiting lease occupies nothing"


@case(
    "A-09",
    dimension="A",
    title="Confirming needs the token, the current revision and a hold that has not expired",
    clauses=["3.8", "3.9", "3.10", "5.10", "5.11", "7.2", "7.6"],
    tags=["quick"],
)
def test_confirm_needs_token_revision_and_a_living_hold(house: House) -> None:
    """No worker runs: the rule about the hold's end is the API's own."""
    (desk,) = house.open()
    desk.pool("p", 10)
    brief = desk.book({"p": 1}, tomorrow(), tomorrow(1), holdSeconds=1)
    other = desk.book({"p": 1}, tomorrow(), tomorrow(1))
    claim = desk.book({"p": 1}, tomorrow(), tomorrow(1), holdSeconds=120)
    for token in (None, "x" * 32, other.token):
        desk.refused(desk.attempt(claim, "confirm", token=token), 403, "LEASE_TOKEN_REQUIRED")
    desk.refused(desk.attempt(claim, "confirm", revision=None), 428, "PRECONDITION_REQUIRED")
    desk.refused(desk.attempt(claim, "confirm", revision=7), 412, "REVISION_MISMATCH")
    desk.refused(desk.attempt(claim, "release"), 409, "INVALID_STATE")
    answer = desk.attempt(claim, "confirm").expect(200)
    claim.lease = answer.fields
    assert (claim.lease["state"], claim.lease["revision"]) == ("confirmed", 2)
    assert answer.headers.get("etag") == '"2"'
    kinds = {row["kind"]: row["state"] for row in desk.work(claim.id)}
    assert kinds.get("lease.expireHold") == "cancelled", f"the hold's work is {kinds}"
    assert (kinds.get("lease.activate"), kinds.get("lease.end")) == ("pending", "pending")
    desk.refused(desk.attempt(claim, "confirm"), 409, "INVALID_STATE")
    eventually(lambda: stamp(soon(-0.3)) > brief.lease["holdExpiresAt"], "time should pass", seconds=10)
    desk.refused(desk.attempt(brief, "confirm"), 409, "HOLD_EXPIRED")
    assert desk.lease(brief.id)["state"] == "held", "only the worker expires a hold"
    assert desk.history(claim.id) == ["lease.held", "lease.confirmed"]


@case(
    "A-11",
    dimension="A",
    title="Activation, release and expiry follow the table of states, and final states are final",
    clauses=["5.10", "5.12", "5.13", "7.2", "7.3", "7.6", "8.2"],
    tags=["quick"],
)
def test_leases_activate_release_and_expire(house: House) -> None:
    """One worker brings every lease to where its times say."""
    (desk,) = house.open()
    house.worker()
    desk.pool("p", 10)
    desk.pool("full", 1)
    over = desk.book({"p": 1}, tomorrow(), tomorrow(1), holdSeconds=1)
    released = desk.act(desk.book({"p": 1}, soon(), soon(600)), "confirm")
    ended = desk.act(desk.book({"p": 1}, soon(), soon(4)), "confirm")
    cancelled = desk.act(desk.book({"p": 1}, tomorrow(), tomorrow(1)), "cancel")
    desk.act(desk.book({"full": 1}, soon(), soon(900)), "confirm")
    queued = desk.book({"full": 1}, soon(1), soon(4))
    early = desk.act(desk.book({"p": 1}, tomorrow(), tomorrow(1)), "confirm")

    released.lease = desk.await_state(released.id, "active")
    assert (released.lease["grant"], released.lease["revision"]) == (None, 3)
    released = desk.act(released, "release")
    ends = {over.id: "expired", ended.id: "expired", queued.id: "expired", cancelled.id: "cancelled"}
    final = [desk.await_state(id, state) for id, state in ends.items()]
    final.append(desk.lease(released.id))
    assert all(lease["endedAt"] for lease in final), "a final state sets endedAt"
    for claim in (over, released, ended, cancelled, queued):
        claim.lease = desk.lease(claim.id)
        for action in ("confirm", "release", "cancel"):
            desk.refused(desk.attempt(claim, action), 409, "INVALID_STATE")
    histories = {
        over.id: ["lease.held", "lease.expired"],
        released.id: ["lease.held", "lease.confirmed", "lease.activated", "lease.released"],
        ended.id: ["lease.held", "lease.confirmed", "lease.activated", "lease.expired"],
        queued.id: ["lease.queued", "lease.expired"],
        cancelled.id: ["lease.held", "lease.cancelled"],
    }
    assert {id: desk.history(id) for id in histories} == histories
    snapshot = desk.snapshot()
    gone = {lease["leaseId"] for lease in snapshot["resources"]["leases"] if lease["state"] in FINAL}
    left = [row for row in snapshot["work"] if row["aggregateId"] in gone and row["state"] in OPEN]
    assert not left, f"final leases still have work: {left}"
    assert desk.lease(early.id)["state"] == "confirmed", "a lease before its start is not active"


@case(
    "A-15",
    dimension="A",
    title="Events have the exact shape, one for each change, in one gapless sequence that readers can follow",
    clauses=["3.9", "9.1", "9.2", "9.3", "9.4"],
    tags=["quick"],
)
def test_events_are_exact_and_gapless(house: House) -> None:
    """A reader that follows the sequence while two instances write misses nothing."""
    first, second = house.open(2)
    made = first.pool("p", 1000)
    claim = first.book({"p": 1}, tomorrow(), tomorrow(1))
    forms = [made, claim.lease, first.act(claim, "confirm").lease]
    forms.append(second.act(claim, "renew", {"endAt": stamp(tomorrow(2))}).lease)
    forms.append(second.act(claim, "release").lease)
    change = second.call("PATCH", "/api/v1/pools/p", {"capacity": 900}, admin=True, revision=1).expect(200).fields
    forms.append(change)
    events = first.events()
    types = ["pool.created", "lease.held", "lease.confirmed", "lease.renewed", "lease.released", "pool.changed"]
    assert [event["type"] for event in events] == types
    assert [event["data"] for event in events] == forms, "data is the public form right after the change"
    assert [event["revision"] for event in events] == [form["revision"] for form in forms]
    assert [event["aggregateType"] for event in events] == ["pool", *["lease"] * 4, "pool"]

    followed: list[int] = []
    over = threading.Event()

    def follow() -> None:
        while True:
            is_last = over.is_set()
            page = second.events(followed[-1] if followed else 0, limit=7)
            followed.extend(event["sequence"] for event in page)
            if is_last and not page:
                return

    def write() -> None:
        try:
            spread([first, second], range(24), lambda desk, _: desk.book({"p": 1}, tomorrow(3), tomorrow(4)))
        finally:
            over.set()

    at_once([follow, write])
    assert followed == list(range(1, 31)), "the sequence as followed has gaps, repetitions or late entries"
    assert len({event["eventId"] for event in first.events()}) == 30
    assert [event["sequence"] for event in first.events(28)] == [29, 30]
