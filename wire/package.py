"""Task packages: what `task.toml` says and how a package is split by audience.

    public      README.md, scaffold/, checker/, plan.md      sandbox, session, gate, evaluator
    user        scenario.toml                                the simulated user alone
    evaluator   the hidden pytest suite                      evaluator pods alone
    oracle      solution/ and mutants/                       the agent container of oracle and mutant arms alone

Each part is an archive with a digest of its own; the package digest is `digest.of_manifest` over the part digests
and the digests of the `TaskInfo` and the mutants' names, so a part can be fetched alone and still be pinned by the
package.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from wire.digest import Digest, DigestField, of_json, of_manifest
from wire.model import Wire
from wire.run import Name

PARTS: Final = ("public", "user", "evaluator", "oracle")
PartName = Literal["public", "user", "evaluator", "oracle"]
Mutants = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]],
    Field(max_length=256),
]
Command = Annotated[list[Annotated[str, StringConstraints(max_length=512)]], Field(min_length=1, max_length=32)]


class Operations(Wire):
    """How a submission is operated; every command runs in the workspace as the agent's user."""

    install: Command
    build: Command
    migrate: Command
    api: Command
    """Serves HTTP on `$HOST:$PORT`."""
    worker: Command
    test: Command
    """The submission's own tests: read by the fake-green case."""


class SuiteInfo(Wire):
    """The hidden suite's published size."""

    applicable: Annotated[int, Field(ge=1)]
    scheduled: Annotated[int, Field(ge=1)]


class TaskInfo(Wire):
    """`task.toml`."""

    id: Name
    title: Annotated[str, StringConstraints(max_length=128)]
    version: Annotated[str, StringConstraints(max_length=32)]
    tags: Annotated[list[Annotated[str, StringConstraints(max_length=64)]], Field(max_length=32)]
    """Capability tags."""
    memory_mb: Annotated[int, Field(ge=256)] = 2048
    """Memory limit of sandbox and sut, in MiB."""
    excluded: Annotated[list[Annotated[str, StringConstraints(max_length=256)]], Field(max_length=64)] = []
    """Root-anchored paths that a candidate leaves out, such as `node_modules`."""
    operations: Operations
    suite: SuiteInfo


class PackageManifest(Wire):
    """A package as the hub stores it."""

    task: TaskInfo
    parts: dict[PartName, DigestField]
    """Digest of each part's archive."""
    mutants: Mutants = []
    """What an arm of kind `mutant` may name: the patches of the oracle part, sorted."""

    def digest(self) -> Digest:
        """Return the package digest."""
        named = {"task": of_json(self.task.dump()), "mutants": of_json(self.mutants)}
        return of_manifest(named | {str(name): part for name, part in self.parts.items()})


class Milestone(Wire):
    """One step of a scenario."""

    id: Name
    message: Annotated[str, StringConstraints(max_length=8192)]
    """What the scripted user says; a model user rephrases it."""


class Scenario(Wire):
    """`user/scenario.toml`: what the simulated user knows and nobody else."""

    opening: Annotated[str, StringConstraints(max_length=8192)]
    milestones: Annotated[list[Milestone], Field(min_length=1, max_length=64)]
    gate_failed: Annotated[str, StringConstraints(max_length=8192)]
    """Opens the next conversation after a failed gate; `{report}` is replaced by the gate's report."""
