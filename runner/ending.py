"""How a trusted pod ends: one outcome in the termination message, one exit code, decided in one table.

The operator decides from these alone, so they are written last: after the journal has been accepted by the hub.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from runner.errors import CanaryAnswered, PackageMalformed, SandboxLost, SuiteCannotStart
from wire.errors import DigestMismatch, ProctorError
from wire.outcome import (
    EXIT_RETRY,
    EXIT_TASK,
    MESSAGE_LIMIT_BYTES,
    Checked,
    Delivered,
    DriverFailure,
    Evaluated,
    Failed,
)

AnyOutcome = Delivered | Checked | Evaluated | Failed
log = structlog.get_logger()


# First match wins.
_ENDS: Final[list[tuple[type[ProctorError], DriverFailure, int]]] = [
    (SandboxLost, DriverFailure.SANDBOX_LOST, EXIT_RETRY),
    (CanaryAnswered, DriverFailure.CANARY_ANSWERED, EXIT_RETRY),
    (DigestMismatch, DriverFailure.DIGEST_MISMATCH, EXIT_RETRY),
    (PackageMalformed, DriverFailure.PACKAGE_MALFORMED, EXIT_TASK),
    (SuiteCannotStart, DriverFailure.SUITE_CANNOT_START, EXIT_TASK),
]


def failure_of(error: BaseException) -> tuple[Failed, int]:
    """Return what to say and how to exit for an error; what the table does not know is retried, never graded."""
    for kind, reason, code in _ENDS:
        if isinstance(error, kind):
            return Failed(reason=reason, message=str(error)[:512]), code
    return Failed(reason=DriverFailure.UNEXPECTED, message=f"{type(error).__name__}: {error}"[:512]), EXIT_RETRY


def conclude(termination_log: Path, work: Callable[[], AnyOutcome]) -> int:
    """Do a pod's work, write its termination message and return its exit code."""
    try:
        outcome, code = work(), 0
    except Exception as error:  # the top of a program: record and exit
        failed, code = failure_of(error)
        outcome = failed
        log.exception("ended without an outcome", reason=failed.reason, code=code)
    write_outcome(termination_log, outcome)
    return code


def write_outcome(termination_log: Path, outcome: AnyOutcome) -> None:
    """Write the termination message; text beyond what the kubelet keeps would make it unreadable."""
    text = outcome.model_dump_json(by_alias=True, exclude_none=True)
    if len(text.encode()) > MESSAGE_LIMIT_BYTES and isinstance(outcome, Failed):
        text = Failed(reason=outcome.reason).model_dump_json(by_alias=True)
    termination_log.write_text(text)
