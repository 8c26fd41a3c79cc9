"""Dimension E: operational compatibility."""

import json
import threading
import time
import uuid
from typing import Any

from house import ENDED_BY_TERM, Desk, House, at_once, soon, stamp, tomorrow
from runner.kit import case, eventually, require
from runner.kit.database import Database
from runner.kit.fixtures import Proxies, Receivers
from runner.kit.lying import LyingProxy
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
def test_shutdown_secrets_and_import(house: House, receivers: Receivers, database: Database, proxies: Proxies) -> None:
    """An import is all or nothing and repeatable; SIGTERM waits for requests and for no outside answer."""
    provider = receivers()
    provider.behave(lambda _: Hold())
    house.env["ADMISSION_URL"] = provider.url
    gate = threading.Event()
    proxy = proxies(hold=gate)
    (desk,) = house.open()
    slow = house.start_api(DATABASE_URL=database.through(proxy.port))
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
    code = worker.terminate(6)
    require(code in ENDED_BY_TERM, f"a worker that waits for an answer ends with {code}")
    _ends_after_its_answer(desk, slow, proxy, gate)
    for process in house.launcher.processes:
        log = process.log()
        shown = [name for name in house.secrets if name in log]
        require(not shown, f"the log of {process.name} shows {len(shown)} secrets")


def _ends_after_its_answer(desk: Desk, slow: Desk, proxy: LyingProxy, gate: threading.Event) -> None:
    """Send SIGTERM to an API whose request is held at its commit: it must be answered, then the process must end."""

    def end() -> int:
        eventually(lambda: proxy.writes, "the request should reach its commit", seconds=10)
        slow.api.process.signal("SIGTERM")
        time.sleep(0.5)
        gate.set()
        return slow.api.process.wait(6)

    jobs = [lambda: slow.ask({"west": 1}, tomorrow(5), tomorrow(6)).expect(201).status, end]
    status, code = at_once(jobs)
    require(
        status == 201 and code in ENDED_BY_TERM, f"an API that is told to end answers {status} and ends with {code}"
    )
    require(desk.peak("west", tomorrow(5), tomorrow(6)) == 1, "a request that was answered has left nothing")


def _same(before: Any, after: Any, sentence: str) -> None:
    names = ("resources", "events", "work")
    require([before[name] for name in names] == [after[name] for name in names], sentence)
