"""A trial's world → what to do now, in order. Pure: same world, same actions; asking again is harmless.

The order is always: record the intent, create, observe, record the outcome, release. Nothing is created while a pod
of an older attempt exists, so no two attempts are ever alive. Stages themselves are in `stages.py`.
"""

from datetime import timedelta

from controller.actions import Action, Delete, Emit, Finalize, Register, SetStatus, Settle, Wait
from controller.cluster import Kind
from controller.stages import advance, expected
from controller.status import after_suspension, again, delay
from controller.views import MOMENT, PodView
from controller.world import World
from wire.journal import Settlement
from wire.trial import FINISHED, Phase


def plan(world: World) -> list[Action]:
    """Return what to do now for one trial."""
    trial = world.trial
    if trial.meta.deleting:
        return _teardown(world)
    if trial.status.phase in FINISHED:
        return _finished(world)
    if ending := _ending(world):
        return _end(world, ending)
    if not trial.status.admitted:
        return _deletes(world, keep=frozenset())
    if world.suspended:
        return [SetStatus(status=after_suspension(trial.status))]
    return _live(world)


def _ending(world: World) -> Settlement | None:
    """Return how a trial ends without a verdict; None = it does not."""
    if world.cancelled:
        return Settlement(phase="Cancelled", reason="Cancelled", message="cancelled by its run or by hand")
    return _errored(world) if is_doomed(world) else None


def is_doomed(world: World) -> bool:
    """Tell whether the last failure ended the current attempt and no other was begun."""
    attempts = world.trial.status.attempts
    return bool(attempts) and attempts[-1].number == world.trial.status.attempt


def _live(world: World) -> list[Action]:
    deletes = _deletes(world, keep=expected(world))
    if _is_blocked(world):
        return deletes
    if (left := _backoff(world)) > 0:
        return [*deletes, Wait(seconds=left)]
    status = world.trial.status
    register = [] if world.registered == (status.attempt, status.sandbox) else [Register()]
    return [*deletes, *register, *advance(world)]


def _deletes(world: World, keep: frozenset[str]) -> list[Action]:
    """Delete every pod and Job that the recorded intents do not call for."""
    actions: list[Action] = []
    for pod in world.children.pods.values():
        if pod.name not in keep and not pod.deleting:
            actions.append(Delete(kind=Kind.Pod, name=pod.name, uid=pod.uid, at_once=pod.ended))
    for job in world.children.jobs.values():
        if job.name not in keep and not job.deleting:
            actions.append(Delete(kind=Kind.Job, name=job.name, uid=job.uid))
    return actions


def _is_blocked(world: World) -> bool:
    """Tell whether something still lives that must not live beside what comes next."""
    keep, attempt = expected(world), world.trial.status.attempt
    frozen = world.trial.status.submission is not None

    def blocks(pod: PodView) -> bool:
        # Evaluation never starts while the development sandbox lives.
        return pod.name not in keep and (pod.attempt < attempt or (frozen and pod.role == "sandbox"))

    jobs = any(job.name not in keep and job.attempt < attempt for job in world.children.jobs.values())
    shards = any(pod.attempt < attempt for pod in world.children.shard_pods.values())
    return jobs or shards or any(blocks(pod) for pod in world.children.pods.values())


def _backoff(world: World) -> float:
    status = world.trial.status
    if not status.attempts or status.attempts[-1].number != status.attempt - 1:
        return 0.0
    failed = MOMENT.validate_python(status.attempts[-1].at)
    due = failed + timedelta(seconds=delay(status.failures, world.settings.retry_seconds))
    return (due - world.now).total_seconds()


def _end(world: World, settlement: Settlement) -> list[Action]:
    """End without a verdict: first the pods, then the hub, then the status."""
    if world.children.pods or world.children.jobs or world.children.shard_pods:
        return _deletes(world, keep=frozenset())
    status = world.trial.status
    register = [] if world.registered == (status.attempt, status.sandbox) else [Register()]
    return [*register, Settle(settlement=settlement)]


def _errored(world: World) -> Settlement:
    status = world.trial.status
    last = status.attempts[-1]
    return Settlement(
        phase="Errored",
        failure_class=last.failure_class,
        reason=last.reason,
        message=last.message,
        attempts=status.attempts,
        failures=status.failures,
        not_formal=status.not_formal,
    )


def _finished(world: World) -> list[Action]:
    """Clean up after the end, or start again when `proctor retry` asks for it."""
    trial = world.trial
    if trial.status.phase is Phase.ERRORED and trial.spec.retries > trial.status.retried:
        hold: list[Action] = [] if trial.meta.finalized else [Finalize(held=True)]
        retried = Emit(reason="Retried", message="the trial starts again")
        return [*hold, SetStatus(status=again(trial.status, trial.spec.retries)), retried]
    if world.children.pods or world.children.jobs:
        return _deletes(world, keep=frozenset())
    if not trial.meta.finalized:
        return []
    return [*_leftovers(world), Finalize(held=False)]


def _leftovers(world: World) -> list[Action]:
    """Delete the Secrets and the policy of a finished trial; its tokens are dead already."""
    trial, recorded = world.trial, world.trial.status.pods
    if trial.status.attempt == 0:
        return []
    uids = {**recorded, **world.made}
    names = {name for name in uids if name.endswith("-secrets")} | {trial.secrets}
    secrets = [Delete(kind=Kind.Secret, name=name, uid=uids.get(name, "")) for name in sorted(names)]
    return [*secrets, Delete(kind=Kind.NetworkPolicy, name=trial.policy, uid=uids.get(trial.policy, ""))]


def _teardown(world: World) -> list[Action]:
    """Let a deleted trial go: its pods first; the hub is told, but never waited for beyond our patience."""
    trial = world.trial
    if world.children.pods or world.children.jobs or world.children.shard_pods:
        return _deletes(world, keep=frozenset())
    if not trial.meta.finalized:
        return []
    release = Finalize(held=False)
    asked = trial.meta.deleting or world.now
    patient = world.now < asked + timedelta(seconds=world.settings.settle_patience_seconds)
    if trial.status.phase in FINISHED or trial.status.attempt == 0 or not patient:
        return [release]
    settlement = Settlement(phase="Cancelled", reason="Deleted", message="the trial was deleted before it ended")
    return [Settle(settlement=settlement), release]
