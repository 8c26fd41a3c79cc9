"""`@case`: how a suite declares what a test proves; and which cases a shard runs, in which order.

Everything a report or a plan says about a case comes from here. Malformed declarations stop the suite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import pytest
from pydantic import ValidationError

from wire.errors import InvalidInput
from wire.journal import CasePlan

Dimension = Literal["A", "B", "C", "D", "E"]
Test = TypeVar("Test", bound=Callable[..., object])
MARK: Final = "proctor_case"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A declared case: its plan, and how it wants to be run."""

    plan: CasePlan
    timed: bool = False
    deadline_seconds: float = 120.0


def case(  # noqa: PLR0913  a declaration: each keyword is a column of the report
    id: str,
    *,
    dimension: Dimension,
    title: str,
    clauses: Sequence[str],
    tags: Sequence[str] = (),
    timed: bool = False,
    deadline_seconds: float = 120.0,
) -> Callable[[Test], Test]:
    """Declare a test as a case of the suite; `clauses` names what of the contract it rests on."""
    try:
        plan = CasePlan(id=id, dimension=dimension, title=title, clauses=list(clauses), tags=list(tags))
    except ValidationError as error:
        raise InvalidInput(f"case {id!r}: {error}") from error
    if not clauses:
        raise InvalidInput(f"case {id!r}: `clauses` is empty; name the clauses of the contract that it rests on")
    if not id.startswith(dimension):
        raise InvalidInput(f"case {id!r}: its id does not begin with its dimension {dimension!r}")
    declared = Case(plan=plan, timed=timed, deadline_seconds=deadline_seconds)

    def mark(test: Test) -> Test:
        marked: Test = pytest.mark.proctor_case(declared)(test)
        return marked

    return mark


def is_selected(plan: CasePlan, tags: Sequence[str]) -> bool:
    """Tell whether a run that asks for these tags runs the case; no tags = every case."""
    return not tags or not set(tags).isdisjoint(plan.tags)


def shard_order(cases: Sequence[Case], shard: int, shards: int) -> list[str]:
    """Return the ids that one shard runs, in order: those that may take long are dealt out first, timed ones run last.

    A function of the suite alone, so that a retried shard and a further round get the same cases.
    """
    mine: list[str] = []
    load = [0.0] * shards
    for timed in (False, True):
        share: list[str] = []
        for case in sorted(
            (case for case in cases if case.timed is timed), key=lambda case: (-case.deadline_seconds, case.plan.id)
        ):
            lightest = load.index(min(load))
            load[lightest] += case.deadline_seconds
            share += [case.plan.id] if lightest == shard else []
        mine += sorted(share)
    return mine
