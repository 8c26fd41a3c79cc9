"""Trial: one cell of a run. Its phase table, its status, and the failure classes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from wire.digest import DigestField
from wire.model import Wire
from wire.run import Arm, Condition, Evaluation, Limits, Name, UserSpec

Time = Annotated[str, StringConstraints(max_length=32)]
Reason = Annotated[str, StringConstraints(max_length=64)]


class Phase(StrEnum):
    """Where a trial stands; derived on every pass, stored for printer columns and selectors only."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    DEVELOPING = "Developing"
    CHECKING = "Checking"
    FROZEN = "Frozen"
    EVALUATING = "Evaluating"
    GRADED = "Graded"
    ERRORED = "Errored"
    CANCELLED = "Cancelled"


FINISHED: Final = frozenset({Phase.GRADED, Phase.ERRORED, Phase.CANCELLED})

_ENDS: Final = frozenset({Phase.ERRORED, Phase.CANCELLED})
NEXT_PHASES: Final[Mapping[Phase, frozenset[Phase]]] = {
    # Back to Pending: a suspended trial holds no pods and waits to be admitted again.
    Phase.PENDING: _ENDS | {Phase.ADMITTED},
    Phase.ADMITTED: _ENDS | {Phase.DEVELOPING, Phase.CHECKING, Phase.EVALUATING, Phase.PENDING},
    Phase.DEVELOPING: _ENDS | {Phase.CHECKING, Phase.PENDING, Phase.ADMITTED},
    Phase.CHECKING: _ENDS | {Phase.DEVELOPING, Phase.FROZEN, Phase.PENDING, Phase.ADMITTED},
    Phase.FROZEN: _ENDS | {Phase.EVALUATING, Phase.PENDING, Phase.ADMITTED},
    Phase.EVALUATING: _ENDS | {Phase.GRADED, Phase.PENDING, Phase.ADMITTED},
    Phase.GRADED: frozenset(),
    # `proctor retry` sends an errored trial back.
    Phase.ERRORED: frozenset({Phase.PENDING}),
    Phase.CANCELLED: frozenset(),
}


class FailureClass(StrEnum):
    """Whose failure it was. Only `agent` and `limit` are the agent's."""

    AGENT = "agent"
    LIMIT = "limit"
    INFRASTRUCTURE = "infrastructure"
    PROVIDER = "provider"
    HARNESS = "harness"
    TASK = "task"
    CANCELLED = "cancelled"


class EndReason(StrEnum):
    """Why development ended."""

    GATE_PASSED = "gatePassed"
    TURN_LIMIT = "turnLimit"
    TIME_LIMIT = "timeLimit"
    GATE_LIMIT = "gateLimit"
    RESOURCE_LIMIT = "resourceLimit"
    """Three commands or three sandboxes in a row died of memory or disk, or the workspace outgrew archives."""


class RunRef(Wire):
    """The run a trial belongs to."""

    name: Name
    """Its name, in the trial's namespace."""
    uid: Annotated[str, StringConstraints(max_length=64)]
    """Its UID: a later run of the same name is another run."""


class TrialSpec(Wire):
    """One cell of a run, with everything pinned. Immutable but for suspend, cancel and retries."""

    run_ref: RunRef
    index: Annotated[int, Field(ge=0)]
    """Position in the run's expansion; stable when repetitions grow."""
    task: Name
    """Name of the task in the run's suite."""
    package: DigestField
    """Digest of the task's package when the run was accepted."""
    image: Annotated[str, StringConstraints(max_length=512)] | None = None
    """Sandbox image of the task; none = the installation's own."""
    memory_mb: Annotated[int, Field(ge=256)] = 2048
    """Memory limit of sandbox and sut, in MiB, as the package says."""
    arm: Arm
    repetition: Annotated[int, Field(ge=1)]
    """Which of the run's repetitions this is, from 1."""
    user: UserSpec
    limits: Limits
    evaluation: Evaluation
    formal: bool
    """As the run says."""
    suspend: bool = False
    """While true this trial has no pods."""
    cancel: bool = False
    """End this trial as cancelled. One way."""
    retries: Annotated[int, Field(ge=0)] = 0
    """Raised by `proctor retry`: an errored trial starts again while status.retried is lower."""


class Attempt(Wire):
    """One failed try: what ended it and whose failure it was."""

    number: int
    stage: Phase
    failure_class: FailureClass
    reason: Reason
    """CamelCase, from the failure table."""
    message: Annotated[str, StringConstraints(max_length=512)] = ""
    at: Time


class Submission(Wire):
    """The candidate that is graded."""

    digest: DigestField
    """Tree digest of the candidate."""
    prepared: DigestField | None = None
    """Tree digest of the installed and built tree; none when the build failed, then nothing can start."""
    gate_passed: bool
    end_reason: EndReason


class Result(Wire):
    """The verdict as counted by the hub; written once."""

    applicable: int
    passed: int
    failed: int
    blocked: int
    unresolved: int
    scheduled: int
    """All cases of the suite, excluded and diagnostic included; what was selected may be fewer."""
    digest: DigestField
    """Of the verdict document in the hub."""


class TrialStatus(Wire):
    """Recorded intents and outcomes; the stage is derived from these and from the children."""

    observed_generation: int = 0
    phase: Phase = Phase.PENDING
    conditions: Annotated[list[Condition], Field(max_length=16)] = []
    admitted: bool = False
    """The admission pump let it hold pods."""
    attempt: int = 0
    """Written before any pod of that attempt is created. Grows with every failure that is not the agent's."""
    sandbox: int = 0
    """The attempt whose sandbox pod is in use; a lost session alone does not change it."""
    conversation: int = 0
    """k of Developing(k) and Checking(k)."""
    candidate: DigestField | None = None
    """What Checking(k) checks."""
    end_reason: EndReason | None = None
    """Set when a limit ended the conversation: this candidate is graded whatever the gate says."""
    submission: Submission | None = None
    """Set at freeze, never changed."""
    rounds: int = 0
    """Evaluation rounds begun."""
    pods: Annotated[dict[str, Annotated[str, StringConstraints(max_length=64)]], Field(max_length=64)] = {}
    """Name → UID of this attempt's pods (and Job) once seen, so that a lost one is never taken for one not made yet."""
    attempts: Annotated[list[Attempt], Field(max_length=5)] = []
    """The last five failed attempts."""
    failures: int = 0
    """Failed attempts in all."""
    sut_deaths: Annotated[dict[str, Annotated[list[Reason], Field(max_length=3)]], Field(max_length=128)] = {}
    """Stage, as in `Checking(2)` → why suts of it died of memory or disk, up to as many as end the stage."""
    retried: int = 0
    not_formal: Annotated[list[Annotated[str, StringConstraints(max_length=64)]], Field(max_length=8)] = []
    """Why this trial cannot count as formal, such as `shell` or `caseSelection`."""
    result: Result | None = None
    start_time: Time | None = None
    completion_time: Time | None = None
