"""The two ways in which a case ends without passing: the submission's fault, or the kit's."""

from typing import ClassVar

from wire.errors import Broken, ProctorError


class SubmissionFailed(ProctorError):
    """The submission did not do what the contract says; seen from outside, by HTTP, event, page or exit."""

    reason: ClassVar[str] = "SubmissionFailed"


class KitFailed(Broken):
    """The kit could not do its part; nothing is known about the submission."""

    reason: ClassVar[str] = "KitFailed"


def require(holds: object, sentence: str) -> None:
    """Fail the submission with a sentence unless something it answered holds.

    Raises:
        SubmissionFailed: it does not hold.
    """
    if not holds:
        raise SubmissionFailed(sentence)
