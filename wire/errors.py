"""The error tree. A class says what the catcher should do; its `reason` goes into conditions and answers.

ProctorError
├── NotReady       try again later; nothing is wrong yet
├── InvalidInput   the user's: say it, name the field, give the fix
└── Broken         ours: record and stop
"""

from typing import ClassVar


class ProctorError(Exception):
    """Root of everything we raise on purpose."""

    reason: ClassVar[str] = "Error"


class NotReady(ProctorError):
    """The world is not ready; asking again after `retry_seconds` is right."""

    reason: ClassVar[str] = "NotReady"

    def __init__(self, message: str, retry_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class InvalidInput(ProctorError):
    """Input that no retry will mend; the message names the field and the fix."""

    reason: ClassVar[str] = "InvalidInput"


class DigestMismatch(InvalidInput):
    """Content does not hash to the digest it was announced with."""

    reason: ClassVar[str] = "DigestMismatch"


class Refused(InvalidInput):
    """The caller may not do this: bad token, wrong scope, dead attempt."""

    reason: ClassVar[str] = "Refused"


class Broken(ProctorError):
    """A promise of ours does not hold."""

    reason: ClassVar[str] = "Broken"
