"""The exit codes of `proctor`, as `--help` and docs/cli.md state them."""

from enum import IntEnum
from typing import Final

from wire.errors import InvalidInput, NotReady, ProctorError, Refused


class Code(IntEnum):
    """What the caller learns without reading a line."""

    OK = 0
    INCOMPLETE = 1
    """The run is over and a trial is errored or cancelled; or `doctor` found something."""
    INPUT = 2
    """The command line, the file or the named object is wrong; nothing was started."""
    UNREACHABLE = 3
    """Hub, cluster or a service is not there or not ready; try again."""
    REFUSED = 4
    """The token or the cluster's rights do not allow it."""
    BROKEN = 70
    """A promise of ours does not hold; please report it."""
    INTERRUPTED = 130
    """Ctrl-C; what was started is cancelled."""


HELP: Final = (
    "Exit codes: 0 done, for a run: every trial graded; 1 a trial errored or cancelled, or doctor found something; "
    "2 bad input, nothing was started; 3 hub, cluster or service not reachable; 4 not allowed; 70 a fault of ours; "
    "130 interrupted."
)


def code_of(error: ProctorError) -> Code:
    """Return the exit code for an error."""
    match error:
        case Refused():
            return Code.REFUSED
        case InvalidInput():
            return Code.INPUT
        case NotReady():
            return Code.UNREACHABLE
        case _:
            return Code.BROKEN
