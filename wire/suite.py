"""TaskSuite: names tasks by package digest. No hidden content ever sits in it."""

from typing import Annotated

from pydantic import Field, StringConstraints

from wire.digest import DigestField
from wire.model import Wire
from wire.run import Condition, Name


class SuiteTask(Wire):
    """One task of a suite."""

    name: Name
    """Unique within the suite; what a run's `tasks` names."""
    package: DigestField
    """Digest of the package in the hub (`proctor push` prints it)."""
    image: Annotated[str, StringConstraints(max_length=512)] | None = None
    """Sandbox image of this task; none = the installation's own."""
    certificate: DigestField | None = None
    """Digest of the certificate in the hub; formal runs need it."""


class TaskSuiteSpec(Wire):
    """A named list of task packages."""

    tasks: Annotated[list[SuiteTask], Field(min_length=1, max_length=64)]
    """The tasks, each pinned by digest."""


class TaskSuiteStatus(Wire):
    """What the operator verified."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8)] = []
    """Verified: every package is in the hub and whole."""
