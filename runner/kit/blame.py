"""The one rule of attribution: whose failure an error in a case is.

`failed` needs positive evidence against the submission. Whatever this table does not know is `unresolved`: it is run
again on fresh pods and at worst shown as a bound. Tested row by row.
"""

from enum import StrEnum

from runner.kit.faults import SubmissionFailed
from wire.journal import CaseOutcome


class Phase(StrEnum):
    """A part of a case's run, in pytest's words."""

    SETUP = "setup"
    CALL = "call"
    TEARDOWN = "teardown"


def outcome_of(error: BaseException | None, phase: Phase, in_suite: bool) -> CaseOutcome:
    """Return how a phase of a case ended; `in_suite` tells whether a file of the suite itself raised the error."""
    if error is None:
        return CaseOutcome.PASSED
    if isinstance(error, SubmissionFailed):
        # Also in set-up: an API that does not start has failed whatever case needed it.
        return CaseOutcome.FAILED
    if type(error) is AssertionError and in_suite and phase is Phase.CALL:
        # Only the suite's own `assert` speaks about the submission; one inside a library or the kit does not.
        return CaseOutcome.FAILED
    return CaseOutcome.UNRESOLVED


def verdict(phases: dict[Phase, CaseOutcome]) -> CaseOutcome:
    """Return a case's outcome from those of its phases.

    Teardown is the kit's own work: it changes nothing about what the case has shown.
    """
    if phases.get(Phase.SETUP, CaseOutcome.UNRESOLVED) is not CaseOutcome.PASSED:
        return phases.get(Phase.SETUP, CaseOutcome.UNRESOLVED)
    return phases.get(Phase.CALL, CaseOutcome.UNRESOLVED)
