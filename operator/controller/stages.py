"""The three stages of an admitted trial: develop, check, evaluate. Pure.

Which stage it is follows from recorded facts: a submission is evaluated, a candidate is checked, else development
goes on. In each stage: an outcome counts first, then evidence that none can come, then what is missing is made.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from controller import manifests
from controller.actions import Action, Confirm, Create, Emit, Note, SetStatus, Settle
from controller.cluster import Kind, Object
from controller.failures import Failure, answer, blocked, failed_driver, failed_job, failed_untrusted, known
from controller.status import failed, frozen, moved, recorded
from controller.views import JobView, PodView
from controller.world import World
from wire.journal import Settlement
from wire.outcome import Checked, Delivered, DriverFailure, Evaluated
from wire.trial import EndReason, Phase

Seen = TypeVar("Seen", PodView, JobView)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An untrusted pod and its driver: how they are called and made."""

    untrusted: str
    make_untrusted: Callable[[], Object]
    driver: str
    make_driver: Callable[[str], Object]
    """Given the untrusted pod's address."""
    containers: tuple[str, ...]
    """The driver's; the first one's message is the outcome."""


def expected(world: World) -> frozenset[str]:
    """Return the names of the pods and the Job that the recorded intents call for."""
    trial, status = world.trial, world.trial.status
    if status.submission is not None:
        return frozenset({*trial.shard_suts, trial.job})
    if status.candidate is None:
        return frozenset({trial.sandbox, trial.session})
    # A failed gate goes on in the same sandbox; after a limit nothing does.
    still = set() if status.end_reason else {trial.sandbox}
    return frozenset({trial.sut, trial.gate, *still})


def advance(world: World) -> list[Action]:
    """Return the next actions of the current stage."""
    status = world.trial.status
    setup = _setup(world)
    if status.submission is not None:
        return [*setup, *_evaluate(world)]
    if status.candidate is not None:
        return [*setup, *_check(world)]
    return [*setup, *_develop(world)]


def _setup(world: World) -> list[Action]:
    """Make what the pods of this attempt need: its Secret, and once the trial's policy."""
    trial, actions = world.trial, list[Action]()
    if not world.has(trial.secrets):
        actions.append(Create(kind=Kind.Secret, body=manifests.secret(trial, world.settings.key())))
    if not world.has(trial.policy):
        actions.append(Create(kind=Kind.NetworkPolicy, body=manifests.pair_policy(trial, world.settings)))
    return actions


def _develop(world: World) -> list[Action]:
    trial, status = world.trial, world.trial.status
    session = world.children.pods.get(trial.session)
    said = answer(session, "user") if session else None
    if isinstance(said, Delivered) and said.conversation == status.conversation:
        keep = {} if said.end_reason else _uids(world, trial.sandbox)
        after = recorded(status, Phase.DEVELOPING, keep)
        changes = {"candidate": said.candidate, "end_reason": said.end_reason}
        return [SetStatus(status=moved(after, Phase.CHECKING, **changes))]
    pair = Pair(
        untrusted=trial.sandbox,
        make_untrusted=lambda: manifests.sandbox_pod(trial, world.settings),
        driver=trial.session,
        make_driver=lambda ip: manifests.session_pod(trial, world.settings, ip),
        containers=("user", "agent"),
    )
    return _bring_up(world, pair, Phase.DEVELOPING)


def _check(world: World) -> list[Action]:
    trial, status = world.trial, world.trial.status
    gate = world.children.pods.get(trial.gate)
    said = answer(gate, "gate") if gate else None
    if isinstance(said, Checked) and (said.conversation, said.candidate) == (status.conversation, status.candidate):
        return _checked(world, said)
    pair = Pair(
        untrusted=trial.sut,
        make_untrusted=lambda: manifests.sut_pod(trial, world.settings),
        driver=trial.gate,
        make_driver=lambda ip: manifests.gate_pod(trial, world.settings, ip),
        containers=("gate",),
    )
    return _bring_up(world, pair, Phase.CHECKING)


def _checked(world: World, said: Checked) -> list[Action]:
    """Freeze, or open the next conversation with the gate's report."""
    status = world.trial.status
    reason = EndReason.GATE_PASSED if said.passed else EndReason.GATE_LIMIT
    over = said.passed or status.conversation >= world.trial.spec.limits.gate_attempts
    if status.end_reason or over:
        end_reason = status.end_reason or reason
        # The gate's end may be the first that is seen of an attempt: it was being checked all the same.
        checking = recorded(status, Phase.CHECKING, {})
        after = frozen(checking, passed=said.passed, prepared=said.prepared, end_reason=end_reason)
        return [SetStatus(status=after)]
    after = recorded(status, Phase.CHECKING, _uids(world, world.trial.sandbox))
    changes = {"conversation": status.conversation + 1, "candidate": None}
    return [SetStatus(status=moved(after, Phase.DEVELOPING, **changes))]


def _bring_up(world: World, pair: Pair, phase: Phase) -> list[Action]:
    """Make the untrusted pod, then its driver; judge either's end; record their UIDs once both are seen."""
    pods = world.children.pods
    box = _look(world, Kind.Pod, pair.untrusted, pods.get(pair.untrusted), failed_untrusted)
    pod = _look(world, Kind.Pod, pair.driver, pods.get(pair.driver), lambda p: failed_driver(p, *pair.containers))
    # The untrusted pod first: when it is gone, whatever its driver says is a consequence.
    for name, seen in ((pair.untrusted, box), (pair.driver, pod)):
        if isinstance(seen, Confirm):
            return [seen]
        if isinstance(seen, Failure):
            return _fail(world, seen, name)
    if not isinstance(box, PodView):
        return [Create(kind=Kind.Pod, body=pair.make_untrusted())]
    if not isinstance(pod, PodView):
        return [Create(kind=Kind.Pod, body=pair.make_driver(box.ip))] if box.ip else _notes([box])
    return [*_record(world, phase, {box.name: box.uid, pod.name: pod.uid}), *_notes([box, pod])]


def _evaluate(world: World) -> list[Action]:
    trial = world.trial
    job = _look(world, Kind.Job, trial.job, world.children.jobs.get(trial.job), lambda _: None)
    if isinstance(job, Confirm):
        return [job]
    if isinstance(job, Failure):
        return _fail(world, job, trial.job)
    shards = _shards(world, job)
    if job is not None:
        if record := _record(world, Phase.EVALUATING, {job.name: job.uid, **_uids(world, *trial.shard_suts)}):
            return record
        done = _answers(world, shards)
        if len(done) == trial.spec.evaluation.shards:
            return _round_over(world, sum(said.unresolved for said in done.values()))
        if why := _failed_round(job, shards, done):
            return _fail(world, why, job.name)
    return _bring_up_suts(world, job, frozenset() if job is None else frozenset(_answers(world, shards)))


def _bring_up_suts(world: World, job: JobView | None, done: frozenset[int]) -> list[Action]:
    """Make the shards' untrusted pods, then the Job that drives them all; judge those still needed."""
    trial, boxes, actions = world.trial, list[PodView](), list[Action]()
    for shard, name in enumerate(trial.shard_suts):
        box = _look(world, Kind.Pod, name, world.children.pods.get(name), failed_untrusted)
        if shard in done:
            continue
        if isinstance(box, Confirm):
            return [box]
        if isinstance(box, Failure):
            return _fail(world, box, name)
        if box is None:
            actions.append(Create(kind=Kind.Pod, body=manifests.sut_pod(trial, world.settings, shard)))
        else:
            boxes.append(box)
    addresses = tuple(box.ip for box in boxes)
    if job is None and not actions and all(addresses):
        return [Create(kind=Kind.Job, body=manifests.evaluate_job(trial, world.settings, addresses))]
    return [*actions, *_notes([*boxes, *_shards(world, job)])]


def _shards(world: World, job: JobView | None) -> tuple[PodView, ...]:
    """Return the pods of this very Job."""
    return tuple(pod for pod in world.children.shard_pods.values() if job is not None and pod.owner == job.uid)


def _answers(world: World, shards: Iterable[PodView]) -> dict[int, Evaluated]:
    """Return the outcomes by shard; one about another submission is none."""
    submission = world.trial.status.submission
    found: dict[int, Evaluated] = {}
    for pod in shards:
        said = answer(pod, "evaluator")
        if isinstance(said, Evaluated) and submission and said.submission == submission.digest:
            found[said.shard] = said
    return found


def _failed_round(job: JobView, shards: tuple[PodView, ...], done: dict[int, Evaluated]) -> Failure | None:
    """Return why this round cannot give every outcome any more."""
    missing = [pod for pod in shards if pod.shard not in done]
    for pod in missing:
        if why := failed_driver(pod, "evaluator"):
            return why
    # The Job may be seen to end before its pods are: their own words are better evidence, and they will come.
    if any(not pod.ended and not pod.deleting for pod in missing) and job.failed != "DeadlineExceeded":
        return failed_job(job) if job.deleting else None
    lost = known("ShardLost", f"Job {job.name} ended without every outcome")
    return failed_job(job) or (lost if job.complete else None)


def _round_over(world: World, unresolved: int) -> list[Action]:
    """Settle, or run what is unresolved once more on fresh pods."""
    status = world.trial.status
    if unresolved and status.rounds < world.settings.evaluation_rounds:
        again = {"attempt": status.attempt + 1, "rounds": status.rounds + 1}
        return [SetStatus(status=moved(recorded(status, status.phase, {}), Phase.ADMITTED, **again))]
    settlement = Settlement(
        phase="Graded",
        submission=status.submission,
        reason="Graded",
        attempts=status.attempts,
        failures=status.failures,
        not_formal=status.not_formal,
    )
    return [Settle(settlement=settlement), Emit(reason="VerdictRecorded", message="the hub has counted the verdict")]


def _look(
    world: World, kind: Kind, name: str, seen: Seen | None, judge: Callable[[Seen], Failure | None]
) -> Seen | Failure | Confirm | None:
    """Return a child as it is, why it is of no use, or None when it was not made yet.

    Absent from the cache is never a decision: what was recorded is lost only when the API server itself says so.
    """
    uid = world.trial.status.pods.get(name)
    if seen is None:
        if uid is None:
            return None
        gone = known("PodLost", f"{kind.name} {name} is gone")
        return gone if uid in world.lost else Confirm(kind=kind, name=name, uid=uid)
    if uid is not None and seen.uid != uid:
        return known("PodLost", f"{kind.name} {name} was replaced by another of the same name")
    return judge(seen) or seen


def _fail(world: World, failure: Failure, name: str) -> list[Action]:
    """Record a failed attempt and the next one's intent; `name` is the child it shows on."""
    trial, status = world.trial, world.trial.status
    develops = status.candidate is None and status.submission is None
    # A driver that cannot reach a sandbox which looks well would not reach it the next time either.
    new_sandbox = name == trial.sandbox or (develops and failure.reason == DriverFailure.SANDBOX_LOST)
    cap = world.settings.infrastructure_retries
    after = failed(trial, failure, world.now, new_sandbox=new_sandbox, cap=cap)
    text = f"attempt {status.attempt} ({status.phase}): {failure.reason}, {failure.failure_class}: {failure.message}"
    return [SetStatus(status=after), Emit(reason="AttemptFailed", message=text[:1000], warning=True)]


def _record(world: World, phase: Phase, uids: dict[str, str]) -> list[Action]:
    """Record this stage's children, once a stage."""
    status = world.trial.status
    # The sandbox of a conversation that a gate interrupts stays recorded: its loss must not look like "not made yet".
    still = {name: uid for name, uid in status.pods.items() if name in expected(world)}
    after = recorded(status, status.phase, {**world.made, **still, **uids})
    if status.pods == after.pods and status.phase is phase:
        return []
    return [SetStatus(status=moved(after, phase))]


def _uids(world: World, *names: str) -> dict[str, str]:
    """Return the UIDs of those pods that were recorded or are there."""
    there = {name: pod.uid for name, pod in world.children.pods.items() if name in names}
    return there | {name: uid for name, uid in world.trial.status.pods.items() if name in names}


def _notes(pods: Iterable[PodView]) -> list[Action]:
    """Say what keeps the first of these pods from starting."""
    notes = [why for why in map(blocked, pods) if why]
    return [Note(reason=reason, message=message) for reason, message in notes[:1]]
