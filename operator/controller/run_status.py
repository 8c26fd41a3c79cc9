"""A run's status: conditions, counters, phase. Pure."""

from collections.abc import Iterable
from datetime import datetime

from controller.accept import Problem
from controller.actions import Note
from controller.conditions import Conditions
from controller.status import is_holding, stamp
from controller.views import Meta, RunView, TrialView
from wire.run import BenchmarkRunStatus, Condition, RunPhase, TrialCounts
from wire.trial import FINISHED, Phase


def with_problem(run: RunView, problem: Problem, now: datetime) -> BenchmarkRunStatus:
    """Return the status of a run that is not accepted."""
    met = Conditions(run.meta, run.status.conditions, now)
    met.set("Accepted", "False", problem.reason, problem.message)
    met.set("Progressing", "False", "NotAccepted")
    met.set("Complete", "False", "NotAccepted")
    changes = {"conditions": met.list(), "observed_generation": run.meta.generation}
    return run.status.model_copy(update=changes)


def unreadable(meta: Meta, status: BenchmarkRunStatus, message: str, now: datetime) -> BenchmarkRunStatus:
    """Return the status of a run whose spec is not even readable (an object that bypassed the CRD's schema)."""
    met = Conditions(meta, status.conditions, now)
    met.set("Accepted", "False", "InvalidSpec", message)
    return status.model_copy(update={"conditions": met.list(), "observed_generation": meta.generation})


def with_acceptance(run: RunView, pending: int, now: datetime) -> BenchmarkRunStatus:
    """Return the status of a run that has just been accepted."""
    met = Conditions(run.meta, run.status.conditions, now)
    met.set("Accepted", "True", "Pinned", "suite and packages are pinned")
    met.set("Progressing", "True", "TrialsRunning")
    met.set("Complete", "False", "TrialsUnfinished")
    met.set("Failed", "False", "NoTrialFailed")
    changes = {
        "phase": RunPhase.RUNNING,
        "conditions": met.list(),
        "observed_generation": run.meta.generation,
        "trials": TrialCounts(total=pending, pending=pending),
        "start_time": stamp(now),
    }
    return run.status.model_copy(update=changes)


def counted(
    run: RunView, trials: Iterable[TrialView], cells: int, note: Note | None, now: datetime
) -> BenchmarkRunStatus:
    """Return the status that follows from the trials."""
    trials = list(trials)
    finished = {trial.spec.index for trial in trials if trial.status.phase in FINISHED}
    # A finished trial that somebody deleted stays finished: its verdict is in the hub, it is not run again.
    there = {trial.spec.index for trial in trials}
    gone = {index for index in indexes(run.status.completed_indexes) if index not in there}
    counts = _counts(trials, cells, len(gone), cancelled=run.spec.cancel)
    over = counts.pending == 0 and counts.active == 0
    done = intervals(finished | gone)
    changes = {
        "phase": _phase(run, counts, over),
        "conditions": _conditions(run, counts, note, now),
        "observed_generation": run.meta.generation,
        "trials": counts,
        "completed_indexes": done,
        "completion_time": (run.status.completion_time or stamp(now)) if over else None,
    }
    return run.status.model_copy(update=changes)


def is_over(status: BenchmarkRunStatus) -> bool:
    """Tell whether every trial has ended."""
    return status.completion_time is not None


def intervals(indexes: Iterable[int]) -> str:
    """Write indexes as `0-2,5`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def indexes(text: str) -> frozenset[int]:
    """Read `0-2,5`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _counts(trials: list[TrialView], cells: int, gone: int, *, cancelled: bool) -> TrialCounts:
    phases = [trial.status.phase for trial in trials]
    graded = phases.count(Phase.GRADED) + gone
    errored, stopped = phases.count(Phase.ERRORED), phases.count(Phase.CANCELLED)
    active = sum(is_holding(trial.status) for trial in trials)
    # A cancelled run makes no further trials.
    total = len(trials) + gone if cancelled else max(cells, len(trials) + gone)
    return TrialCounts(
        total=total,
        pending=total - active - graded - errored - stopped,
        active=active,
        graded=graded,
        errored=errored,
        cancelled=stopped,
    )


def _phase(run: RunView, counts: TrialCounts, over: bool) -> RunPhase:
    if over:
        return RunPhase.FAILED if counts.errored or counts.cancelled else RunPhase.COMPLETE
    return RunPhase.SUSPENDED if run.spec.suspend and not counts.active else RunPhase.RUNNING


def _conditions(run: RunView, counts: TrialCounts, note: Note | None, now: datetime) -> list[Condition]:
    over = counts.pending == 0 and counts.active == 0
    met = Conditions(run.meta, run.status.conditions, now)
    met.set("Accepted", "True", "Pinned", "suite and packages are pinned")
    if over:
        met.set("Progressing", "False", "Finished")
        met.set("Complete", "True", "SomeTrialsErrored" if counts.errored else "AllTrialsEnded")
    else:
        met.set("Complete", "False", "TrialsUnfinished")
        _progress(met, run, note)
    if counts.errored:
        met.set("Failed", "True", "TrialsErrored", "some trials ended without a verdict; see them with `proctor ls`")
    elif run.spec.cancel and over:
        met.set("Failed", "True", "Cancelled")
    else:
        met.set("Failed", "False", "NoTrialFailed")
    return met.list()


def _progress(met: Conditions, run: RunView, note: Note | None) -> None:
    if run.spec.suspend:
        met.set("Progressing", "False", "Suspended")
    elif note is not None:
        met.set("Progressing", "False", note.reason, note.message)
    else:
        met.set("Progressing", "True", "TrialsRunning")
