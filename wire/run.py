"""BenchmarkRun: arms × tasks × repetitions, as the researcher writes it. `crds/` is generated from here."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from wire.digest import DigestField
from wire.model import Wire

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


class AgentKind(StrEnum):
    """Who develops."""

    ORACLE = "oracle"
    NOP = "nop"
    MUTANT = "mutant"


class AgentSpec(Wire):
    """The coding agent of an arm."""

    kind: AgentKind
    """`oracle` applies the reference solution, `mutant` the solution with one declared mistake, `nop` nothing."""
    mutant: Annotated[str, StringConstraints(max_length=63)] | None = None
    """The mutant to apply, by its file name without `.patch`; for kind `mutant` alone."""
    model: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The model's name as the gateway routes it; none for agents without a model."""
    reasoning_effort: Annotated[str, StringConstraints(max_length=16)] | None = None
    """Passed to the model unchanged."""


class Arm(Wire):
    """One experimental condition."""

    name: Name
    """Unique within the run; a column of every table."""
    agent: AgentSpec


class UserSpec(Wire):
    """The simulated user."""

    kind: Literal["scripted"] = "scripted"
    """`scripted` walks through the scenario's milestones in order."""


class Limits(Wire):
    """Where development ends, whatever the agent does. What is reached first freezes the last state."""

    turns: Annotated[int, Field(ge=1, le=1000)] = 60
    """User messages in all conversations of a trial."""
    development_minutes: Annotated[int, Field(ge=1, le=10080)] = 1440
    """Net development time, in minutes."""
    gate_attempts: Annotated[int, Field(ge=1, le=100)] = 8
    """Deliveries that may be checked; the last failed one is graded as it is."""


class Evaluation(Wire):
    """How a submission is graded."""

    shards: Annotated[int, Field(ge=1, le=16)] = 2
    """Pods that share the cases of one submission."""
    timeout_minutes: Annotated[int, Field(ge=1, le=1440)] = 60
    """For one round of all shards."""
    tags: Annotated[list[Annotated[str, StringConstraints(max_length=32)]], Field(max_length=16)] = []
    """Run only cases with one of these tags; [] = all. A selection makes the result not formal."""


class BenchmarkRunSpec(Wire):
    """What to measure: every arm on every task, `repetitions` times."""

    suite: Name
    """The TaskSuite, in the run's namespace; its digest is pinned into status when the run is accepted."""
    tasks: Annotated[list[Name], Field(max_length=64)] = []
    """Task names of the suite; [] = all of them."""
    arms: Annotated[list[Arm], Field(min_length=1, max_length=64)]
    """The experimental conditions."""
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1
    """Trials of every arm on every task. May only grow: new cells are added, old verdicts stay."""
    seed: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Orders the trials."""
    user: UserSpec = UserSpec()
    limits: Limits = Limits()
    evaluation: Evaluation = Evaluation()
    formal: bool = False
    """Refuse uncertified tasks, case selections and isolation that is not enforced."""
    parallelism: Annotated[int, Field(ge=0, le=5000)] = 50
    """Trials of this run that may hold pods at once."""
    suspend: bool = False
    """While true no pods of this run exist; development goes on from its last checkpoint afterwards."""
    suspended_arms: Annotated[list[Name], Field(max_length=64)] = []
    """The same for single arms."""
    cancel: bool = False
    """End every unfinished trial as cancelled. One way."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """Delete the run's objects this long after it has finished; results stay in the hub."""


class Condition(Wire):
    """A metav1.Condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, StringConstraints(max_length=1024)]
    message: Annotated[str, StringConstraints(max_length=32768)] = ""
    observed_generation: int = 0
    last_transition_time: Annotated[str, StringConstraints(max_length=32)]


class TrialCounts(Wire):
    """Trials of a run by where they stand; the other five add up to `total`."""

    total: int = 0
    pending: int = 0
    active: int = 0
    graded: int = 0
    errored: int = 0
    cancelled: int = 0


class RunPhase(StrEnum):
    """Derived from conditions, for people and field selectors; never branched on."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


class BenchmarkRunStatus(Wire):
    """What became of it."""

    observed_generation: int = 0
    phase: RunPhase = RunPhase.PENDING
    conditions: Annotated[list[Condition], Field(max_length=16)] = []
    """Accepted, Progressing, Complete, Failed."""
    suite_digest: DigestField | None = None
    """Digest of the suite's spec at acceptance; a later edit of the suite does not touch this run."""
    packages: Annotated[dict[str, DigestField], Field(max_length=64)] = {}
    """Task name → package digest at acceptance."""
    trials: TrialCounts = TrialCounts()
    completed_indexes: Annotated[str, StringConstraints(max_length=16384)] = ""
    """Finished trials as intervals, `0-41,43`."""
    start_time: Annotated[str, StringConstraints(max_length=32)] | None = None
    completion_time: Annotated[str, StringConstraints(max_length=32)] | None = None
