"""What pytest's process tells the `evaluate` role, one JSON line each: the plan, then each case as it ends.

The child knows neither hub nor attempt; its parent turns these lines into journal entries.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from wire.journal import CaseId, CaseOutcome, CasePlan, Evidence
from wire.model import Wire
from wire.package import Operations

MESSAGE_CHARS: Final = 16_384


class KitConfig(Wire):
    """Everything the plugin is told, as a JSON file readable by its user alone."""

    daemon_url: str
    daemon_bearer: str
    sut_host: str
    """Where the submission's ports are reached from here."""
    own_host: str
    """Where the submission reaches this pod: its databases and receivers."""
    operations: Operations
    workspace: str = "/workspace"
    shard: Annotated[int, Field(ge=0)] = 0
    shards: Annotated[int, Field(ge=1)] = 1
    tags: list[str] = []
    settled: list[CaseId] = []
    """Already have an outcome: not run again."""
    only: list[CaseId] = []
    """For authors: run just these; [] = all."""
    reports: str
    """Where the lines go: a path, or a pipe's."""
    scratch: str
    """A folder of our own for server data and pictures."""
    public: str
    """The package's public part, unpacked: the contract's own documents."""
    chromium: str = "/usr/bin/chromium"
    """The browser, here and in the sut."""
    limit_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """Then pytest's process is ended; what has not been reported by then is unresolved."""
    plan_only: bool = False
    """Collect and write the plan; run nothing."""


class Planned(Wire):
    """The suite as collected, and which of its cases this shard is about to run."""

    kind: Literal["planned"] = "planned"
    cases: list[CasePlan]
    mine: list[CaseId]
    """This shard's share, settled cases included."""


class Picture(Wire):
    """A file that becomes an archive of the evidence."""

    name: str
    media_type: str
    path: str


class Ran(Wire):
    """One case has ended."""

    kind: Literal["ran"] = "ran"
    case: CaseId
    outcome: CaseOutcome
    seconds: float
    message: str = ""
    evidence: list[Evidence] = []
    pictures: list[Picture] = []


Report = Planned | Ran
REPORT: Final[TypeAdapter[Report]] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])
