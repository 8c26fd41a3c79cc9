"""Which waiting trials may hold pods next: one pump for all runs. Pure.

Fair between runs (the one that holds least goes first), bounded by each run's parallelism and the whole, and slow at
the start of each run's task (1, 2, 4 …), so that a broken image costs one pod and not two hundred.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from wire.digest import of_json

WIDEST: Final = 64
Group: TypeAlias = tuple[str, str]
"""(run UID, task): what a slow start is about."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A trial that could be admitted."""

    name: str
    task: str
    repetition: int
    index: int


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a run holds and wants."""

    run: str
    seed: int
    parallelism: int
    holding: int
    starting: Mapping[str, int] = field(default_factory=dict)
    """Task → trials admitted whose pods have not all come up."""
    waiting: tuple[Waiting, ...] = ()


@lru_cache(maxsize=65536)
def block(seed: int, task: str, repetition: int) -> str:
    """Return the place of a task's repetition in the seeded permutation; its arms share it."""
    return of_json([seed, task, repetition])


def order(load: Load) -> list[Waiting]:
    """Return a run's waiting trials in the order they start: all arms of a task and repetition together."""
    return sorted(load.waiting, key=lambda w: (block(load.seed, w.task, w.repetition), w.index))


def choose(loads: Iterable[Load], widths: Mapping[Group, int], room: int) -> list[tuple[str, Waiting]]:
    """Return (run UID, trial) to admit now; `room` is what the whole installation may still hold."""
    chosen: list[tuple[str, Waiting]] = []
    states = [_State(load, widths) for load in loads]
    while len(chosen) < room:
        able = [state for state in states if state.peek()]
        if not able:
            break
        least = min(able, key=lambda state: (state.holding, state.load.run))
        chosen.append((least.load.run, least.take()))
    return chosen


def wider(width: int) -> int:
    """Return the width after a trial has come up."""
    return min(WIDEST, width * 2)


class _State:
    """One run while trials are being chosen."""

    def __init__(self, load: Load, widths: Mapping[Group, int]) -> None:
        self.load = load
        self.holding = load.holding
        self._starting = dict(load.starting)
        self._widths = widths
        self._queue = order(load)

    def peek(self) -> Waiting | None:
        """Return the next trial that the run's limits allow."""
        if self.holding >= self.load.parallelism:
            return None
        return next((w for w in self._queue if self._starting.get(w.task, 0) < self._width(w.task)), None)

    def take(self) -> Waiting:
        """Count the next trial as admitted."""
        taken = self.peek()
        assert taken is not None, "peek() said that there is one"
        self._queue.remove(taken)
        self.holding += 1
        self._starting[taken.task] = self._starting.get(taken.task, 0) + 1
        return taken

    def _width(self, task: str) -> int:
        return self._widths.get((self.load.run, task), 1)
