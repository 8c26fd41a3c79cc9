"""Who may do what: every role × every call, living and dead attempts."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hub.access import TrialState, require_alive
from tests.hub.builders import (
    PARTS,
    Hub,
    a_case,
    a_manifest,
    a_run,
    a_trial,
    an_event,
    bearer,
)
from wire.digest import of_bytes
from wire.errors import Refused
from wire.journal import GateReported, Settlement
from wire.model import Wire
from wire.run import AgentKind
from wire.token import Role, Token

DRIVERS = {Role.AGENT, Role.USER, Role.GATE, Role.EVALUATOR}
EVERYONE = {*DRIVERS, Role.OPERATOR}
TALKERS = {Role.AGENT, Role.USER}
OPERATOR = {Role.OPERATOR}
BLOB = b"some archive"
GATE = GateReported(
    conversation=1, attempt=1, candidate=of_bytes(b"c"), passed=True, steps=[], at="2026-12-01T00:00:00Z"
)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the hub's API and who may make it."""

    method: str
    path: str
    allowed: set[Role]
    entry: Wire | None = None
    content: bytes | None = None


CALLS = {
    "register a run": Call(method="PUT", path="/v1/runs/run-1", allowed=OPERATOR),
    "register a trial": Call(method="PUT", path="/v1/trials/{trial}", allowed=OPERATOR),
    "settle": Call(method="POST", path="/v1/trials/{trial}/settle", allowed=OPERATOR),
    "read a trial": Call(method="GET", path="/v1/trials/{trial}", allowed=OPERATOR),
    "list runs": Call(method="GET", path="/v1/runs", allowed=OPERATOR),
    "list trials": Call(method="GET", path="/v1/runs/run-1/trials", allowed=OPERATOR),
    "report": Call(method="GET", path="/v1/runs/run-1/report", allowed=OPERATOR),
    "store a package": Call(method="PUT", path="/v1/packages/{package}", allowed=OPERATOR),
    "read the package": Call(method="GET", path="/v1/packages/{package}", allowed=EVERYONE),
    "read a foreign package": Call(method="GET", path=f"/v1/packages/{of_bytes(b'-')}", allowed=OPERATOR),
    "write a turn": Call(method="POST", path="/v1/trials/{trial}/journal", entry=an_event(1), allowed=TALKERS),
    "write a gate": Call(method="POST", path="/v1/trials/{trial}/journal", entry=GATE, allowed={Role.GATE}),
    "write a case": Call(
        method="POST", path="/v1/trials/{trial}/journal", entry=a_case("A-01"), allowed={Role.EVALUATOR}
    ),
    "read what one may": Call(method="GET", path="/v1/trials/{trial}/journal", allowed=EVERYONE),
    "read turns": Call(
        method="GET", path="/v1/trials/{trial}/journal?kind=turnSealed", allowed={*TALKERS, Role.OPERATOR}
    ),
    "read gates": Call(
        method="GET", path="/v1/trials/{trial}/journal?kind=gateReported", allowed=EVERYONE - {Role.EVALUATOR}
    ),
    "read cases": Call(
        method="GET", path="/v1/trials/{trial}/journal?kind=caseReported", allowed={Role.EVALUATOR, Role.OPERATOR}
    ),
    "store an archive": Call(method="PUT", path=f"/v1/archives/{of_bytes(BLOB)}", content=BLOB, allowed=EVERYONE),
    "read a hidden part's archive": Call(
        method="GET", path=f"/v1/archives/{of_bytes(PARTS['evaluator'])}", allowed=OPERATOR
    ),
    "see that archive": Call(method="HEAD", path=f"/v1/archives/{of_bytes(PARTS['evaluator'])}", allowed=OPERATOR),
    "read part public": Call(method="GET", path="/v1/trials/{trial}/parts/public", allowed=EVERYONE),
    "read part user": Call(method="GET", path="/v1/trials/{trial}/parts/user", allowed={Role.USER, Role.OPERATOR}),
    "read part evaluator": Call(
        method="GET", path="/v1/trials/{trial}/parts/evaluator", allowed={Role.EVALUATOR, Role.OPERATOR}
    ),
    "read part oracle": Call(method="GET", path="/v1/trials/{trial}/parts/oracle", allowed=OPERATOR),
}


def make(hub: Hub, call: Call, trial: str, headers: Mapping[bytes, bytes]) -> int:
    """Make a call with a good body and return its status."""
    path = call.path.format(trial=trial, package=a_manifest().digest())
    bodies: dict[str, object] = {
        "/v1/runs/run-1": a_run(arms=tuple(AgentKind)).dump(),
        f"/v1/trials/{trial}": a_trial(trial, agent=AgentKind.NOP).dump(),
        f"/v1/trials/{trial}/settle": Settlement(phase="Cancelled").dump(),
        f"/v1/packages/{a_manifest().digest()}": a_manifest().dump(),
        f"/v1/trials/{trial}/journal": [call.entry.dump()] if call.entry else [],
    }
    if call.content is not None:
        return hub.client.request(call.method, path, content=call.content, headers=headers).status_code
    body = bodies[path] if call.method in {"PUT", "POST"} else None
    return hub.client.request(call.method, path, json=body, headers=headers).status_code


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", list(CALLS))
def test_a_role_does_what_its_row_says_and_nothing_else(hub: Hub, name: str, role: Role) -> None:
    """Every role × every call: allowed ones pass, all others are refused, and hidden archives do not exist."""
    trial = hub.put_trial(AgentKind.NOP)
    headers = bearer(role) if role is Role.OPERATOR else bearer(role, trial, 1)
    status = make(hub, CALLS[name], trial, {key.encode(): value.encode() for key, value in headers.items()})
    if role in CALLS[name].allowed:
        assert status in ({200, 404} if "foreign" in name else {200}), status
    else:
        assert status in ({403, 404} if "archive" in name else {403}), status


@pytest.mark.parametrize(
    ("agent", "role", "status"),
    [
        (AgentKind.ORACLE, Role.AGENT, 200),
        (AgentKind.MUTANT, Role.AGENT, 200),
        (AgentKind.NOP, Role.AGENT, 403),
        (AgentKind.ORACLE, Role.USER, 403),
        (AgentKind.ORACLE, Role.GATE, 403),
        (AgentKind.ORACLE, Role.EVALUATOR, 403),
    ],
)
def test_the_solution_is_read_by_the_agents_that_apply_it(hub: Hub, agent: AgentKind, role: Role, status: int) -> None:
    """The part `oracle` is for the agent container of oracle and mutant arms alone."""
    trial = hub.put_trial(agent)
    answer = hub.client.get(f"/v1/trials/{trial}/parts/oracle", headers=bearer(role, trial, 1))
    assert answer.status_code == status


@pytest.mark.parametrize("header", ["-", "Bearer", "Bearer x", "Basic abc", "Bearer prt1.-.0.operator.é", "Bearer a.b"])
def test_nobody_gets_in_without_a_token_of_this_installation(hub: Hub, header: str) -> None:
    """Missing, malformed and foreign bearers are all answered 401, on every call."""
    for name, call in CALLS.items():
        assert make(hub, call, "unknown", {b"Authorization": header.encode()}) == 401, name


@pytest.mark.parametrize("role", sorted(DRIVERS))
@pytest.mark.parametrize("how", ["older", "newer", "settled", "other trial", "unknown trial"])
def test_dead_tokens_do_nothing(hub: Hub, role: Role, how: str) -> None:
    """A driver's token is good for the current attempt of its own unsettled trial alone."""
    trial = hub.put_trial(attempt=2)
    target, holder, attempt = trial, trial, 2
    if how == "older":
        attempt = 1
    elif how == "newer":
        attempt = 3
    elif how == "settled":
        assert hub.settle(trial, Settlement(phase="Cancelled")).status_code == 200
    elif how == "other trial":
        holder = hub.put_trial(attempt=2)
    else:
        target = holder = "00000000-0000-0000-0000-00000000dead"
    headers = bearer(role, holder, attempt)
    calls = [
        hub.client.post(f"/v1/trials/{target}/journal", json=[], headers=headers),
        hub.client.get(f"/v1/trials/{target}/journal", headers=headers),
        hub.client.get(f"/v1/trials/{target}/parts/public", headers=headers),
    ]
    if how != "other trial":
        calls.append(hub.client.put(f"/v1/archives/{of_bytes(BLOB)}", content=BLOB, headers=headers))
        calls.append(hub.client.get(f"/v1/packages/{a_manifest().digest()}", headers=headers))
    assert {(answer.status_code, answer.json()["error"]["reason"]) for answer in calls} == {(403, "Refused")}


def test_attempts_only_grow(hub: Hub) -> None:
    """A record that comes late revives no dead attempt."""
    trial = hub.put_trial(attempt=1)
    hub.put_record(a_trial(trial, attempt=2))
    hub.put_record(a_trial(trial, attempt=1))
    assert hub.client.get(f"/v1/trials/{trial}").json()["record"]["attempt"] == 2
    assert hub.send(trial, Role.AGENT, an_event(1), attempt=1).status_code == 403
    assert hub.send(trial, Role.AGENT, an_event(1), attempt=2).status_code == 200


@pytest.mark.parametrize(("attempt", "sandbox", "settled"), list(itertools.product((1, 2), (1, 2), (False, True))))
def test_a_sandbox_token_lives_as_long_as_its_sandbox(attempt: int, sandbox: int, settled: bool) -> None:
    """A lost session ends the attempt's drivers and leaves the sandbox's token alive."""
    state = TrialState(attempt=attempt, sandbox=sandbox, settled=settled, agent=AgentKind.NOP, package=of_bytes(b""))

    def lives(role: Role) -> bool:
        try:
            require_alive(Token(trial="t", attempt=1, role=role), state)
        except Refused:
            return False
        return True

    assert lives(Role.SANDBOX) == (not settled and sandbox == 1)
    assert lives(Role.AGENT) == (not settled and attempt == 1)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/trials/not%20a%20uid", 422),
        ("/v1/archives/sha256:12", 422),
        ("/v1/trials/t/parts/solution", 422),
        ("/v1/trials/unknown", 404),
        ("/v1/runs/unknown/report", 404),
        ("/v1/runs/unknown/trials", 404),
        ("/v1/nothing", 404),
    ],
)
def test_addresses_that_mean_nothing_get_the_one_shape(hub: Hub, path: str, status: int) -> None:
    """Unknown and malformed names are answered in the same shape as every other refusal."""
    answer = hub.client.get(path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"reason", "message"}


def test_records_are_checked_before_they_are_stored(hub: Hub) -> None:
    """A record under a foreign address, of an unknown run or with a bad field is refused, naming the field."""
    record = a_trial("trial-x")
    elsewhere = hub.client.put("/v1/trials/trial-y", json=record.dump())
    orphan = hub.client.put("/v1/trials/trial-x", json=record.model_copy(update={"run_uid": "nowhere"}).dump())
    broken = hub.client.put("/v1/runs/run-2", json={**a_run("run-2").dump(), "spec": {"suite": "x"}})
    assert (elsewhere.status_code, orphan.status_code, broken.status_code) == (422, 404, 422)
    assert "trial-x" in elsewhere.json()["error"]["message"]
    assert "runUid" in orphan.json()["error"]["message"]
    assert "arms" in broken.json()["error"]["message"]
