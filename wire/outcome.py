"""The termination message of a trusted pod: all that the operator learns from it, in at most 4 KiB.

A driver writes it to `/dev/termination-log` as its last act, after its journal has been accepted by the hub.
Exit codes: 0 = the message holds an outcome; 75 = try again (infrastructure); 64 = the task or its package is at
fault; anything else, or no readable message, is unknown and treated as infrastructure.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from wire.digest import DigestField
from wire.model import Wire
from wire.trial import EndReason

EXIT_RETRY: Final = 75
EXIT_TASK: Final = 64
MESSAGE_LIMIT_BYTES: Final = 4096
TERMINATION_LOG: Final = "/dev/termination-log"

Text = Annotated[str, StringConstraints(max_length=512)]


class Delivered(Wire):
    """A conversation ended: with a delivery, or at a limit when `endReason` is set."""

    outcome: Literal["delivered"] = "delivered"
    conversation: int
    candidate: DigestField
    end_reason: EndReason | None = None


class Checked(Wire):
    """The gate looked at a candidate."""

    outcome: Literal["checked"] = "checked"
    conversation: int
    candidate: DigestField
    passed: bool
    prepared: DigestField | None = None
    """None when install or build failed."""


class Evaluated(Wire):
    """A shard has reported every case it was given."""

    outcome: Literal["evaluated"] = "evaluated"
    shard: int
    submission: DigestField
    unresolved: int
    """Cases that a further round on fresh pods may still resolve."""


class Failed(Wire):
    """The driver ends without an outcome and knows why."""

    outcome: Literal["failed"] = "failed"
    reason: "DriverFailure"
    message: Text = ""


class DriverFailure(StrEnum):
    """Why a driver gave up; the failure table of the operator maps each to a class."""

    SANDBOX_LOST = "SandboxLost"
    HUB_UNREACHABLE = "HubUnreachable"
    CANARY_ANSWERED = "CanaryAnswered"
    DIGEST_MISMATCH = "DigestMismatch"
    PACKAGE_MALFORMED = "PackageMalformed"
    SUITE_CANNOT_START = "SuiteCannotStart"
    UNEXPECTED = "Unexpected"


Outcome = Annotated[Delivered | Checked | Evaluated | Failed, Field(discriminator="outcome")]
OUTCOME: Final[TypeAdapter[Delivered | Checked | Evaluated | Failed]] = TypeAdapter(Outcome)
