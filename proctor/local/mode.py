"""How much this user may isolate."""

from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    """Who runs the pods."""

    ROOT = "root"
    """Real root: no user namespace."""
    RANGE = "range"
    """An ordinary user with `newuidmap` and a range in /etc/subuid: many user ids inside."""
    SINGLE = "single"
    """An ordinary user without: one user id inside, so a daemon is no other user than its commands."""


SINGLE_WARNING: Final = (
    "this user has no range of ids (/etc/subuid and newuidmap): an agent runs as the same user as the daemon that "
    "watches it and could end it. Results are not formal."
)
