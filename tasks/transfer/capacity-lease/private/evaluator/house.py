"""CapacityLease as its cases see it: processes, one desk for each API instance, and the words of the contract.

Every answer is checked against the contract's own OpenAPI document, so a malformed one is the submission's failure
wherever it turns up; only surplus fields are let through, but in the case that is about them.
"""

import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from runner.kit import Answer, eventually, require
from runner.kit.answers import Fields
from runner.kit.openapi import OpenApi
from runner.kit.processes import Api, Launcher, Process
from wire.package import Operations

WORK_LEASE_SECONDS = 2
OPEN = ("pending", "leased")
FINAL = ("released", "expired", "cancelled")
# 143 as well: npm passes the group's SIGTERM on a second time, and it may arrive when Node has begun to exit with 0.
ENDED_BY_TERM = (0, 143)
Done = TypeVar("Done")
Given = TypeVar("Given")


def tolerant(schema: Any) -> Any:
    """Return a JSON schema, or a document of them, that lets surplus fields through."""
    if isinstance(schema, dict):
        return {key: tolerant(value) for key, value in schema.items() if key != "additionalProperties"}
    return [tolerant(each) for each in schema] if isinstance(schema, list) else schema


def stamp(moment: datetime) -> str:
    """Write an instant as the contract's answers do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def soon(seconds: float = 0.0) -> datetime:
    """Return the present, or a moment near it, in whole milliseconds."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)  # noqa: TID251  a case is a shell: it plays in real time
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def tomorrow(hours: float = 0.0) -> datetime:
    """Return an instant counted from ten o'clock of tomorrow."""
    day = soon().replace(hour=10, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return day + timedelta(hours=hours)


@dataclass
class Claim:
    """A lease together with the token that its creation returned."""

    token: str
    lease: Fields

    @property
    def id(self) -> str:
        """Return the lease's id."""
        return str(self.lease["leaseId"])


@dataclass
class Desk:
    """One API instance, spoken to in the contract's terms."""

    api: Api
    contract: OpenApi
    admin: str

    def call(  # noqa: PLR0913  each keyword is a header of the contract
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        admin: bool = False,
        token: str | None = None,
        revision: int | None = None,
    ) -> Answer:
        """Send a request with the headers it needs; a POST or PATCH without a key gets a fresh one."""
        headers: dict[str, str] = {}
        if method in ("POST", "PATCH"):
            headers["idempotency-key"] = key or f"k-{uuid.uuid4()}"
        if admin:
            headers["authorization"] = f"Bearer {self.admin}"
        if token is not None:
            headers["lease-token"] = token
        if revision is not None:
            headers["if-match"] = f'"{revision}"'
        answer = self.api.send(method, path, body=body, headers=headers)
        self.contract.check(answer)
        return answer

    def pool(self, pool: str, capacity: int) -> Fields:
        """Create a pool."""
        body = {"poolId": pool, "name": f"Pool {pool}", "capacity": capacity}
        return self.call("POST", "/api/v1/pools", body, admin=True).expect(201).fields

    def ask(self, members: dict[str, int], start: datetime, end: datetime, **more: Any) -> Answer:
        """Ask for a lease; `key` goes into the header, everything else into the body."""
        key = more.pop("key", None)
        listed = [{"poolId": pool, "units": units} for pool, units in members.items()]
        body = {"ownerId": "team-a", "members": listed, "startAt": stamp(start), "endAt": stamp(end), **more}
        return self.call("POST", "/api/v1/leases", body, key=key)

    def book(self, members: dict[str, int], start: datetime, end: datetime, **more: Any) -> Claim:
        """Ask for a lease that is granted or queued."""
        created = self.ask(members, start, end, **more).expect(201, 202).fields
        return Claim(created["leaseToken"], created["lease"])

    def attempt(self, claim: Claim, action: str, body: object = None, **more: Any) -> Answer:
        """Try an action on a lease, with its token and its known revision unless told otherwise."""
        known: dict[str, Any] = {"token": claim.token, "revision": claim.lease["revision"], **more}
        return self.call("POST", f"/api/v1/leases/{claim.id}/{action}", {} if body is None else body, **known)

    def act(self, claim: Claim, action: str, body: object = None) -> Claim:
        """Do an action that must succeed; the claim then knows the new revision."""
        claim.lease = self.attempt(claim, action, body).expect(200).fields
        return claim

    def refused(self, answer: Answer, status: int, code: str) -> None:
        """Require a refusal with this status and code."""
        found = answer.expect(status).fields["error"]["code"]
        require(found == code, f"{answer} carries the code {found!r}, expected {code!r}")

    def lease(self, id: str) -> Fields:
        """Read one lease."""
        return self.call("GET", f"/api/v1/leases/{id}").expect(200).fields

    def events(self, after: int = 0, limit: int = 500) -> list[Fields]:
        """Read events."""
        return list(self.call("GET", f"/api/v1/events?after={after}&limit={limit}").expect(200).fields["items"])

    def history(self, id: str) -> list[str]:
        """Return the types of one lease's events, in order."""
        return [event["type"] for event in self.call("GET", f"/api/v1/leases/{id}/events").expect(200).fields["items"]]

    def snapshot(self) -> Fields:
        """Read the verification snapshot."""
        return self.call("GET", "/api/v1/verification-snapshot", admin=True).expect(200).fields

    def work(self, id: str, kind: str | None = None) -> list[Fields]:
        """Return the work of one aggregate."""
        rows = self.snapshot()["work"]
        return [row for row in rows if row["aggregateId"] == id and kind in (None, row["kind"])]

    def peak(self, pool: str, start: datetime, end: datetime) -> int:
        """Return the largest use of a pool in an interval, by its timeline."""
        path = f"/api/v1/pools/{pool}/timeline?from={stamp(start)}&to={stamp(end)}"
        return max(int(piece["usedUnits"]) for piece in self.call("GET", path).expect(200).fields["slices"])

    def await_state(self, id: str, *states: str, seconds: float = 12) -> Fields:
        """Wait until a lease is in one of these states."""

        def look() -> Fields | None:
            lease = self.lease(id)
            return lease if lease["state"] in states else None

        return eventually(look, f"lease {id} should become {' or '.join(states)}", seconds=seconds, every=0.1)


@dataclass
class House:
    """The running submission of one case."""

    launcher: Launcher
    operations: Operations
    contract: OpenApi
    env: dict[str, str]
    secrets: list[str] = field(default_factory=list)
    """What no log may show."""

    def migrate(self) -> None:
        """Run the migrations."""
        self.launcher.succeed("migrate", self.operations.migrate, self.env)

    def open(self, apis: int = 1) -> list[Desk]:
        """Migrate, start API instances and wait until they answer."""
        self.migrate()
        started = self.launcher.apis(apis, self.operations.api, self.env, "/healthz")
        return [Desk(api, self.contract, self.env["ADMIN_TOKEN"]) for api in started]

    def start_api(self, **env: str) -> Desk:
        """Start one more API instance with something else in its environment."""
        (api,) = self.launcher.apis(1, self.operations.api, {**self.env, **env}, "/healthz")
        return Desk(api, self.contract, self.env["ADMIN_TOKEN"])

    def reopen(self, desk: Desk) -> Desk:
        """Start an API instance again on the port of one that has ended."""
        api = self.launcher.begin_api(self.operations.api, self.env, desk.api.port)
        self.launcher.await_ready(api, "/healthz")
        return Desk(api, self.contract, desk.admin)

    def worker(self, name: str = "worker-1", **env: str) -> Process:
        """Start a worker."""
        return self.launcher.start(name, self.operations.worker, {**self.env, "WORKER_ID": name, **env})

    def seed(self, document: str) -> int:
        """Import a document; return the exit code."""
        script = 'f="$(mktemp)" && printf %s "$DOCUMENT" > "$f" && exec npm run seed -- "$f"'
        env = {**self.env, "DOCUMENT": document}
        return self.launcher.run("seed", ["sh", "-c", script], env).wait(1)


def at_once(jobs: Sequence[Callable[[], Done]]) -> list[Done]:
    """Run all jobs concurrently, each in a thread of its own, released together."""
    begin = time.monotonic() + 0.15

    def run(job: Callable[[], Done]) -> Done:
        time.sleep(max(0.0, begin - time.monotonic()))
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(run, jobs))


def spread(desks: Sequence[Desk], inputs: Sequence[Given], act: Callable[[Desk, Given], Done]) -> list[Done]:
    """Do something with each input at once, dealt out to the API instances in turn."""
    jobs = [partial(act, desks[number % len(desks)], given) for number, given in enumerate(inputs)]
    return at_once(jobs)


def fresh_token() -> str:
    """Return an administrator's token that nobody can guess."""
    return secrets.token_urlsafe(24)
