"""Declared cases, and how a suite is dealt out to its shards."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.kit.cases import Case, case, is_selected, shard_order
from wire.errors import InvalidInput
from wire.journal import CasePlan


def a_case(id: str, *, timed: bool = False, tags: Sequence[str] = (), deadline_seconds: float = 120.0) -> Case:
    """Return a declared case."""
    plan = CasePlan.model_validate({"id": id, "dimension": id[0], "title": id, "clauses": ["1"], "tags": list(tags)})
    return Case(plan=plan, timed=timed, deadline_seconds=deadline_seconds)


IDS = st.lists(st.from_regex(r"[A-E]-[0-9]{2}", fullmatch=True), unique=True, max_size=60)


@given(IDS, st.integers(1, 16))
def test_shards_share_every_case_once(ids: list[str], shards: int) -> None:
    """Whatever the number of shards, each case is run by exactly one of them."""
    cases = [a_case(id, timed=int(id[-1]) % 3 == 0) for id in ids]
    dealt = [id for shard in range(shards) for id in shard_order(cases, shard, shards)]
    assert sorted(dealt) == sorted(ids)


@given(IDS, st.integers(1, 4), st.randoms())
def test_a_shard_gets_the_same_cases_whatever_the_order_of_collection(
    ids: list[str], shards: int, chance: object
) -> None:
    """A retried shard and a further round run what the first one would have run."""
    cases = [a_case(id) for id in ids]
    assert shard_order(cases, 0, shards) == shard_order(list(reversed(cases)), 0, shards)


def test_a_long_case_gets_a_shard_with_fewer_others() -> None:
    """What a case may take is what it weighs."""
    cases = [a_case(f"A-{number:02d}") for number in range(4)] + [a_case("D-07", deadline_seconds=360)]
    assert [shard_order(cases, shard, 2) for shard in (0, 1)] == [["A-03", "D-07"], ["A-00", "A-01", "A-02"]]


def test_timed_cases_come_last() -> None:
    """They run alone, after everything else."""
    cases = [a_case("A-01", timed=True), a_case("B-01"), a_case("C-01"), a_case("A-02", timed=True)]
    assert shard_order(cases, 0, 1) == ["B-01", "C-01", "A-01", "A-02"]
    assert shard_order(cases, 1, 2) == ["C-01", "A-02"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([], True, id="no selection"),
        pytest.param(["quick"], True, id="one of its tags"),
        pytest.param(["slow", "quick"], True, id="any of them"),
        pytest.param(["slow"], False, id="another tag"),
    ],
)
def test_tags_select_cases(asked: list[str], expected: bool) -> None:
    """A run that asks for tags runs the cases that have one of them."""
    assert is_selected(a_case("A-01", tags=["quick", "startup"]).plan, asked) is expected


@pytest.mark.parametrize(
    ("id", "dimension", "clauses", "words"),
    [
        pytest.param("A-1", "A", ["1"], "A-1", id="malformed id"),
        pytest.param("F-01", "F", ["1"], "dimension", id="unknown dimension"),
        pytest.param("A-01", "B", ["1"], "dimension 'B'", id="id of another dimension"),
        pytest.param("A-01", "A", [], "clauses", id="no clause"),
    ],
)
def test_a_malformed_declaration_stops_the_suite(id: str, dimension: str, clauses: list[str], words: str) -> None:
    """The message names the case and the field."""
    with pytest.raises(InvalidInput, match=words):
        case(id, dimension=dimension, title="t", clauses=clauses)  # type: ignore[arg-type]  # that is the point
