"""What the simulated user does next follows from the journal, the scenario and the limits alone."""

import pytest

from runner.conversation import AlreadyEnded, Deliver, Say, Seen, Step, next_step, report
from tests.runner.builders import scenario, sealed
from wire.digest import of_bytes
from wire.journal import ConversationEnded, GateReported, GateStep
from wire.run import Limits
from wire.trial import EndReason

TEN_MINUTES = Limits(turns=10, development_minutes=10)
CANDIDATE = of_bytes(b"candidate")
ENDED = ConversationEnded(conversation=1, attempt=1, candidate=CANDIDATE, at="2026-01-01T00:00:00.000Z")
GATE = GateReported(
    conversation=1,
    attempt=1,
    candidate=CANDIDATE,
    passed=False,
    steps=[
        GateStep(name="install", passed=True, seconds=1, output="fine"),
        GateStep(name="limits", passed=False, seconds=1, output="expected 400"),
    ],
    at="2026-01-01T00:00:00.000Z",
)
REPORT = "1 of 2 checks failed.\n- limits\n  expected 400"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(Seen(conversation=1), Say(1, "open", 600), id="nothing said yet"),
        pytest.param(Seen(conversation=1, sealed=(sealed(1),)), Say(2, "more", 540), id="one turn sealed"),
        pytest.param(Seen(conversation=1, sealed=(sealed(1), sealed(2))), Deliver(None), id="all said"),
        pytest.param(Seen(conversation=1, ended=(ENDED,)), AlreadyEnded(ENDED), id="only the outcome is missing"),
        pytest.param(
            Seen(conversation=2, sealed=(sealed(1), sealed(2)), ended=(ENDED,), gates=(GATE,)),
            Say(3, f"failed: {REPORT}", 480),
            id="the gate's report opens the next one",
        ),
        pytest.param(
            Seen(conversation=2, sealed=(sealed(1), sealed(2), sealed(3, 2)), ended=(ENDED,), gates=(GATE,)),
            Deliver(None),
            id="repaired",
        ),
        pytest.param(
            Seen(conversation=1, sealed=(sealed(1, seconds=600),)), Deliver(EndReason.TIME_LIMIT), id="no time left"
        ),
        pytest.param(
            Seen(conversation=1, sealed=(sealed(1, deaths=3),)), Deliver(EndReason.RESOURCE_LIMIT), id="three deaths"
        ),
        pytest.param(
            Seen(conversation=2, sealed=tuple(sealed(turn, deaths=1) for turn in (1, 2, 3)), gates=(GATE,)),
            Deliver(EndReason.RESOURCE_LIMIT),
            id="three deaths in three turns",
        ),
        pytest.param(
            Seen(conversation=1, sealed=(sealed(1),), end_reason=EndReason.RESOURCE_LIMIT),
            Deliver(EndReason.RESOURCE_LIMIT),
            id="the operator has seen three sandboxes die",
        ),
        pytest.param(
            Seen(conversation=1, sealed=(sealed(1, rolled_back=True),)),
            Deliver(EndReason.RESOURCE_LIMIT),
            id="the workspace outgrew archives",
        ),
        pytest.param(
            Seen(conversation=2, sealed=(sealed(1, deaths=2), sealed(2)), gates=(GATE,)),
            Say(3, f"failed: {REPORT}", 480),
            id="deaths not in a row",
        ),
        pytest.param(
            Seen(conversation=2, sealed=tuple(sealed(turn) for turn in range(1, 11)), gates=(GATE,)),
            Deliver(EndReason.TURN_LIMIT),
            id="no turn left",
        ),
    ],
)
def test_the_next_step_follows_from_the_journal(seen: Seen, expected: Step) -> None:
    """A user that starts anew goes on where the last sealed turn left off."""
    assert next_step(seen, scenario(), TEN_MINUTES) == expected


def test_a_report_is_bounded() -> None:
    """A submission that fails at great length does not fill the next message."""
    steps = [GateStep(name=f"check {n}", passed=False, seconds=1, output="x" * 60_000) for n in range(200)]
    assert len(report(GATE.model_copy(update={"steps": steps}))) < 40_000
