"""Who may start next: fair, bounded, slow at first, arms of one task and repetition together."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.admit import Load, Waiting, choose, order, wider


def waiting(repetitions: int, tasks: int = 1, arms: int = 1) -> tuple[Waiting, ...]:
    """Return the trials of a whole run."""
    cells = [(r, t, a) for r in range(repetitions) for t in range(tasks) for a in range(arms)]
    return tuple(
        Waiting(name=f"{r}-{t}-{a}", task=f"task-{t}", repetition=r + 1, index=(r * tasks + t) * arms + a)
        for r, t, a in cells
    )


def load(run: str = "r", holding: int = 0, parallelism: int = 100, **changes: Any) -> Load:
    whole: dict[str, Any] = {"run": run, "seed": 7, "parallelism": parallelism, "holding": holding}
    return Load(**({"waiting": waiting(20)} | whole | changes))


def test_a_task_starts_with_one_trial_and_widens_when_trials_come_up() -> None:
    """1, 2, 4 …: a broken image costs one pod."""
    assert len(choose([load()], {}, 100)) == 1
    assert len(choose([load()], {("r", "task-0"): wider(1)}, 100)) == 2
    assert len(choose([load(starting={"task-0": 1})], {}, 100)) == 0


def test_a_task_that_does_not_come_up_leaves_the_others_alone() -> None:
    """The slow start is one of a run's task."""
    chosen = choose([load(starting={"task-0": 1}, waiting=waiting(4, tasks=3))], {}, 100)
    assert {taken.task for _, taken in chosen} == {"task-1", "task-2"}


def test_the_run_that_holds_least_goes_first() -> None:
    """Fair between runs, whatever their size."""
    widths = {("big", "task-0"): 64, ("small", "task-0"): 64}
    chosen = [run for run, _ in choose([load("big", holding=3), load("small")], widths, 5)]
    assert chosen == ["small", "small", "small", "big", "small"]


def test_the_arms_of_one_task_and_repetition_start_together() -> None:
    """The order is a permutation of blocks, the same for the same seed, another for another."""
    whole = load(waiting=waiting(5, tasks=4, arms=3))
    names = [w.name for w in order(whole)]
    blocks = [names[i : i + 3] for i in range(0, len(names), 3)]
    assert all(len({name.rsplit("-", 1)[0] for name in block}) == 1 for block in blocks)
    assert names == [w.name for w in order(whole)]
    assert names != [w.name for w in order(load(waiting=whole.waiting, seed=8))]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=1, max_size=4),
    st.integers(0, 12),
    st.integers(1, 64),
)
def test_no_bound_is_ever_exceeded(runs: list[tuple[int, int]], room: int, width: int) -> None:
    """Neither the whole installation's, nor a run's, nor the slow start's."""
    loads = [load(str(i), holding=held, parallelism=limit) for i, (held, limit) in enumerate(runs)]
    chosen = choose(loads, {(entry.run, "task-0"): width for entry in loads}, room)
    assert len(chosen) <= room
    for entry in loads:
        mine = [taken for run, taken in chosen if run == entry.run]
        assert len(mine) <= max(0, entry.parallelism - entry.holding)
        assert len(mine) <= width
        assert len({taken.name for taken in mine}) == len(mine)
