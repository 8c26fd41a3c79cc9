"""What the hub says of a finished trial, in the terms of the tests."""

from typing import Any

from tests.e2e.installation import Installation
from tests.e2e.kubectl import Object


def outcomes(record: Any) -> dict[str, str]:
    """Return the outcome of every selected case, by its id."""
    return {case["id"]: case["outcome"] for case in record["verdict"]["cases"] if case["selected"]}


def events_of(proctor: Installation, trial: Object) -> list[Object]:
    """Return a trial's journal."""
    uid, found, after = trial["metadata"]["uid"], list[Object](), 0
    with proctor.hub() as hub:
        while rows := hub.get(f"/v1/trials/{uid}/journal", params={"after": after}).raise_for_status().json():
            found += [row["entry"] for row in rows]
            after = rows[-1]["sequence"]
    return found
