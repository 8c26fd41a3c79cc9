"""One builder per noun, and a hub that really listens."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx2

from hub.app import create_app
from hub.serving import server
from hub.settings import Settings
from wire.digest import Digest, of_bytes
from wire.journal import (
    AnyEntry,
    CaseOutcome,
    CasePlan,
    CaseReported,
    RunRecord,
    Settlement,
    SubmissionChecked,
    SuitePlanned,
    TrialRecord,
    TurnEvent,
)
from wire.package import Operations, PackageManifest, SuiteInfo, TaskInfo
from wire.run import AgentKind, AgentSpec, Arm, Evaluation, Limits, UserSpec
from wire.token import Role, Token, mint
from wire.trial import EndReason, RunRef, Submission, TrialSpec

KEY = b"an installation key for tests"
TIME = "2026-12-01T00:00:00Z"
SUBMISSION = of_bytes(b"submission")
PREPARED = of_bytes(b"prepared")
PARTS = {"public": b"public part", "user": b"user part", "evaluator": b"evaluator part", "oracle": b"oracle part"}


def a_manifest(scheduled: int = 46) -> PackageManifest:
    """Return the manifest of a package whose parts are `PARTS`."""
    operation = ["true"]
    return PackageManifest(
        task=TaskInfo(
            id="capacity-lease",
            title="CapacityLease",
            version="1",
            tags=[],
            operations=Operations(
                install=operation, build=operation, migrate=operation, api=operation, worker=operation, test=operation
            ),
            suite=SuiteInfo(applicable=scheduled, scheduled=scheduled),
        ),
        parts={
            "public": of_bytes(PARTS["public"]),
            "user": of_bytes(PARTS["user"]),
            "evaluator": of_bytes(PARTS["evaluator"]),
            "oracle": of_bytes(PARTS["oracle"]),
        },
    )


def a_run(uid: str = "run-1", *, formal: bool = False, arms: tuple[AgentKind, ...] = (AgentKind.ORACLE,)) -> RunRecord:
    """Return a run with one arm for each agent kind, named after it."""
    spec = {
        "suite": "engram-transfer",
        "formal": formal,
        "arms": [{"name": kind.value, "agent": {"kind": kind.value}} for kind in arms],
    }
    return RunRecord(uid=uid, name=uid, namespace="runs", spec=spec)


def a_trial(  # noqa: PLR0913 - a builder: every fact a test may care about
    uid: str,
    run: str = "run-1",
    *,
    attempt: int = 1,
    sandbox: int = 1,
    index: int = 0,
    agent: AgentKind = AgentKind.ORACLE,
    formal: bool = False,
    retries: int = 0,
) -> TrialRecord:
    """Return a trial's record."""
    spec = TrialSpec(
        run_ref=RunRef(name=run, uid=run),
        index=index,
        task="capacity-lease",
        package=a_manifest().digest(),
        arm=Arm(name=agent.value, agent=AgentSpec(kind=agent)),
        repetition=1,
        user=UserSpec(),
        limits=Limits(),
        evaluation=Evaluation(),
        formal=formal,
        retries=retries,
    )
    return TrialRecord(uid=uid, name=f"trial-{index}", run_uid=run, spec=spec, attempt=attempt, sandbox=sandbox)


def an_event(sequence: int, text: str = "", attempt: int = 1) -> TurnEvent:
    """Return a turn's event."""
    return TurnEvent(turn=1, attempt=attempt, sequence=sequence, at=TIME, event="output", text=text)


def a_plan(*selected: str, left_out: tuple[str, ...] = ()) -> SuitePlanned:
    """Return the plan of a suite."""
    return SuitePlanned(
        submission=SUBMISSION,
        cases=[
            CasePlan.model_validate({"id": case, "dimension": case[0], "title": f"case {case}", "selected": on})
            for on, cases in ((True, selected), (False, left_out))
            for case in cases
        ],
    )


def a_case(
    case: str, outcome: CaseOutcome = CaseOutcome.PASSED, *, attempt: int = 1, shard: int = 0, message: str = ""
) -> CaseReported:
    """Return a case's report."""
    return CaseReported(case=case, attempt=attempt, shard=shard, outcome=outcome, seconds=0.5, message=message, at=TIME)


def a_check(*, after: Digest = SUBMISSION, attempt: int = 1, shard: int = 0) -> SubmissionChecked:
    """Return a shard's comparison of digests."""
    return SubmissionChecked(
        attempt=attempt, shard=shard, submission_before=SUBMISSION, submission_after=after, prepared=PREPARED
    )


def a_submission(*, gate_passed: bool = True) -> Submission:
    """Return what is graded."""
    reason = EndReason.GATE_PASSED if gate_passed else EndReason.GATE_LIMIT
    return Submission(digest=SUBMISSION, prepared=PREPARED, gate_passed=gate_passed, end_reason=reason)


def graded() -> Settlement:
    """Return the end of a trial that has a submission."""
    return Settlement(phase="Graded", submission=a_submission())


def bearer(role: Role, trial: str = "-", attempt: int = 0) -> dict[str, str]:
    """Return the header of a caller."""
    return {"Authorization": f"Bearer {mint(KEY, Token(trial=trial, attempt=attempt, role=role))}"}


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A hub that listens on a Unix socket, and the operator's client of it."""

    client: httpx2.Client
    settings: Settings

    def put_trial(self, agent: AgentKind = AgentKind.ORACLE, **facts: int) -> str:
        """Register a new trial and return its UID."""
        uid = str(uuid4())
        self.put_record(a_trial(uid, agent=agent, **facts))  # type: ignore[arg-type]  # numbers alone
        return uid

    def put_record(self, record: TrialRecord) -> None:
        """Register a trial's state."""
        assert self.client.put(f"/v1/trials/{record.uid}", json=record.dump()).status_code == 200

    def send(self, trial: str, role: Role, *entries: AnyEntry, attempt: int = 1) -> httpx2.Response:
        """Send journal entries."""
        return self.client.post(
            f"/v1/trials/{trial}/journal",
            json=[entry.dump() for entry in entries],
            headers=bearer(role, trial, attempt),
        )

    def settle(self, trial: str, settlement: Settlement) -> httpx2.Response:
        """Settle a trial."""
        return self.client.post(f"/v1/trials/{trial}/settle", json=settlement.dump())


@contextmanager
def running_hub(folder: Path, database_url: str, **more: object) -> Iterator[Hub]:
    """Serve a hub on a socket in a folder, with a folder as store unless told otherwise."""
    folder.mkdir(exist_ok=True)
    (folder / "key").write_bytes(KEY + b"\n")
    told = {"store": str(folder / "store"), "wait_seconds": 1.0, **more}
    settings = Settings.model_validate(
        {"database_url": database_url, "installation_key": folder / "key", "listen": f"unix:{folder}/hub.sock", **told}
    )
    serving = server(create_app(settings), settings.listen)
    thread = threading.Thread(target=serving.run)
    thread.start()
    transport = httpx2.HTTPTransport(uds=None if serving.config.uds is None else f"{folder}/hub.sock")
    address = "http://hub" if serving.config.uds else f"http://{settings.listen}"
    client = httpx2.Client(transport=transport, base_url=address, headers=bearer(Role.OPERATOR), timeout=30)
    try:
        wait_until(lambda: serving.started)
        with client:
            yield Hub(client=client, settings=settings)
    finally:
        serving.should_exit = True
        thread.join(timeout=20)


def wait_until(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)


def prepare(hub: Hub) -> None:
    """Wait for a hub, and give it a run and a package."""
    wait_until(lambda: hub.client.get("/readyz").status_code == 200)
    assert hub.client.put("/v1/runs/run-1", json=a_run(arms=tuple(AgentKind)).dump()).status_code == 200
    for content in PARTS.values():
        assert hub.client.put(f"/v1/archives/{of_bytes(content)}", content=content).status_code == 200
    manifest = a_manifest()
    assert hub.client.put(f"/v1/packages/{manifest.digest()}", json=manifest.dump()).status_code == 200
