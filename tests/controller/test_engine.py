"""Whole lives of runs and trials over the memory cluster: what the operator promises, from the outside."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeAlias

import pytest

from controller.cluster import Kind, Object, Rejected
from tests.controller.fakes import (
    CANDIDATE,
    NAMESPACE,
    PREPARED,
    RESULT,
    Script,
    ended,
    obedient,
    role,
    run,
    said,
    waiting,
)
from tests.controller.lab import Lab, ready
from wire.journal import Settlement
from wire.names import LABEL_ATTEMPT
from wire.outcome import Checked, Delivered, DriverFailure, Evaluated, Failed
from wire.trial import EndReason

Story: TypeAlias = Callable[[Lab], Awaitable[None]]


def tell(story: Story, script: Script = obedient) -> None:
    """Tell a story in a lab with a started operator, and stop it in order."""

    async def whole() -> None:
        lab = await ready(script)
        await story(lab)
        await lab.stop()

    asyncio.run(whole())


def attempt(pod: Object) -> int:
    return int(pod["metadata"]["labels"][LABEL_ATTEMPT])


def develops(lab: Lab, number: int) -> bool:
    """Tell whether the trial develops in this attempt."""
    return lab.phase() == "Developing" and bool(lab.trial()["status"]["attempt"] == number)


def test_a_trial_is_developed_checked_evaluated_and_graded() -> None:
    """One trial without faults ends graded, leaves no pod behind, and costs at most 36 calls."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        await lab.settle_down()
        status = lab.trial()["status"]
        assert (status["phase"], status["attempt"], status["failures"]) == ("Graded", 1, 0)
        assert status["result"] == RESULT.dump()
        assert status["submission"] == {
            "digest": CANDIDATE,
            "prepared": PREPARED,
            "gatePassed": True,
            "endReason": "gatePassed",
        }
        assert lab.left() == {"BenchmarkRun quick", f"Trial {lab.trial()['metadata']['name']}"}
        assert lab.trial()["metadata"].get("finalizers") in (None, [])
        calls = [what for what in lab.killer.log if not what.startswith("hub")]
        assert len(calls) <= 36, calls

    tell(story)


def test_no_evaluator_starts_while_the_development_sandbox_lives() -> None:
    """The sandbox is gone before the first pod of evaluation is made."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        log = lab.killer.log
        gone = next(i for i, what in enumerate(log) if what.startswith("delete Pod") and what.endswith("-sandbox"))
        first = next(i for i, what in enumerate(log) if what.startswith("create Pod") and "-sut-e" in what)
        assert gone < first

    tell(story)


def test_a_lost_session_alone_leaves_the_sandbox_running() -> None:
    """What survives a failure is kept: a new session, the same sandbox, one failure of infrastructure recorded."""

    def script(pod: Object) -> list[Object]:
        if role(pod) == "session" and attempt(pod) == 1:
            return [ended("agent"), ended("user", 137, reason="Error")]
        return obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["attempt"], status["sandbox"], status["failures"]) == (2, 1, 1)
        assert (status["attempts"][0]["failureClass"], status["attempts"][0]["reason"]) == (
            "infrastructure",
            "DriverExited137",
        )
        assert len([name for name in lab.kubelet.uids if name.endswith("-sandbox")]) == 1

    tell(story, script)


def test_a_lost_sandbox_takes_its_session_along() -> None:
    """A deleted sandbox is noticed by a live look, and both pods are new in the next attempt."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" and attempt(pod) == 1 else obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Developing")
        sandbox = next(pod for pod in lab.all(Kind.Pod) if role(pod) == "sandbox")
        lab.cluster.objects.delete(Kind.Pod, sandbox)
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["attempt"], status["sandbox"], status["attempts"][0]["reason"]) == (2, 2, "PodLost")
        assert lab.kubelet.most_attempts == 1

    tell(story, script)


@pytest.mark.parametrize("ends", ["ooo", "iiioiioo"])
def test_three_sandboxes_in_a_row_that_died_of_memory_are_a_limit_and_graded(ends: str) -> None:
    """Each is followed by a fresh one from the last checkpoint; lost sessions (i) between neither count nor forgive."""

    def script(pod: Object) -> list[Object]:
        env = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        if role(pod) != "session":
            return obedient(pod)
        if "PROCTOR_END_REASON" not in env:
            return []
        delivered = Delivered(conversation=1, candidate=CANDIDATE, end_reason=EndReason(env["PROCTOR_END_REASON"]))
        return [ended("user", message=said(delivered)), ended("agent")]

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        for number, end in enumerate(ends, 1):
            await lab.until(partial(develops, lab, number))
            pods = {role(pod): pod for pod in lab.all(Kind.Pod)}
            if end == "i":
                lab.cluster.objects.delete(Kind.Pod, pods["session"])
            else:
                boxes = [ended("sandbox", 137, reason="OOMKilled")]
                status = {"phase": "Failed", "containerStatuses": boxes}
                lab.cluster.objects.set_status(Kind.Pod, pods["sandbox"], status)
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["phase"], status["submission"]["endReason"]) == ("Graded", "resourceLimit")
        assert status["failures"] == len(ends)
        assert [entry["failureClass"] for entry in status["attempts"]].count("agent") == 3

    tell(story, script)


def env_of(pod: Object) -> dict[str, str]:
    """Return what a pod's first container is told."""
    return {entry["name"]: str(entry.get("value")) for entry in pod["spec"]["containers"][0]["env"]}


def tries(lab: Lab, driver: str, number: int) -> bool:
    """Tell whether this attempt's driver, which is to use its sut, is there and recorded."""
    there = [pod for pod in lab.all(Kind.Pod) if role(pod) == driver and attempt(pod) == number]
    is_recorded = lab.phase() in ("Checking", "Evaluating")
    return is_recorded and any("PROCTOR_SUT_DEATH" not in env_of(pod) for pod in there)


def end_sut(lab: Lab, end: str) -> None:
    """Let a sut go over its memory (o), or delete it as a lost node does (i)."""
    sut = next(pod for pod in lab.all(Kind.Pod) if role(pod) == "sut")
    if end == "i":
        lab.cluster.objects.delete(Kind.Pod, sut)
        return
    boxes = [ended("sandbox", 137, reason="OOMKilled")]
    lab.cluster.objects.set_status(Kind.Pod, sut, {"phase": "Failed", "containerStatuses": boxes})


def test_a_submission_that_kills_every_sut_fails_its_gates_and_is_graded() -> None:
    """Three deaths for each of two candidates, three in evaluation, lost suts (i) between: a verdict all the same."""
    told: list[str] = []

    def script(pod: Object) -> list[Object]:
        env = env_of(pod)
        if role(pod) == "session":
            return obedient(pod)
        if "PROCTOR_SUT_DEATH" not in env:
            return []
        told.append(f"{role(pod)} {env['PROCTOR_SUT_DEATH']}")
        if role(pod) == "evaluate":
            return obedient(pod)
        checked = Checked(conversation=int(env["PROCTOR_CONVERSATION"]), candidate=CANDIDATE, passed=False)
        return [ended("gate", message=said(checked))]

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(limits={"gateAttempts": 2}))
        for number, end in enumerate("ooio" + "ooo" + "oioio", 1):
            driver = "gate" if number <= 7 else "evaluate"
            await lab.until(partial(tries, lab, driver, number))
            end_sut(lab, end)
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["phase"], status["failures"], status["submission"]["gatePassed"]) == ("Graded", 12, False)
        assert told[:3] == ["gate SutOutOfMemory"] * 2 + ["evaluate SutOutOfMemory"]
        assert {stage: len(deaths) for stage, deaths in status["sutDeaths"].items()} == {
            "Checking(1)": 3,
            "Checking(2)": 3,
            "Evaluating": 3,
        }

    tell(story, script)


def test_a_lost_shard_is_evaluated_again_on_fresh_pods() -> None:
    """A sut that is deleted during evaluation costs an attempt and no verdict."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "evaluate" and attempt(pod) == 1 else obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Evaluating")
        sut = next(pod for pod in lab.all(Kind.Pod) if pod["metadata"]["name"].endswith("sut-e1"))
        lab.cluster.objects.delete(Kind.Pod, sut)
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["phase"], status["attempt"], status["rounds"]) == ("Graded", 2, 1)
        assert lab.trial()["status"]["submission"]["digest"] == CANDIDATE

    tell(story, script)


def test_unresolved_cases_are_run_again_twice_at_most() -> None:
    """Each further round has pods of its own and is no failure."""

    def script(pod: Object) -> list[Object]:
        if role(pod) != "evaluate":
            return obedient(pod)
        shard = next(
            int(e["value"]) for e in pod["spec"]["containers"][0]["env"] if e["name"] == "JOB_COMPLETION_INDEX"
        )
        return [ended("evaluator", message=said(Evaluated(shard=shard, submission=CANDIDATE, unresolved=1)))]

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["attempt"], status["rounds"], status["failures"]) == (3, 3, 0)

    tell(story, script)


@pytest.mark.parametrize(
    ("limit", "passes", "reason", "conversations"),
    [
        pytest.param(EndReason.TURN_LIMIT, False, "turnLimit", 1, id="a limit, the gate fails"),
        pytest.param(EndReason.TIME_LIMIT, True, "timeLimit", 1, id="a limit, the gate passes"),
        pytest.param(None, False, "gateLimit", 2, id="the gate fails as often as it may"),
    ],
)
def test_a_limit_freezes_the_last_state(limit: EndReason | None, passes: bool, reason: str, conversations: int) -> None:
    """What a limit ends is graded, with the gate's word on it."""

    def script(pod: Object) -> list[Object]:
        number = int(pod["metadata"]["name"].rsplit("-", 1)[1]) if role(pod) in ("session", "gate") else 0
        if role(pod) == "session":
            delivered = Delivered(conversation=number, candidate=CANDIDATE, end_reason=limit)
            return [ended("agent"), ended("user", message=said(delivered))]
        if role(pod) == "gate":
            return [ended("gate", message=said(Checked(conversation=number, candidate=CANDIDATE, passed=passes)))]
        return obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(limits={"gateAttempts": 2}))
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert status["submission"]["endReason"] == reason
        assert status["submission"]["gatePassed"] is passes
        assert status["conversation"] == conversations

    tell(story, script)


def test_a_fault_of_the_task_ends_the_trial_at_once_and_a_retry_starts_it_again() -> None:
    """No further attempt helps; `proctor retry` raises spec.retries, and the trial goes on from Pending."""

    def script(pod: Object) -> list[Object]:
        if role(pod) == "session" and attempt(pod) == 1:
            failed = Failed(reason=DriverFailure.PACKAGE_MALFORMED, message="scenario.toml: opening is missing")
            return [ended("agent"), ended("user", 64, said(failed), "Error")]
        return obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Failed")
        await lab.settle_down()
        status = lab.trial()["status"]
        assert (status["phase"], status["attempt"], status["attempts"][0]["failureClass"]) == ("Errored", 1, "task")
        assert lab.condition("Failed")["reason"] == "TrialsErrored"
        lab.cluster.objects.patch(Kind.Trial, lab.trial(), {"spec": {"retries": 1}})
        await lab.until(lambda: lab.run_phase() == "Complete")
        assert lab.trial()["status"]["attempt"] == 2
        assert [s.phase for stored in lab.hub.settlements.values() for s in stored] == ["Errored", "Graded"]

    tell(story, script)


def test_an_unknown_failure_is_retried_up_to_the_cap_and_never_graded() -> None:
    """Six failed attempts of nobody knows what: errored, class infrastructure, no verdict."""

    def script(pod: Object) -> list[Object]:
        return [ended("agent"), ended("user", 3, reason="Error")] if role(pod) == "session" else obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Failed")
        status = lab.trial()["status"]
        assert (status["phase"], status["failures"], status["attempt"]) == ("Errored", 6, 6)
        assert [entry["number"] for entry in status["attempts"]] == [2, 3, 4, 5, 6]
        assert "result" not in status

    tell(story, script)


def test_a_suspended_run_holds_no_pods_and_goes_on_afterwards() -> None:
    """Suspension gives everything back; the trial goes on under a new attempt with a new sandbox."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" and attempt(pod) == 1 else obedient(pod)

    async def story(lab: Lab) -> None:
        made = await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Developing")
        lab.edit_run(suspend=True)
        await lab.until(lambda: lab.phase() == "Pending" and not lab.all(Kind.Pod))
        await lab.until(lambda: lab.run_phase() == "Suspended")
        await lab.settle_down()
        assert lab.phase() == "Pending"
        lab.edit_run(suspend=False)
        await lab.until(lambda: lab.run_phase() == "Complete")
        status = lab.trial()["status"]
        assert (status["attempt"], status["sandbox"], status["failures"]) == (2, 2, 0)
        assert made["metadata"]["name"] == "quick"

    tell(story, script)


def test_a_suspended_arm_waits_while_the_others_run() -> None:
    """`suspendedArms` holds back one arm's trials alone."""

    async def story(lab: Lab) -> None:
        arms = [{"name": name, "agent": {"kind": "nop"}} for name in ("one", "two")]
        await lab.apply(Kind.BenchmarkRun, run(arms=arms, suspendedArms=["one"]))
        await lab.until(lambda: lab.phase(1) == "Graded")
        await lab.settle_down()
        assert lab.phase(0) in ("", "Pending")
        lab.edit_run(suspendedArms=[])
        await lab.until(lambda: lab.run_phase() == "Complete")

    tell(story)


def test_a_cancelled_run_ends_every_unfinished_trial() -> None:
    """Cancel deletes the pods, settles at the hub, and keeps what is graded."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" and pod["metadata"]["name"].split("-")[2] == "00001" else obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(repetitions=2))
        await lab.until(lambda: lab.phase(0) == "Graded" and lab.phase(1) == "Developing")
        lab.edit_run(cancel=True)
        await lab.until(lambda: lab.run_phase() == "Failed")
        await lab.settle_down()
        assert (lab.phase(0), lab.phase(1)) == ("Graded", "Cancelled")
        assert lab.all(Kind.Pod) == ()
        assert lab.condition("Failed")["reason"] == "Cancelled"

    tell(story, script)


@pytest.mark.parametrize("first", ["Graded", "Errored"])
def test_a_cancel_that_comes_after_the_settlement_changes_nothing(first: Literal["Graded", "Errored"]) -> None:
    """The hub keeps what it was told first; the trial shows that and not what was asked for later."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Developing")
        uid = lab.trial()["metadata"]["uid"]
        lab.hub.settlements[(uid, 0)].append(Settlement(phase=first))
        lab.edit_run(cancel=True)
        await lab.until(lambda: lab.phase() not in ("Developing", "Checking", "Evaluating"))
        status = lab.trial()["status"]
        assert status["phase"] == first
        assert status.get("result") == (RESULT.dump() if first == "Graded" else None)
        (condition,) = status["conditions"]
        assert (condition["status"], condition["reason"]) == ("True" if first == "Graded" else "False", first)

    tell(story, lambda pod: [] if role(pod) == "session" else obedient(pod))


def test_growing_repetitions_only_adds_trials() -> None:
    """Old verdicts stay; new cells are added behind them."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        first = lab.trial(0)
        lab.edit_run(repetitions=3)
        await lab.until(lambda: len(lab.all(Kind.Trial)) == 3 and lab.run_phase() == "Complete")
        assert lab.trial(0)["metadata"]["uid"] == first["metadata"]["uid"]
        assert lab.trial(0)["status"]["result"] == first["status"]["result"]
        assert lab.run_status()["completedIndexes"] == "0-2"

    tell(story)


def test_a_finished_trial_that_is_deleted_is_not_run_again() -> None:
    """Its verdict is in the hub; its index stays completed."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        await lab.settle_down()
        lab.cluster.objects.delete(Kind.Trial, lab.trial())
        await lab.settle_down()
        assert lab.all(Kind.Trial) == ()
        assert lab.run_status()["trials"]["graded"] == 1

    tell(story)


def test_a_run_is_deleted_after_its_time_to_live() -> None:
    """`ttlSecondsAfterFinished` counts from the end and takes everything along."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(ttlSecondsAfterFinished=0))
        await lab.until(lambda: lab.killer.log.count("delete BenchmarkRun quick") == 1 and not lab.left())
        assert len(lab.hub.settlements) == 1

    tell(story)


def test_deleting_a_run_leaves_nothing_behind_even_without_a_hub() -> None:
    """Finalizers are released when the pods are gone; a hub that is down is not waited for beyond our patience."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" else obedient(pod)

    async def story(lab: Lab) -> None:
        made = await lab.apply(Kind.BenchmarkRun, run(repetitions=2, parallelism=1))
        await lab.until(lambda: "Developing" in (lab.phase(0), lab.phase(1)))
        lab.hub.down = True
        lab.cluster.objects.delete(Kind.BenchmarkRun, made)
        await lab.settle_down()
        assert lab.all(Kind.Pod) == ()
        lab.clock.move(61)
        await lab.until(lambda: not lab.left())

    tell(story, script)


def test_a_trial_that_cannot_be_read_holds_up_no_other_run() -> None:
    """Written by another release, it stops its own run; the pump goes on admitting the trials of the others."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" and "quick" in pod["metadata"]["name"] else obedient(pod)

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Developing")
        lab.cluster.objects.patch(Kind.Trial, lab.trial(), {"status": {"fromTheFuture": 1}}, status=True)
        await lab.apply(Kind.BenchmarkRun, run("other"))
        await lab.until(lambda: lab.run_phase("other") == "Complete")

    tell(story, script)


def test_what_cannot_be_read_can_be_deleted() -> None:
    """A run and a trial that another release wrote are let go; nothing hangs on our finalizer."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "session" else obedient(pod)

    async def story(lab: Lab) -> None:
        made = await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.phase() == "Developing")
        unknown = {"status": {"fromTheFuture": 1}}
        lab.cluster.objects.patch(Kind.Trial, lab.trial(), unknown, status=True)
        run_now = lab.cluster.objects.get(Kind.BenchmarkRun, NAMESPACE, "quick")
        assert run_now is not None
        lab.cluster.objects.patch(Kind.BenchmarkRun, run_now, unknown, status=True)
        lab.cluster.objects.delete(Kind.BenchmarkRun, made)
        await lab.until(lambda: not lab.left())

    tell(story, script)


def test_an_unreachable_hub_delays_a_run_and_its_trials() -> None:
    """Before acceptance and in the middle: one condition says so, and everything goes on by itself."""

    def script(pod: Object) -> list[Object]:
        return [] if role(pod) == "gate" and attempt(pod) == 1 else obedient(pod)

    async def story(lab: Lab) -> None:
        lab.hub.down = True
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.condition("Accepted").get("reason") == "HubUnreachable")
        lab.hub.down = False
        await lab.until(lambda: lab.phase() == "Checking" and len(lab.all(Kind.Pod)) == 3)
        lab.hub.down = True
        gate = next(pod for pod in lab.all(Kind.Pod) if role(pod) == "gate")
        lab.cluster.objects.delete(Kind.Pod, gate)
        await lab.until(lambda: lab.condition("Progressing").get("reason") == "HubUnreachable")
        assert lab.trial()["status"]["attempt"] == 2
        lab.hub.down = False
        await lab.until(lambda: lab.run_phase() == "Complete")
        assert lab.condition("Progressing")["reason"] == "Finished"

    tell(story, script)


def test_an_image_that_cannot_be_pulled_is_one_condition_and_one_event_with_a_fix() -> None:
    """No attempt is lost while the kubelet goes on trying."""
    pulled = False

    def script(pod: Object) -> list[Object]:
        if role(pod) == "session" and not pulled:
            return [waiting("agent", "ImagePullBackOff", "no such image"), waiting("user", "ImagePullBackOff", "")]
        return obedient(pod)

    async def story(lab: Lab) -> None:
        nonlocal pulled
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.condition("Progressing").get("reason") == "ImagePullBackOff")
        assert "check the image's name" in lab.condition("Progressing")["message"]
        await lab.settle_down()
        events = [e for e in lab.all(Kind.Event) if e["involvedObject"]["kind"] == "BenchmarkRun"]
        assert [e["reason"] for e in events] == ["ImagePullBackOff"]
        pulled = True
        lab.kubelet.again()
        await lab.until(lambda: lab.run_phase() == "Complete")
        assert lab.trial()["status"]["failures"] == 0

    tell(story, script)


def test_an_unknown_mutant_is_one_condition_and_one_event_before_any_pod() -> None:
    """The run is refused for good, asks nobody again, and makes no trial."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(arms=[{"name": "m", "agent": {"kind": "mutant", "mutant": "lazy"}}]))
        await lab.until(lambda: lab.condition("Accepted") != {})
        await lab.settle_down()
        assert (lab.condition("Accepted")["status"], lab.condition("Accepted")["reason"]) == ("False", "UnknownMutant")
        assert [event["reason"] for event in lab.all(Kind.Event)] == ["UnknownMutant"]
        assert lab.kubelet.created == []
        assert lab.all(Kind.Trial) == ()

    tell(story)


def test_a_known_mutant_is_run() -> None:
    """The same run with a name that the package has."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(arms=[{"name": "m", "agent": {"kind": "mutant", "mutant": "lax"}}]))
        await lab.until(lambda: lab.run_phase() == "Complete")
        assert lab.trial()["spec"]["arm"]["agent"]["mutant"] == "lax"

    tell(story)


def test_a_quota_delays_a_trial_without_losing_it() -> None:
    """What the API server refuses is shown with a fix, tried again, and disturbs no other run."""
    full = True

    def admit(kind: Kind, before: Object | None, now: Object) -> None:
        labels = now["metadata"].get("labels") or {}
        if full and kind is Kind.Pod and before is None and labels.get("proctor.dev/run") == "greedy":
            raise Rejected('pods "x" is forbidden: exceeded quota: pods')

    async def story(lab: Lab) -> None:
        nonlocal full
        await lab.apply(Kind.BenchmarkRun, run("greedy"))
        await lab.until(lambda: lab.condition("Progressing", "greedy").get("reason") == "QuotaExceeded")
        assert "raise the namespace's quota" in lab.condition("Progressing", "greedy")["message"]
        await lab.apply(Kind.BenchmarkRun, run())
        await lab.until(lambda: lab.run_phase() == "Complete")
        full = False
        await lab.until(lambda: lab.run_phase("greedy") == "Complete")

    async def whole() -> None:
        lab = await ready(admit=admit)
        await story(lab)
        await lab.stop()

    asyncio.run(whole())


def test_parallelism_bounds_the_trials_that_hold_pods() -> None:
    """Never more than asked for at once, and all of them in the end."""
    most = 0

    async def story(lab: Lab) -> None:
        def holding() -> bool:
            nonlocal most
            most = max(most, sum(bool((t.get("status") or {}).get("admitted")) for t in lab.all(Kind.Trial)))
            return lab.run_phase() == "Complete"

        await lab.apply(Kind.BenchmarkRun, run(repetitions=6, parallelism=2))
        await lab.until(holding)
        assert most == 2

    tell(story)


def test_a_namesake_of_another_owner_is_never_taken_for_ours() -> None:
    """A pod with a child's name that is not ours holds the trial up, visibly, until it is gone."""

    async def story(lab: Lab) -> None:
        await lab.apply(Kind.BenchmarkRun, run(parallelism=0))
        await lab.until(lambda: len(lab.all(Kind.Trial)) == 1)
        name = f"{lab.trial()['metadata']['name']}-1-sandbox"
        stranger = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {}}
        held = await lab.apply(Kind.Pod, stranger)
        lab.kubelet.ignore(held)
        lab.edit_run(parallelism=1)
        await lab.until(lambda: lab.condition("Progressing").get("reason") == "NameTaken")
        lab.cluster.objects.delete(Kind.Pod, held)
        assert lab.all(Kind.Pod) == ()

    tell(story)
