"""Dimension E: operational compatibility."""

import json
import uuid
from typing import Any

from house import House, at_once, soon, stamp, tomorrow
from runner.kit import case, eventually, require
from runner.kit.fixtures import Receivers
from runner.kit.webhooks import Hold


def _document(units: int = 2) -> dict[str, Any]:
    """Return a document to import; ids are the same on every call."""
    leases = [
        {
            "leaseId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"lease-{number}")),
            "leaseToken": f"imported-token-{number:04d}-{'x' * 16}",
            "ownerId": f"owner-{number}",
            "members": [{"poolId": pool, "units": units} for pool in ("east", "west")],
            "startAt": stamp(tomorrow(number)),
            "endAt": stamp(tomorrow(number + 1)),
            "priority": number,
        }
        for number in range(3)
    ]
    pools = [{"poolId": pool, "name": pool.title(), "capacity": 4} for pool in ("east", "west")]
    return {"pools": pools, "leases": leases}


@case(
    "E-07",
    dimension="E",
    title="Processes end cleanly in the middle of work, no log shows a secret, and imports are reproducible",
    clauses=["1.5", "1.9", "11.1", "11.2", "11.3", "11.4", "3.8"],
    tags=["quick"],
)
def test_shutdown_secrets_and_import(house: House, receivers: Receivers) -> None:
    """An import is all or nothing and repeatable; SIGTERM waits for requests and for no outside answer."""
    provider = receivers()
    provider.behave(lambda _: Hold())
    house.env["ADMISSION_URL"] = provider.url
    desk, second = house.open(2)
    document = _document()
    require(house.seed(json.dumps(document)) == 0, "a good document is not imported")
    once = desk.snapshot()
    leases = once["resources"]["leases"]
    require([(each["state"], each["revision"]) for each in leases] == [("confirmed", 1)] * 3, f"imported: {leases}")
    assert [each["type"] for each in once["events"]] == ["pool.created"] * 2 + ["lease.imported"] * 3
    require(house.seed(json.dumps(document)) == 0, "a document cannot be imported again")
    _same(once, desk.snapshot(), "importing a document again has changed something")
    require(house.seed(json.dumps(_document(units=3))) == 1, "a document that contradicts what is there ends with 1")
    crowded = _document()
    crowded["leases"].append(
        {**crowded["leases"][0], "leaseId": str(uuid.uuid4()), "members": [{"poolId": "east", "units": 3}]}
    )
    crowded["pools"].append({"poolId": "north", "name": "North", "capacity": 1})
    require(house.seed(json.dumps(crowded)) == 1, "a document with a lease that does not fit ends with 1")
    _same(once, desk.snapshot(), "a refused document has left something behind")

    worker = house.worker()
    claim = desk.act(desk.book({"east": 1}, soon(), soon(600)), "confirm")
    asked = provider.wait_for(lambda each: each.json["leaseId"] == claim.id, "the provider should be asked", seconds=12)
    require(asked.status is None, "the worker is not held")
    house.secrets += [claim.token, *(each["leaseToken"] for each in document["leases"])]
    desk.attempt(claim, "release", token="wrong").expect(403)
    desk.api.send("GET", "/api/v1/work", headers={"authorization": f"Bearer {desk.admin}x"}).expect(401)
    require(worker.terminate(6) == 0, "a worker that waits for an answer does not end cleanly")
    codes = at_once([lambda each=each: each.api.process.terminate(6) for each in (desk, second)])
    require(codes == [0, 0], f"the API processes end with {codes}")
    eventually(lambda: not second.api.process.is_running(), "the API should be gone", seconds=3)
    for process in house.launcher.processes:
        log = process.log()
        shown = [name for name in house.secrets if name in log]
        require(not shown, f"the log of {process.name} shows {len(shown)} secrets")


def _same(before: Any, after: Any, sentence: str) -> None:
    names = ("resources", "events", "work")
    require([before[name] for name in names] == [after[name] for name in names], sentence)
