"""What the hub answers to people and to the operator: verdicts, lists and the report of a run.

All of it is a function of the run's and trials' records, the journal and the settlements: the same stored facts give
the same bytes. Nothing here is rendered; `proctor` does that.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from wire.digest import DigestField
from wire.journal import CaseId, CaseOutcome, Entry, Line, Settlement, TrialRecord
from wire.model import Wire
from wire.trial import Attempt, EndReason, FailureClass, Result, Submission

JOURNAL_PAGE_ROWS: Final = 1000
"""Rows of a journal in one answer; fewer mean that there are no more."""
Standing = Literal["Unfinished", "Graded", "Errored", "Cancelled"]


class JournalRow(Wire):
    """A stored entry; `sequence` grows, and `after=<sequence>` asks for what came later."""

    sequence: int
    entry: Entry


class CaseResult(Wire):
    """What one case of the suite came to in one trial."""

    id: CaseId
    dimension: Line
    title: Line
    selected: bool
    outcome: CaseOutcome | None = None
    """None for a case that the run did not select."""
    runs: int = 0
    """How often it was run; more than once only after an unresolved end."""
    seconds: float | None = None
    message: Line = ""
    """The beginning of the last run's message."""


class Verdict(Wire):
    """The verdict document: written once, pinned by the digest in the trial's result."""

    trial: Line
    task: Line
    package: DigestField
    arm: Line
    repetition: int
    submission: Submission
    cases: Annotated[list[CaseResult], Field(max_length=256)]
    planned: int
    """Cases that the suite holds."""
    selected: int
    """Cases that the run selected."""
    scheduled: int
    """Cases of the complete suite, as the task publishes it."""
    coverable: int
    """Cases of the complete suite that apply to a submission, as the task publishes it."""
    applicable: int
    """Selected and neither excluded nor diagnostic: the denominator of CCPF."""
    passed: int
    failed: int
    blocked: int
    unresolved: int
    excluded: int
    diagnostic: int


class Rate(Wire):
    """A share of passed cases, with the bounds that unresolved cases leave open."""

    passed: int
    unresolved: int
    of: int
    low: float
    """Every unresolved case counted as not passed; six decimals."""
    high: float
    """Every unresolved case counted as passed; the same as `low` when there is none."""


class GateLine(Wire):
    """One gate of a trial."""

    conversation: int
    attempt: int
    candidate: DigestField
    passed: bool
    failed_steps: list[Line] = []
    """Names of the steps and checks that failed."""


class Counts(Wire):
    """Trials by how they stand."""

    trials: int = 0
    graded: int = 0
    errored: int = 0
    cancelled: int = 0
    unfinished: int = 0


class TrialSummary(Wire):
    """One trial in a list."""

    uid: Line
    name: Line
    index: int
    task: Line
    arm: Line
    repetition: int
    attempt: int
    standing: Standing
    result: Result | None = None


class TrialFacts(Wire):
    """Everything the hub knows of a trial besides its journal."""

    record: TrialRecord
    standing: Standing
    settlement: Settlement | None = None
    result: Result | None = None
    verdict: Verdict | None = None


class RunSummary(Wire):
    """One run in a list."""

    uid: Line
    name: Line
    namespace: Line
    counts: Counts


class TrialLine(Wire):
    """One trial in a report."""

    uid: Line
    name: Line
    index: int
    task: Line
    arm: Line
    repetition: int
    standing: Standing
    not_formal: list[Line] = []
    """Why this result cannot count as formal; empty for a formal one."""
    end_reason: EndReason | None = None
    gate_passed: bool | None = None
    gates: list[GateLine] = []
    conversations: int = 0
    turns: int = 0
    coding_seconds: float = 0.0
    """Union of the turns' intervals."""
    coding_complete: bool = True
    """False: a turn has no end yet, so `codingSeconds` is a lower bound, printed ≥."""
    submission: DigestField | None = None
    result: Result | None = None
    ccpf: Rate | None = None
    """Passed cases of the applicable ones."""
    confirmed: Rate | None = None
    """Passed cases of all that were selected, excluded and diagnostic ones included."""
    cases: list[CaseResult] = []
    attempts: list[Attempt] = []
    """The last failed attempts, five at most."""
    failures: int = 0
    failure_class: FailureClass | None = None
    reason: Line = ""
    message: Line = ""


class CellLine(Wire):
    """All trials of one arm on one task."""

    task: Line
    arm: Line
    counts: Counts
    ccpf: Rate | None = None
    """Micro-average over the applicable cases of the graded trials; none before the first verdict."""
    confirmed: Rate | None = None
    coverage: Line = ""
    """Such as `16 of 46 cases, not formal`."""


class ArmLine(Wire):
    """One arm over all tasks."""

    arm: Line
    agent: Line
    counts: Counts
    ccpf: Rate | None = None
    confirmed: Rate | None = None


class RunReport(Wire):
    """The report of a run; its canonical JSON is the same for the same facts."""

    uid: Line
    name: Line
    namespace: Line
    suite: Line
    formal: bool
    """The run asked for formal results and nothing stands against it."""
    counts: Counts
    arms: list[ArmLine]
    cells: list[CellLine]
    trials: list[TrialLine]
