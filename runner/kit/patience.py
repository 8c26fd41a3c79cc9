"""Bounded waiting: every wait of the kit and of a suite goes through here, with a limit and a sentence."""

import time
from collections.abc import Callable
from typing import TypeVar

from runner.kit.faults import SubmissionFailed

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], sentence: str, *, seconds: float, every: float = 0.05) -> Seen:
    """Return the first truthy thing that `look` sees.

    Raises:
        SubmissionFailed: it saw nothing in time; the sentence says what should have happened.
    """
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() >= end:
            raise SubmissionFailed(f"{sentence} (waited {seconds:g} s)")
        time.sleep(every)
