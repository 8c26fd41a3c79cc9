"""What trusted pods tell the hub. Every entry carries a key; a key is stored once however often it is sent.

The journal is the only store of facts about a trial besides archives: verdicts and reports are functions of it.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from wire.digest import DigestField
from wire.model import Wire
from wire.trial import Attempt, EndReason, FailureClass, Result, Submission, Time, TrialSpec

Line = Annotated[str, StringConstraints(max_length=512)]
Body = Annotated[str, StringConstraints(max_length=65536)]
CaseId = Annotated[str, StringConstraints(pattern=r"^[A-E]-\d{2}$")]


class Canaries(Wire):
    """What an untrusted pod could reach before it was allowed to run anything."""

    kind: Literal["canaries"] = "canaries"
    pod: Line
    refused: dict[str, bool]
    """Target → whether a connection was refused or timed out."""
    gateway_answers: bool
    pids_bounded: bool

    def key(self) -> str:
        return f"canaries/{self.pod}"


class TurnOpened(Wire):
    """The user said something."""

    kind: Literal["turnOpened"] = "turnOpened"
    turn: int
    conversation: int
    attempt: int
    message: Body
    at: Time

    def key(self) -> str:
        return f"turn/{self.turn}/{self.attempt}/opened"


class TurnEvent(Wire):
    """Something the agent did, as it happens; for live views and evidence, never for counting."""

    kind: Literal["turnEvent"] = "turnEvent"
    turn: int
    attempt: int
    sequence: int
    at: Time
    event: Line
    """`command`, `output`, `exit`, `note`."""
    text: Body = ""

    def key(self) -> str:
        return f"turn/{self.turn}/{self.attempt}/event/{self.sequence}"


class TurnSealed(Wire):
    """The turn is over and its checkpoint is stored: it will never be executed again."""

    kind: Literal["turnSealed"] = "turnSealed"
    turn: int
    conversation: int
    attempt: int
    sandbox: int
    """The attempt whose sandbox ran it; the command's id is (sandbox, turn)."""
    reply: Body
    started_at: Time
    ended_at: Time
    checkpoint: DigestField
    resource_deaths: int = 0
    """Commands of this turn that died of memory."""
    rolled_back: bool = False
    """What it left was over the limits of archives: the checkpoint is the state before it, and development ends."""

    def key(self) -> str:
        return f"turn/{self.turn}/sealed"


class ConversationEnded(Wire):
    """A delivery or a limit, with the candidate taken at that moment."""

    kind: Literal["conversationEnded"] = "conversationEnded"
    conversation: int
    attempt: int
    candidate: DigestField
    end_reason: EndReason | None = None
    at: Time

    def key(self) -> str:
        return f"conversation/{self.conversation}/ended"


class GateStep(Wire):
    """One command of the gate, or one check of the public checker."""

    name: Line
    passed: bool
    exit_code: int | None = None
    seconds: float
    output: Body = ""
    """The end of what it printed."""


class GateReported(Wire):
    """What the gate found."""

    kind: Literal["gateReported"] = "gateReported"
    conversation: int
    attempt: int
    candidate: DigestField
    passed: bool
    steps: Annotated[list[GateStep], Field(max_length=256)]
    prepared: DigestField | None = None
    image: Line = ""
    at: Time

    def key(self) -> str:
        return f"gate/{self.conversation}"


class CaseOutcome(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"
    DIAGNOSTIC = "diagnostic"
    EXCLUDED = "excluded"
    UNRESOLVED = "unresolved"


class CasePlan(Wire):
    """A case of the suite as collected."""

    id: CaseId
    dimension: Literal["A", "B", "C", "D", "E"]
    title: Line
    clauses: Annotated[list[Line], Field(max_length=32)] = []
    tags: Annotated[list[Line], Field(max_length=16)] = []
    selected: bool = True
    """False: left out by the run's `evaluation.tags`."""


class SuitePlanned(Wire):
    """Which cases the suite holds and which of them this run selected."""

    kind: Literal["suitePlanned"] = "suitePlanned"
    submission: DigestField
    cases: Annotated[list[CasePlan], Field(max_length=256)]

    def key(self) -> str:
        return "suite"


class Evidence(Wire):
    """Something that shows why: a request, rows, a log, a picture."""

    name: Line
    media_type: Line = "text/plain"
    text: Body = ""
    archive: DigestField | None = None
    """For what is not text: stored with the archives."""


class CaseReported(Wire):
    """One run of one case."""

    kind: Literal["caseReported"] = "caseReported"
    case: CaseId
    attempt: int
    shard: int
    outcome: CaseOutcome
    seconds: float
    message: Body = ""
    evidence: Annotated[list[Evidence], Field(max_length=32)] = []
    at: Time

    def key(self) -> str:
        return f"case/{self.case}/{self.attempt}"


class SubmissionChecked(Wire):
    """A shard compared the digests of the frozen submission and the prepared tree before and after its cases."""

    kind: Literal["submissionChecked"] = "submissionChecked"
    attempt: int
    shard: int
    submission_before: DigestField
    submission_after: DigestField
    prepared: DigestField

    def key(self) -> str:
        return f"submission/{self.attempt}/{self.shard}"

    def is_altered(self, submission: Submission) -> bool:
        """Tell whether the shard found anything but what was frozen: then its reports do not count."""
        if {self.submission_before, self.submission_after} != {submission.digest}:
            return True
        return submission.prepared is not None and self.prepared != submission.prepared


AnyEntry = (
    Canaries
    | TurnOpened
    | TurnEvent
    | TurnSealed
    | ConversationEnded
    | GateReported
    | SuitePlanned
    | CaseReported
    | SubmissionChecked
)
Entry = Annotated[AnyEntry, Field(discriminator="kind")]
ENTRY: Final[TypeAdapter[AnyEntry]] = TypeAdapter(Entry)
ENTRIES: Final[TypeAdapter[list[AnyEntry]]] = TypeAdapter(Annotated[list[Entry], Field(max_length=1000)])


class RunRecord(Wire):
    """What the operator tells the hub about a run."""

    uid: Line
    name: Line
    namespace: Line
    spec: dict[str, object]


class TrialRecord(Wire):
    """What the operator tells the hub before it creates pods: which attempt is alive."""

    uid: Line
    name: Line
    run_uid: Line
    spec: TrialSpec
    attempt: int
    sandbox: int


class Settlement(Wire):
    """How a trial ended; for a graded one the hub counts the verdict and answers with it."""

    phase: Literal["Graded", "Errored", "Cancelled"]
    submission: Submission | None = None
    failure_class: FailureClass | None = None
    reason: Line = ""
    message: Line = ""
    attempts: Annotated[list[Attempt], Field(max_length=5)] = []
    failures: int = 0
    not_formal: Annotated[list[Line], Field(max_length=8)] = []


class Settled(Wire):
    """The hub's answer: the stored settlement's result, the same however often it is asked."""

    phase: Literal["Graded", "Errored", "Cancelled"] | None = None
    """How the trial has ended by the first settlement, which may be another than the one just sent."""
    result: Result | None = None
