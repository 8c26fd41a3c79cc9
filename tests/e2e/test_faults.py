"""A trial that suffers a fault ends with the verdict of one that did not, and says what happened to it.

Three faults belong to every test run; all of them: `pytest -m "cluster or faults" tests/e2e/test_faults.py`.
"""

import re

import pytest

from tests.e2e import objects
from tests.e2e.faults import FAULTS, IN_CI, Trial
from tests.e2e.installation import Installation
from tests.e2e.outcomes import events_of, outcomes

CASES = [
    pytest.param(name, id=name, marks=pytest.mark.cluster if name in IN_CI else pytest.mark.faults) for name in FAULTS
]


@pytest.mark.parametrize("name", CASES)
def test_a_fault_changes_no_verdict(proctor: Installation, undisturbed: dict[str, dict[str, str]], name: str) -> None:
    """Graded, every case as without the fault, every attempt recorded with class and reason, nothing twice."""
    fault = FAULTS[name]
    run = "fault-" + re.sub("[^a-z0-9]+", "-", name.lower())[:24].strip("-")
    proctor.apply_run(objects.run(run, (fault.arm,)))
    trial = Trial(proctor=proctor, run=run)
    fault.strike(trial)
    proctor.wait(run, minutes=12)

    status = trial.status
    assert status["phase"] == "Graded", proctor.state(run)
    least, most = fault.failures
    assert least <= status.get("failures", 0) <= most, status.get("attempts")
    assert all(one["failureClass"] == "infrastructure" and one["reason"] for one in status.get("attempts", []))
    record = proctor.record(trial.object)
    assert outcomes(record) == undisturbed[fault.arm]
    assert record["result"] == status["result"]
    assert_every_turn_ran_once(proctor, trial)
    proctor.delete(run)


def assert_every_turn_ran_once(proctor: Installation, trial: Trial) -> None:
    """Each turn was sealed once; its command was started once, except in a sandbox that was lost."""
    entries = events_of(proctor, trial.object)
    sealed = [entry["turn"] for entry in entries if entry["kind"] == "turnSealed"]
    assert sealed == sorted(set(sealed))
    final = {entry["turn"]: entry["sandbox"] for entry in entries if entry["kind"] == "turnSealed"}
    started = [
        (entry["turn"], entry["text"])
        for entry in entries
        if entry["kind"] == "turnEvent" and entry["event"] == "command" and entry["attempt"] >= final[entry["turn"]]
    ]
    assert len(started) == len(set(started)), started
