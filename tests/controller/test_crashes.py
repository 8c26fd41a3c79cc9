"""Promise 1: an operator killed between any two writes changes nothing in the end state.

Every write that the operator makes in a trial's life is a moment to die: just before it and just after it. A fresh
process that remembers nothing goes on.
"""

import asyncio
from dataclasses import dataclass

import pytest

from controller.cluster import Kind, Object
from tests.controller.fakes import CANDIDATE, Killer, Kubelet, Script, ended, obedient, run
from tests.controller.lab import Lab, ready
from wire.names import LABEL_ATTEMPT, LABEL_ROLE
from wire.outcome import Checked


@dataclass(frozen=True)
class EndState:
    """What must be the same however often the operator died."""

    phase: str
    attempt: int
    failures: int
    conversation: int
    left: frozenset[str]
    pods: frozenset[str]
    settlements: tuple[str, ...]


def end_state(lab: Lab) -> EndState:
    """Read the end of a one-trial run."""
    status = lab.trial()["status"]
    jobs_own = {name for name in lab.kubelet.uids if "-evaluate-" in name}
    return EndState(
        phase=status["phase"],
        attempt=status["attempt"],
        failures=status["failures"],
        conversation=status["conversation"],
        left=frozenset(lab.left()),
        pods=frozenset(lab.kubelet.uids) - jobs_own,
        settlements=tuple(s.phase for stored in lab.hub.settlements.values() for s in stored),
    )


async def life(script: Script, killer: Killer) -> Lab:
    """Live a trial's whole life with a killer about."""
    lab = await ready(script)
    await lab.stop()
    await lab.start(killer)
    await lab.apply(Kind.BenchmarkRun, run())
    await lab.until(lambda: lab.run_phase() in ("Complete", "Failed") and lab.left() == finished(lab))
    await lab.settle_down(5)
    await lab.stop()
    return lab


def finished(lab: Lab) -> set[str]:
    """Return what a finished run leaves: itself and its trial."""
    return {"BenchmarkRun quick", *(f"Trial {t['metadata']['name']}" for t in lab.all(Kind.Trial))}


def second_gate_passes(pod: Object) -> list[Object]:
    """Script: the first gate fails, so a second conversation follows in the same sandbox."""
    if pod["metadata"]["labels"][LABEL_ROLE] == "gate" and pod["metadata"]["name"].endswith("gate-1"):
        said = Checked(conversation=1, candidate=CANDIDATE, passed=False)
        return [ended("gate", message=said.model_dump_json(by_alias=True))]
    return obedient(pod)


def first_session_lost(pod: Object) -> list[Object]:
    """Script: the first attempt's session dies of something nobody knows."""
    labels = pod["metadata"]["labels"]
    if labels[LABEL_ROLE] == "session" and labels[LABEL_ATTEMPT] == "1":
        return [ended("agent"), ended("user", 137, reason="Error")]
    return obedient(pod)


SCRIPTS = [
    pytest.param(obedient, (False, True), id="no faults"),
    pytest.param(second_gate_passes, (True,), id="two conversations"),
    pytest.param(first_session_lost, (True,), id="a lost session"),
]


@pytest.mark.parametrize(("script", "moments"), SCRIPTS)
def test_killing_the_operator_at_any_write_changes_nothing(script: Script, moments: tuple[bool, ...]) -> None:
    """For every write: killed before it and after it, the end state is that of an operator that never died."""

    async def story() -> None:
        calm = await life(script, Killer())
        expected, writes = end_state(calm), calm.killer.writes
        assert writes > 30
        for at in range(1, writes + 1):
            for after in moments:
                lab = await life(script, Killer(at=at, after=after))
                where = f"killed {'after' if after else 'before'} write {at}: {calm.killer.log}"
                assert lab.deaths == 1, where
                assert end_state(lab) == expected, where
                assert_promises(lab.kubelet, where)

    asyncio.run(story())


def assert_promises(kubelet: Kubelet, where: str) -> None:
    """No name ever had two pods, and no two attempts had a driver alive at the same time."""
    assert {name for name, uids in kubelet.uids.items() if len(uids) > 1} == set(), where
    assert kubelet.most_attempts <= 1, where
