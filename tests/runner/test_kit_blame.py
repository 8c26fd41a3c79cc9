"""The rule of attribution, row by row."""

import httpx2
import pytest

from runner.errors import SandboxLost
from runner.kit.blame import Phase, outcome_of, verdict
from runner.kit.faults import KitFailed, SubmissionFailed
from wire.errors import Broken
from wire.journal import CaseOutcome

PASSED, FAILED, UNRESOLVED = CaseOutcome.PASSED, CaseOutcome.FAILED, CaseOutcome.UNRESOLVED


@pytest.mark.parametrize(
    ("error", "phase", "in_suite", "expected"),
    [
        pytest.param(None, Phase.CALL, False, PASSED, id="nothing went wrong"),
        pytest.param(SubmissionFailed("no"), Phase.CALL, False, FAILED, id="the submission broke the contract"),
        pytest.param(SubmissionFailed("no"), Phase.SETUP, False, FAILED, id="the submission does not start"),
        pytest.param(AssertionError("no"), Phase.CALL, True, FAILED, id="an assertion of the case"),
        pytest.param(AssertionError("no"), Phase.CALL, False, UNRESOLVED, id="an assertion inside a library"),
        pytest.param(AssertionError("no"), Phase.SETUP, True, UNRESOLVED, id="an assertion of a fixture"),
        pytest.param(KitFailed("no"), Phase.CALL, False, UNRESOLVED, id="the kit could not do its part"),
        pytest.param(SandboxLost("no"), Phase.CALL, False, UNRESOLVED, id="the sandbox is gone"),
        pytest.param(Broken("no"), Phase.SETUP, False, UNRESOLVED, id="PostgreSQL does not start"),
        pytest.param(httpx2.ConnectError("no"), Phase.CALL, False, UNRESOLVED, id="a connection nobody attributed"),
        pytest.param(KeyError("no"), Phase.CALL, True, UNRESOLVED, id="a mistake in the suite"),
        pytest.param(TimeoutError("no"), Phase.CALL, True, UNRESOLVED, id="a time-out nobody attributed"),
        pytest.param(
            ExceptionGroup("two", [SubmissionFailed("no")]), Phase.CALL, True, UNRESOLVED, id="several at once"
        ),
        pytest.param(KeyboardInterrupt(), Phase.CALL, True, UNRESOLVED, id="somebody stopped it"),
    ],
)
def test_only_positive_evidence_fails_a_submission(
    error: BaseException | None, phase: Phase, in_suite: bool, expected: CaseOutcome
) -> None:
    """What the table does not know is unresolved, never failed."""
    assert outcome_of(error, phase, in_suite) is expected


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        pytest.param({Phase.SETUP: PASSED, Phase.CALL: PASSED, Phase.TEARDOWN: PASSED}, PASSED, id="all went well"),
        pytest.param({Phase.SETUP: FAILED, Phase.TEARDOWN: PASSED}, FAILED, id="not started"),
        pytest.param({Phase.SETUP: UNRESOLVED, Phase.TEARDOWN: PASSED}, UNRESOLVED, id="not prepared"),
        pytest.param({Phase.SETUP: PASSED, Phase.CALL: FAILED, Phase.TEARDOWN: UNRESOLVED}, FAILED, id="failed"),
        pytest.param(
            {Phase.SETUP: PASSED, Phase.CALL: PASSED, Phase.TEARDOWN: UNRESOLVED}, PASSED, id="not cleaned up"
        ),
        pytest.param({Phase.SETUP: PASSED}, UNRESOLVED, id="cut off"),
        pytest.param({}, UNRESOLVED, id="never begun"),
    ],
)
def test_a_case_ends_as_its_set_up_and_its_call_say(phases: dict[Phase, CaseOutcome], expected: CaseOutcome) -> None:
    """Cleaning up is the kit's own work."""
    assert verdict(phases) is expected
