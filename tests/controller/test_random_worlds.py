"""Whatever happens to its pods, a trial comes to one end: random misfortune over the memory cluster.

Each example is a list of misfortunes: drivers that end in some way, pods deleted at some step, an operator killed at
some write. Afterwards the trial has ended once, and no two attempts ever had a driver alive at the same time.
"""

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster import Kind, Object
from tests.controller.fakes import Killer, ended, obedient, role, run, said
from tests.controller.lab import Lab, ready
from wire.outcome import DriverFailure, Failed

ENDS: dict[str, Object] = {
    "exit 1": {"exit_code": 1, "reason": "Error"},
    "asks for a retry": {"exit_code": 75, "reason": "Error"},
    "no outcome": {"exit_code": 0},
    "out of memory": {"exit_code": 137, "reason": "OOMKilled"},
    "sandbox lost": {"exit_code": 75, "message": said(Failed(reason=DriverFailure.SANDBOX_LOST))},
    "task at fault": {"exit_code": 64, "message": said(Failed(reason=DriverFailure.SUITE_CANNOT_START))},
}
MAIN = {"session": "user", "gate": "gate", "evaluate": "evaluator"}


@dataclass(frozen=True)
class Misfortune:
    """What goes wrong: how the n-th driver ends, after how many steps which pod is deleted, where the operator dies."""

    ends: tuple[str, ...]
    deletions: tuple[tuple[int, int], ...]
    killed_at: int


misfortunes = st.builds(
    Misfortune,
    ends=st.lists(st.sampled_from(["well", "well", *ENDS]), max_size=6).map(tuple),
    deletions=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 4)), max_size=3).map(tuple),
    killed_at=st.integers(0, 60),
)


@settings(max_examples=40, deadline=None)
@given(misfortunes)
def test_a_trial_ends_once_whatever_happens_to_its_pods(misfortune: Misfortune) -> None:
    """Graded or errored, settled once, nothing left, never two attempts alive."""
    asyncio.run(_live(misfortune))


async def _live(misfortune: Misfortune) -> None:
    ends = list(misfortune.ends)

    def script(pod: Object) -> list[Object]:
        end = ends.pop(0) if ends else "well"
        return obedient(pod) if end == "well" else [ended(MAIN[role(pod)], **ENDS[end])]

    lab = await ready(script)
    await lab.stop()
    await lab.start(Killer(at=misfortune.killed_at, after=misfortune.killed_at % 2 == 0))
    await lab.apply(Kind.BenchmarkRun, run())
    pending = sorted(misfortune.deletions)
    steps = 0

    def done() -> bool:
        nonlocal steps
        steps += 1
        # Twenty turns of the loop for each step of the script, so that deletions fall into every stage.
        while pending and steps >= pending[0][0] * 20:
            _delete(lab, pending.pop(0)[1])
        return lab.run_phase() in ("Complete", "Failed") and lab.left() == _end(lab)

    await lab.until(done)
    await lab.stop()
    assert lab.phase() in ("Graded", "Errored")
    assert sum(len(stored) for stored in lab.hub.settlements.values()) == 1
    assert lab.kubelet.most_attempts <= 1


def _delete(lab: Lab, which: int) -> None:
    """Delete one of the pods there are, as a node's failure would."""
    pods = lab.all(Kind.Pod)
    if pods:
        lab.cluster.objects.delete(Kind.Pod, pods[which % len(pods)])


def _end(lab: Lab) -> set[str]:
    return {"BenchmarkRun quick", *(f"Trial {trial['metadata']['name']}" for trial in lab.all(Kind.Trial))}
