"""Dimension D: what HTTP, the served document, the page and the submission's own tests say about one another."""

from collections.abc import Iterator
from datetime import datetime

from house import Claim, Desk, House, stamp, tomorrow
from runner.kit import Answer, SubmissionFailed, case, eventually, require
from runner.kit.answers import Fields
from runner.kit.database import Database
from runner.kit.fixtures import OpenUi
from runner.kit.openapi import OpenApi
from runner.kit.own_tests import OwnTests
from runner.kit.processes import Sut
from runner.kit.reporting import KitConfig
from runner.postgres import Postgres


def _traffic(desk: Desk) -> Iterator[Answer]:
    """Use every operation of the contract."""
    for path in ("/healthz", "/readyz", "/openapi.json", "/"):
        yield desk.call("GET", path).expect(200)
    body: dict[str, object] = {"poolId": "p", "name": "P", "capacity": 4}
    yield desk.call("POST", "/api/v1/pools", body, admin=True).expect(201)
    yield desk.call("POST", "/api/v1/pools", body, admin=True).expect(409)
    yield desk.call("PATCH", "/api/v1/pools/p", {"name": "Q"}, admin=True, revision=1).expect(200)
    created = desk.ask({"p": 3}, tomorrow(), tomorrow(1)).expect(201)
    yield created
    claim = Claim(created.fields["leaseToken"], created.fields["lease"])
    waiting = desk.ask({"p": 2}, tomorrow(), tomorrow(1)).expect(202)
    yield waiting
    for path in (
        "/api/v1/pools?limit=5",
        "/api/v1/pools/p",
        f"/api/v1/pools/p/timeline?from={stamp(tomorrow())}&to={stamp(tomorrow(2))}",
        "/api/v1/leases?state=held&ownerId=team-a&poolId=p",
        f"/api/v1/leases/{claim.id}",
        f"/api/v1/leases/{claim.id}/events",
        "/api/v1/waiting?poolId=p",
        "/api/v1/events?after=0&limit=10",
    ):
        yield desk.call("GET", path).expect(200)
    yield desk.call("GET", "/api/v1/work?state=pending", admin=True).expect(200)
    yield desk.call("GET", "/api/v1/verification-snapshot", admin=True).expect(200)
    yield desk.attempt(claim, "confirm", token="wrong").expect(403)
    for action, change in (("confirm", {}), ("renew", {"endAt": stamp(tomorrow(2))}), ("release", {})):
        answer = desk.attempt(claim, action, change).expect(200)
        claim.lease = answer.fields
        yield answer
    queued = Claim(waiting.fields["leaseToken"], desk.lease(waiting.fields["lease"]["leaseId"]))
    yield desk.attempt(queued, "cancel").expect(200)
    yield desk.call("GET", "/api/v1/leases/00000000-0000-4000-8000-000000000000").expect(404)


def _parameters(document: OpenApi) -> dict[tuple[str, str], set[tuple[str, str, bool]]]:
    """Return the parameters of every operation: name, place, required."""
    found: dict[tuple[str, str], set[tuple[str, str, bool]]] = {}
    for path, method, operation, shared in document.walk():
        listed = [document.resolve(each) for each in [*shared, *operation.get("parameters", [])]]
        found[(method.upper(), path)] = {
            (str(each.get("name", "")).lower(), str(each.get("in")), bool(each.get("required"))) for each in listed
        }
    return found


@case(
    "D-01",
    dimension="D",
    title="All traffic conforms to the document that the API serves, and the document says no less than the contract",
    clauses=["3.1"],
    tags=["quick"],
)
def test_traffic_conforms_to_the_served_document(house: House, contract: OpenApi) -> None:
    """Every operation is used; a served schema that would accept a crippled answer proves nothing."""
    (desk,) = house.open()
    served = OpenApi(desk.call("GET", "/openapi.json").expect(200).json)
    missing = contract.operations() - served.operations()
    require(not missing, f"the served document lacks {sorted(missing)}")
    here = _parameters(served)
    for operation, parameters in _parameters(contract).items():
        lacking = parameters - here.get(operation, set())
        require(not lacking, f"{operation}: the served document lacks the parameters {sorted(lacking)}")
    for answer in _traffic(desk):
        served.check(answer)
        contract.check(answer)
        if answer.headers.get("content-type", "").startswith("application/json"):
            _must_refuse(served, answer)


def _must_refuse(served: OpenApi, answer: Answer) -> None:
    """Require that the served schema notices a missing member."""
    if answer.request.endswith("/openapi.json"):
        return  # A document about documents may be loose.
    for name in answer.fields:
        try:
            served.check(answer.without(name))
        except SubmissionFailed:
            continue
        raise SubmissionFailed(f"the served schema of {answer} does not notice that {name!r} is missing")


def _field(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M")


@case(
    "D-02",
    dimension="D",
    title="What is done in the browser reaches the API and survives its restart",
    clauses=["13.1", "13.2", "13.3", "13.4", "13.5", "13.6", "10.2"],
    tags=["quick"],
)
def test_actions_in_the_browser_reach_the_api(house: House, open_ui: OpenUi) -> None:
    """Request, confirm, restart the API, reload, renew, release: the page and the API agree at every step."""
    (desk,) = house.open()
    desk.pool("bench", 5)
    page = open_ui(desk.api)
    page.goto("/")
    page.wait_for("heading", name="CapacityLease")
    page.fill("Owner", "ui-team")
    page.select("Pool 1", "bench")
    page.fill("Units 1", "2")
    page.fill("Start (UTC)", _field(tomorrow()))
    page.fill("End (UTC)", _field(tomorrow(2)))
    page.click("Request lease")
    said = page.wait_for("status", text="held")
    leases = desk.snapshot()["resources"]["leases"]
    require(len(leases) == 1, f"after one request in the browser there are {len(leases)} leases")
    lease: Fields = leases[0]
    id = str(lease["leaseId"])
    require(id in said, f"the page says {said!r}, without the lease's id {id}")
    assert (lease["ownerId"], lease["members"]) == ("ui-team", [{"poolId": "bench", "units": 2}])
    assert (lease["startAt"], lease["endAt"]) == (stamp(tomorrow()), stamp(tomorrow(2)))

    page.click(f"Confirm {id}")
    page.wait_for("row", text="confirmed")
    require(desk.lease(id)["state"] == "confirmed", "the page shows a confirmation that the API does not know")
    desk.api.process.terminate(6)
    desk = house.reopen(desk)
    page.goto("/")
    row = page.wait_for("row", text=id)
    require("confirmed" in row, f"after a restart the page shows {row!r}")
    require(desk.lease(id)["state"] == "confirmed", "the confirmation did not survive a restart")

    page.fill(f"New end (UTC) {id}", _field(tomorrow(3)))
    page.click(f"Renew {id}")
    eventually(lambda: desk.lease(id)["endAt"] == stamp(tomorrow(3)), "the renewal should reach the API", seconds=8)
    page.wait_for("row", text=id)
    page.click(f"Release {id}")
    page.wait_for("row", text="released")
    require(desk.lease(id)["state"] == "released", "the page shows a release that the API does not know")
    assert desk.history(id) == ["lease.held", "lease.confirmed", "lease.renewed", "lease.released"]


@case(
    "D-07",
    dimension="D",
    title="The submission's own tests pass intact and fail without database, without browser and with a lying database",
    clauses=["12.1", "12.2"],
    tags=["quick"],
    deadline_seconds=600,
)
def test_own_tests_have_substance(
    house: House, sut: Sut, database: Database, postgres: Postgres, kit: KitConfig
) -> None:
    """Fake-green: tests that cannot fail are no tests."""
    OwnTests(
        sut=sut,
        launcher=house.launcher,
        database=database,
        postgres=(postgres.host, postgres.port),
        command=kit.operations.test,
        database_variable="TEST_DATABASE_URL",
        browser_variable="CHROMIUM_PATH",
        chromium=kit.chromium,
        seconds=120,
    ).judge()
