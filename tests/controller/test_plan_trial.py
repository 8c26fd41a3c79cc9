"""What a trial does next depends on what is seen alone: the planner, row by row."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from controller.actions import Action, Confirm, Create, Delete, Emit, Finalize, Note, SetStatus, Settle, Wait
from controller.plan_trial import plan
from controller.settings import Settings
from controller.views import ContainerView
from controller.world import World
from tests.controller.builders import FENCED, SUBMISSION, exited, job, pod, shard, status, trial, world
from tests.controller.fakes import CANDIDATE, PREPARED, START
from wire.outcome import Checked, Delivered, Evaluated
from wire.trial import Attempt, EndReason, FailureClass, Phase, TrialStatus

DELIVERED = Delivered(conversation=1, candidate=CANDIDATE)
OTHER = Delivered(conversation=2, candidate=CANDIDATE)
PASSED = Checked(conversation=1, candidate=CANDIDATE, passed=True, prepared=PREPARED)
FAILED = Checked(conversation=1, candidate=CANDIDATE, passed=False)
EVALUATED = Evaluated(shard=0, submission=CANDIDATE, unresolved=0)
BOX, SESSION = pod("t-1-sandbox"), pod("t-1-session-1")
SUT, GATE = pod("t-1-sut-1"), pod("t-1-gate-1")
SHARD_SUT, JOB = pod("t-1-sut-e0", role="sut"), job()
DEVELOPING = status(Phase.DEVELOPING, pods=FENCED | {BOX.name: BOX.uid, SESSION.name: SESSION.uid})
CHECKING = status(Phase.CHECKING, candidate=CANDIDATE, pods=FENCED | {BOX.name: BOX.uid})
CHECKED = CHECKING.model_copy(update={"pods": {**CHECKING.pods, SUT.name: SUT.uid, GATE.name: GATE.uid}})
FROZEN = status(Phase.FROZEN, candidate=CANDIDATE, submission=SUBMISSION, rounds=1)
EVALUATING = FROZEN.model_copy(
    update={"phase": Phase.EVALUATING, "pods": {**FENCED, SHARD_SUT.name: SHARD_SUT.uid, JOB.name: JOB.uid}}
)
DEAD_SUT = pod(SUT.name, exited("sandbox", code=137, reason="OOMKilled"))
DEAD_SHARD = pod(SHARD_SUT.name, role="sut", phase="Failed", reason="Evicted")
MEMORY, DISK = "SutOutOfMemory", "SutOverLimit"
LAST = Attempt(
    number=1,
    stage=Phase.DEVELOPING,
    failure_class=FailureClass.INFRASTRUCTURE,
    reason="PodLost",
    at="2026-12-01T00:00:00Z",
)


def words(actions: Sequence[Action]) -> list[str]:
    """Return actions as short sentences."""
    return [_word(action) for action in actions]


def _word(action: Action) -> str:  # noqa: PLR0911 - one line for each kind of action
    match action:
        case Create() | Delete() | Confirm():
            return f"{type(action).__name__.lower()} {action.name}"
        case SetStatus(status=TrialStatus() as after):
            return f"status {after.phase} {after.attempt}/{after.sandbox}/{after.conversation}"
        case Settle(settlement=settlement):
            return f"settle {settlement.phase}"
        case Finalize(held=held):
            return "hold" if held else "release"
        case Wait(seconds=seconds):
            return f"wait {seconds:.0f}"
        case Emit(reason=reason) | Note(reason=reason):
            return f"say {reason}"
        case _:
            return type(action).__name__.lower()


ROWS = [
    pytest.param(world(trial()), [], id="waits to be admitted"),
    pytest.param(
        world(trial(status(pods={})), registered=None),
        ["register", "create t-1-secrets", "create t-pair", "create t-1-sandbox"],
        id="admitted: hub, secret, fence, then the sandbox",
    ),
    pytest.param(world(trial(status()), pod("t-1-sandbox", ip="", phase="Pending")), [], id="waits for the address"),
    pytest.param(world(trial(status()), BOX), ["create t-1-session-1"], id="address seen: the session"),
    pytest.param(world(trial(status()), BOX, SESSION), ["status Developing 1/1/1"], id="both seen: recorded once"),
    pytest.param(world(trial(DEVELOPING), BOX, SESSION), [], id="developing: nothing to do"),
    pytest.param(
        world(trial(DEVELOPING), BOX, pod(SESSION.name, exited("user", DELIVERED), exited("agent"))),
        ["status Checking 1/1/1"],
        id="delivered: the candidate is recorded",
    ),
    pytest.param(
        world(trial(DEVELOPING), pod(SESSION.name, exited("user", DELIVERED))),
        ["status Checking 1/1/1"],
        id="delivered, then the sandbox went: the outcome counts",
    ),
    pytest.param(
        world(trial(DEVELOPING), BOX, pod(SESSION.name, exited("user", OTHER))),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="an outcome of another conversation is none",
    ),
    pytest.param(world(trial(DEVELOPING), BOX), ["confirm t-1-session-1"], id="recorded but not cached: asked for"),
    pytest.param(
        world(trial(DEVELOPING), BOX, lost=frozenset({SESSION.uid})),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="session lost: the sandbox stays",
    ),
    pytest.param(
        world(trial(DEVELOPING), SESSION, lost=frozenset({BOX.uid})),
        ["status Admitted 2/2/1", "say AttemptFailed"],
        id="sandbox lost: both are new",
    ),
    pytest.param(
        world(trial(DEVELOPING), pod(BOX.name, uid="other"), SESSION),
        ["status Admitted 2/2/1", "say AttemptFailed"],
        id="another pod of the sandbox's name is not the sandbox",
    ),
    pytest.param(
        world(trial(DEVELOPING), BOX, pod(SESSION.name, disruption="EvictionByEvictionAPI", phase="Failed")),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="session evicted",
    ),
    pytest.param(
        world(trial(CHECKING), BOX, pod(SESSION.name, exited("user", DELIVERED), phase="Succeeded")),
        ["delete t-1-session-1", "create t-1-sut-1"],
        id="checking: the session goes, the sut comes, the sandbox stays",
    ),
    pytest.param(
        world(trial(CHECKING.model_copy(update={"end_reason": EndReason.TURN_LIMIT})), BOX),
        ["delete t-1-sandbox", "create t-1-sut-1"],
        id="checking after a limit: the sandbox goes too",
    ),
    pytest.param(world(trial(CHECKING), BOX, SUT), ["create t-1-gate-1"], id="sut has an address: the gate"),
    pytest.param(world(trial(CHECKING), BOX, SUT, GATE), ["status Checking 1/1/1"], id="gate seen: recorded"),
    pytest.param(
        world(trial(CHECKED), BOX, SUT, pod(GATE.name, exited("gate", PASSED))),
        ["status Frozen 1/1/1"],
        id="gate passed: frozen",
    ),
    pytest.param(
        world(
            trial(CHECKING.model_copy(update={"phase": Phase.ADMITTED})),
            BOX,
            SUT,
            pod(GATE.name, exited("gate", PASSED)),
        ),
        ["status Frozen 1/1/1"],
        id="gate passed before it was seen",
    ),
    pytest.param(
        world(trial(CHECKED), BOX, SUT, pod(GATE.name, exited("gate", FAILED))),
        ["status Developing 1/1/2"],
        id="gate failed: the next conversation",
    ),
    pytest.param(
        world(trial(CHECKED), BOX, pod(SUT.name, exited("sandbox", code=137, reason="OOMKilled")), GATE),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="sut died: the check is repeated, the sandbox stays",
    ),
    pytest.param(
        world(trial(CHECKED.model_copy(update={"failures": 5})), BOX, DEAD_SUT, GATE),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="sut died when the cap was spent: it does not count",
    ),
    pytest.param(
        world(
            trial(CHECKED.model_copy(update={"failures": 8, "sut_deaths": {"Checking(1)": [MEMORY] * 3}})),
            BOX,
            DEAD_SUT,
            GATE,
        ),
        ["status Checking 1/1/1", "say AttemptFailed"],
        id="sut died although its gate was told: it counts",
    ),
    pytest.param(world(trial(FROZEN), BOX), ["delete t-1-sandbox"], id="frozen: nothing starts beside the sandbox"),
    pytest.param(
        world(trial(FROZEN), pod(BOX.name, deleting=True)), [], id="frozen: a sandbox that is ending still lives"
    ),
    pytest.param(world(trial(FROZEN)), ["create t-1-sut-e0"], id="sandbox gone: the shards' suts"),
    pytest.param(world(trial(FROZEN), SHARD_SUT), ["create t-1-evaluate"], id="suts have addresses: the Job"),
    pytest.param(world(trial(FROZEN), SHARD_SUT, jobs=[JOB]), ["status Evaluating 1/1/1"], id="Job seen: recorded"),
    pytest.param(
        world(trial(EVALUATING), SHARD_SUT, shard(0, exited("evaluator", EVALUATED)), jobs=[JOB]),
        ["settle Graded", "say VerdictRecorded"],
        id="every shard has evaluated: settled",
    ),
    pytest.param(
        world(
            trial(EVALUATING),
            SHARD_SUT,
            shard(0, exited("evaluator", EVALUATED.model_copy(update={"submission": PREPARED}))),
            jobs=[JOB],
        ),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="an evaluation of another submission is none",
    ),
    pytest.param(
        world(
            trial(EVALUATING),
            SHARD_SUT,
            shard(0, exited("evaluator", EVALUATED.model_copy(update={"unresolved": 2}))),
            jobs=[JOB],
        ),
        ["status Admitted 2/1/1"],
        id="unresolved cases: another round, no failure",
    ),
    pytest.param(
        world(trial(EVALUATING), SHARD_SUT, shard(0), jobs=[job(failed="FailedIndexes")]),
        [],
        id="the Job's end is seen before its pod's: waits for the pod's own words",
    ),
    pytest.param(
        world(trial(EVALUATING), SHARD_SUT, shard(0), jobs=[job(failed="DeadlineExceeded")]),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="the round took too long",
    ),
    pytest.param(
        world(trial(EVALUATING), jobs=[JOB], lost=frozenset({SHARD_SUT.uid})),
        ["status Admitted 2/1/1", "say AttemptFailed"],
        id="a shard's sut is lost",
    ),
    pytest.param(
        world(trial(status(attempt=2, pods=FENCED, attempts=[LAST], failures=1)), BOX, SESSION),
        ["delete t-1-session-1"],
        id="a new attempt waits until the old one's pods are gone",
    ),
    pytest.param(
        world(trial(status(attempt=2, attempts=[LAST], failures=1)), BOX, settings=Settings(retry_seconds=20)),
        ["wait 20"],
        id="a new attempt waits its turn",
    ),
    pytest.param(
        world(trial(status(attempts=[LAST], failures=6)), BOX), ["delete t-1-sandbox"], id="given up: the pods first"
    ),
    pytest.param(world(trial(status(attempts=[LAST], failures=6))), ["settle Errored"], id="given up: then the hub"),
    pytest.param(
        world(trial(DEVELOPING), BOX, SESSION, suspended=True), ["status Pending 2/2/1"], id="suspended: gives way"
    ),
    pytest.param(
        world(trial(DEVELOPING), BOX, SESSION, cancelled=True),
        ["delete t-1-sandbox", "delete t-1-session-1"],
        id="cancelled: the pods first",
    ),
    pytest.param(
        world(trial(), cancelled=True, registered=None), ["register", "settle Cancelled"], id="cancelled soon"
    ),
    pytest.param(
        world(trial(status(Phase.GRADED, admitted=False))),
        ["delete t-1-secrets", "delete t-pair", "release"],
        id="finished: secrets, fence and finalizer go",
    ),
    pytest.param(
        world(trial(status(Phase.ERRORED, admitted=False), retries=1)),
        ["status Pending 2/2/1", "say Retried"],
        id="errored and retried: from the start of the queue",
    ),
    pytest.param(
        world(trial(status(Phase.GRADED, admitted=False), retries=1, cancel=True)),
        ["delete t-1-secrets", "delete t-pair", "release"],
        id="a verdict never changes: no retry, no cancel",
    ),
    pytest.param(world(trial(DEVELOPING, deleting=True), BOX), ["delete t-1-sandbox"], id="deleted: the pods first"),
    pytest.param(world(trial(DEVELOPING, deleting=True)), ["settle Cancelled", "release"], id="deleted: then the hub"),
    pytest.param(
        world(trial(DEVELOPING, deleting=True), now=START + timedelta(seconds=61)),
        ["release"],
        id="deleted: the hub is not waited for beyond our patience",
    ),
]


@pytest.mark.parametrize(("seen", "expected"), ROWS)
def test_what_comes_next_follows_from_what_is_seen(seen: World, expected: list[str]) -> None:
    """Same world, same actions, in this order."""
    assert words(plan(seen)) == expected


@pytest.mark.parametrize(
    ("seen", "counted"),
    [
        pytest.param(world(trial(CHECKED), BOX, DEAD_SUT, GATE), {"Checking(1)": [MEMORY]}, id="memory, checking"),
        pytest.param(world(trial(EVALUATING), DEAD_SHARD, jobs=[JOB]), {"Evaluating": [DISK]}, id="disk, evaluating"),
        pytest.param(
            world(trial(EVALUATING.model_copy(update={"sut_deaths": {"Checking(1)": [DISK]}})), DEAD_SHARD, jobs=[JOB]),
            {"Checking(1)": [DISK], "Evaluating": [DISK]},
            id="each stage by itself",
        ),
        pytest.param(
            world(trial(CHECKED), BOX, pod(SUT.name, exited("sandbox", code=1)), GATE), {}, id="nobody knows why"
        ),
        pytest.param(world(trial(CHECKED), BOX, SUT, pod(GATE.name, exited("gate", code=75))), {}, id="the gate's end"),
    ],
)
def test_suts_that_died_of_their_limits_are_counted_by_stage(seen: World, counted: dict[str, list[str]]) -> None:
    """Memory and disk alone, and only the sut's."""
    changed = plan(seen)[0]
    assert isinstance(changed, SetStatus)
    assert isinstance(changed.status, TrialStatus)
    assert changed.status.sut_deaths == counted


@pytest.mark.parametrize(
    ("sut_deaths", "gate", "evaluator"),
    [
        pytest.param({}, None, None, id="none"),
        pytest.param({"Checking(2)": [MEMORY] * 2, "Evaluating": [DISK] * 2}, None, None, id="two"),
        pytest.param({"Checking(2)": [MEMORY, MEMORY, DISK]}, DISK, None, id="three while checking"),
        pytest.param({"Checking(1)": [MEMORY] * 3}, None, None, id="three of an earlier candidate"),
        pytest.param({"Evaluating": [DISK, DISK, MEMORY]}, None, MEMORY, id="three while evaluating"),
    ],
)
def test_the_driver_after_three_dead_suts_is_told(
    sut_deaths: dict[str, list[str]], gate: str | None, evaluator: str | None
) -> None:
    """Of its own stage alone, with the last reason."""
    checks = trial(status(Phase.CHECKING, candidate=CANDIDATE, conversation=2, sut_deaths=sut_deaths))
    evaluates = trial(FROZEN.model_copy(update={"sut_deaths": sut_deaths}))
    assert _told(plan(world(checks, pod("t-1-sut-2")))) == gate
    assert _told(plan(world(evaluates, SHARD_SUT))) == evaluator


def _told(actions: Sequence[Action]) -> str | None:
    """Return what the driver that is made is told of its suts."""
    (made,) = actions
    assert isinstance(made, Create)
    spec = made.body["spec"]
    spec = spec.get("template", {}).get("spec") or spec
    told = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    return told.get("PROCTOR_SUT_DEATH")


def test_a_pod_that_cannot_start_is_noted_with_a_fix() -> None:
    """The kubelet goes on trying, so no attempt is lost."""
    stuck = pod(BOX.name, ContainerView(name="sandbox", waiting="ErrImagePull", message="not found"), ip="")
    (note,) = plan(world(trial(status()), stuck))
    assert isinstance(note, Note)
    assert note.reason == "ImagePullBackOff"
    assert "check the image's name" in note.message


def test_a_sandbox_that_dies_while_the_gate_runs_is_lost_and_not_made_anew_under_its_name() -> None:
    """Its UID stays recorded through the check, so the next conversation takes a new attempt."""
    (recorded,) = plan(world(trial(CHECKING), SUT, GATE))
    assert isinstance(recorded, SetStatus)
    assert isinstance(recorded.status, TrialStatus)
    after = trial(recorded.status)
    (failed,) = plan(world(after, SUT, pod(GATE.name, exited("gate", FAILED))))
    assert isinstance(failed, SetStatus)
    assert isinstance(failed.status, TrialStatus)
    assert words(plan(world(trial(failed.status)))) == ["confirm t-1-sandbox"]
    assert words(plan(world(trial(failed.status), lost=frozenset({BOX.uid}))))[0] == "status Admitted 2/2/2"
