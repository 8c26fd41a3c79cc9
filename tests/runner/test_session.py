"""A session and its sandbox, all real processes: killed and resumed, and every turn happens once."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.clock import parse
from runner.conversation import Say
from runner.user import AgentContainer
from tests.runner.builders import Pod, Trial, add_package, agent_of, operations_of, trial_spec
from tests.runner.fakes import FakeHub
from tests.runner.processes import Box
from wire.digest import of_bytes
from wire.journal import ConversationEnded, GateReported, GateStep, TurnEvent, TurnSealed
from wire.run import AgentSpec, Limits
from wire.trial import EndReason

SLOW = ["sh", "-c", "echo x >> ../starts; seq 1 2000; sleep 2; seq 1 2000; echo built > built"]


@pytest.fixture
def make(hub: FakeHub, own_sandbox: Box, tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    """Make the trial of an arm; its pods end with the test."""
    made: list[Trial] = []

    def trial(agent: AgentSpec, limits: Limits | None = None, install: list[str] | None = None) -> Trial:
        manifest = add_package(hub, tmp_path / "package", operations_of(install))
        made.append(Trial(hub, own_sandbox, trial_spec(manifest, agent, limits), tmp_path))
        return made[-1]

    yield trial
    for one in made:
        for pod in one.pods:
            pod.kill()


def until(is_so: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def starts(trial: Trial) -> int:
    """Return how often the turn's command was started."""
    found = trial.box.folder / "starts"
    return found.read_text().count("x") if found.exists() else 0


def ended_well(pod: Pod) -> None:
    """Both containers exit with 0."""
    assert pod.user.wait(60) == 0, pod.user.output()
    assert pod.agent.wait(15) == 0, pod.agent.output()


def numbers(hub: FakeHub) -> list[int]:
    """Return the numbers of the events that are stored."""
    return sorted(entry.sequence for entry in hub.of_kind("turnEvent") if isinstance(entry, TurnEvent))


def test_an_oracle_delivers_the_solution(make: Callable[..., Trial], hub: FakeHub) -> None:
    """Two turns, each sealed with its checkpoint, then the candidate without what the task leaves out."""
    trial = make(agent_of("oracle"))
    pod = trial.session()
    ended_well(pod)
    outcome = pod.outcome("user")
    candidate = hub.archives[str(outcome["candidate"])]
    assert (outcome["outcome"], outcome["conversation"], "endReason" in outcome) == ("delivered", 1, False)
    assert b'print("right")' in candidate
    assert b"contract" in candidate
    assert b"deps/when" not in candidate
    turns = [entry for entry in hub.of_kind("turnSealed") if isinstance(entry, TurnSealed)]
    assert [turn.turn for turn in turns] == [1, 2]
    assert all(turn.checkpoint in hub.archives for turn in turns)
    assert b"deps/when" in hub.archives[turns[0].checkpoint]
    assert [entry.kind for entry in hub.of_kind("canaries")] == ["canaries"]
    assert starts(trial) == 1


def test_a_mutant_delivers_the_solution_with_its_mistake(make: Callable[..., Trial], hub: FakeHub) -> None:
    """The patch is applied before anything reaches the sandbox."""
    pod = make(agent_of("mutant", "wrong")).session()
    ended_well(pod)
    candidate = hub.archives[str(pod.outcome("user")["candidate"])]
    assert b'print("wrong")' in candidate
    assert b'print("right")' not in candidate


def test_nop_delivers_the_scaffold(make: Callable[..., Trial], hub: FakeHub) -> None:
    """Nothing was run."""
    trial = make(agent_of("nop"))
    pod = trial.session()
    ended_well(pod)
    assert b'print("scaffold")' in hub.archives[str(pod.outcome("user")["candidate"])]
    assert starts(trial) == 0


@pytest.mark.parametrize("mutant", ["bad", "unknown"])
def test_a_mutant_that_does_not_apply_is_the_tasks_fault(make: Callable[..., Trial], mutant: str) -> None:
    """Both containers say so; nothing is delivered."""
    pod = make(agent_of("mutant", mutant)).session()
    assert pod.user.wait(60) == 64
    assert pod.agent.wait(15) == 64
    assert pod.outcome("user")["reason"] == pod.outcome("agent")["reason"] == "PackageMalformed"


def test_a_session_killed_in_mid_turn_repeats_nothing(make: Callable[..., Trial], hub: FakeHub) -> None:
    """A new session joins the running command: one start, one set of rows, one sealed turn."""
    trial = make(agent_of("oracle"), install=SLOW)
    first = trial.session(attempt=1)
    until(lambda: len(numbers(hub)) >= 2)
    first.kill()
    before = numbers(hub)
    second = trial.session(attempt=2)
    ended_well(second)
    assert starts(trial) == 1
    # 17,786 bytes of output in slots of 4,096, the command, the exit.
    assert numbers(hub) == [0, 1, 2, 3, 4, 5, 1_000_000]
    assert set(before) < set(numbers(hub))
    assert len(hub.of_kind("turnOpened")) == len(hub.of_kind("turnSealed")) == 2
    assert b"built" in hub.archives[str(second.outcome("user")["candidate"])]


def test_only_the_agent_dies_and_the_user_ends_for_a_retry(make: Callable[..., Trial]) -> None:
    """The operator hears of it from the user's exit code."""
    trial = make(agent_of("oracle"), install=SLOW)
    pod = trial.session()
    until(lambda: starts(trial) == 1)
    pod.agent.kill()
    assert pod.user.wait(60) == 75
    assert pod.outcome("user")["reason"] == "Unexpected"


def test_only_the_user_dies_and_the_agent_ends_by_itself(make: Callable[..., Trial]) -> None:
    """A pod without a user would wait for ever."""
    trial = make(agent_of("oracle"), install=SLOW)
    pod = trial.session(silence_seconds=2)
    until(lambda: starts(trial) == 1)
    pod.user.kill()
    assert pod.agent.wait(30) == 75


def test_an_agent_that_kills_whoever_reads_its_tree_keeps_no_checkpoint_from_being_taken(
    make: Callable[..., Trial], hub: FakeHub, own_sandbox: Box
) -> None:
    """What it left running to that end is ended, and the trial goes on: nothing is anybody else's failure."""
    kill = f"while :; do pkill -9 -f '[r]unner.tree get.*{own_sandbox.workspace}'; done"
    trial = make(agent_of("oracle"), install=["sh", "-c", f"({kill}) >/dev/null 2>&1 & sleep 0.5"])
    pod = trial.session()
    ended_well(pod)
    assert "ended" in pod.agent.output()
    turns = [entry for entry in hub.of_kind("turnSealed") if isinstance(entry, TurnSealed)]
    assert all(turn.checkpoint in hub.archives for turn in turns)


def test_a_lost_sandbox_is_told_and_the_next_one_starts_from_the_checkpoint(
    make: Callable[..., Trial], hub: FakeHub
) -> None:
    """Conversation 2 in a new sandbox: everything the sealed turns left is there again, home included."""
    trial = make(agent_of("oracle"))
    (trial.box.home / ".history").write_text("kept")
    ended_well(trial.session())
    trial.box.wipe()
    lost = trial.session(attempt=2, conversation=2, lost_seconds=0.5, first_seconds=2)
    assert lost.user.wait(60) == 75
    assert lost.outcome("user")["reason"] == "SandboxLost"
    trial.box.start()
    trial.sandbox_attempt = 3
    ended_well(trial.session(attempt=3, conversation=2))
    assert (trial.box.workspace / "app.py").read_text() == 'print("right")\n'
    assert (trial.box.workspace / "deps" / "when").exists()
    assert (trial.box.home / ".history").read_text() == "kept"
    assert starts(trial) == 1


def test_a_hub_that_is_away_delays_and_loses_nothing(make: Callable[..., Trial], hub: FakeHub) -> None:
    """The turn goes on meanwhile; the outcome is written only when everything is stored."""
    trial = make(agent_of("oracle"), install=SLOW)
    pod = trial.session()
    until(lambda: starts(trial) == 1)
    hub.is_away = True
    until(lambda: (trial.box.workspace / "built").exists())
    time.sleep(1.5)
    assert pod.user.process.poll() is None
    hub.is_away = False
    ended_well(pod)
    assert numbers(hub) == [0, 1, 2, 3, 4, 5, 1_000_000]


HUGE = ["sh", "-c", "echo x >> ../starts; truncate -s 5G huge; echo more > more"]


def test_a_workspace_that_outgrows_archives_ends_development_with_the_last_sealed_state(
    make: Callable[..., Trial], hub: FakeHub
) -> None:
    """The turn is sealed in the state before it, and that is delivered; nothing is tried for ever."""
    trial = make(agent_of("oracle"), install=HUGE)
    pod = trial.session()
    ended_well(pod)
    outcome = pod.outcome("user")
    assert outcome["endReason"] == "resourceLimit"
    assert b'print("scaffold")' in hub.archives[str(outcome["candidate"])]
    (turn,) = [entry for entry in hub.of_kind("turnSealed") if isinstance(entry, TurnSealed)]
    assert turn.rolled_back
    assert not (trial.box.workspace / "huge").exists()
    assert not (trial.box.workspace / "more").exists()


def test_a_workspace_that_outgrows_archives_after_its_turn_is_rolled_back_to_it(
    make: Callable[..., Trial], hub: FakeHub
) -> None:
    """What a process of the agent leaves between the last seal and the delivery costs development, not the trial."""
    trial = make(agent_of("oracle"))
    ended_well(trial.session())
    (trial.box.home / "huge").touch()
    os.truncate(trial.box.home / "huge", 5 << 30)
    second = trial.session(attempt=2, conversation=2)
    ended_well(second)
    outcome = second.outcome("user")
    assert (outcome["conversation"], outcome["endReason"]) == (2, "resourceLimit")
    assert outcome["candidate"] in hub.archives
    assert b'print("right")' in hub.archives[str(outcome["candidate"])]
    assert not (trial.box.home / "huge").exists()


def test_a_session_that_is_told_that_development_is_over_delivers_what_was_sealed(
    make: Callable[..., Trial], hub: FakeHub
) -> None:
    """The operator has counted sandboxes that died: the new one holds the last sealed state, and nothing runs in it."""
    trial = make(agent_of("oracle"))
    pod = trial.session(end_reason="resourceLimit")
    ended_well(pod)
    assert pod.outcome("user")["endReason"] == "resourceLimit"
    assert b'print("scaffold")' in hub.archives[str(pod.outcome("user")["candidate"])]
    assert starts(trial) == 0


def test_a_session_that_dies_while_it_rolls_back_takes_no_half_state(make: Callable[..., Trial], hub: FakeHub) -> None:
    """The next one finds the decision in the sandbox and rolls back again."""
    trial = make(agent_of("oracle"), install=HUGE)
    first = trial.session()
    client = trial.box.client()
    until(lambda: client.status("rolled-back-1") is not None)
    first.kill()
    ended_well(trial.session(attempt=2))
    assert starts(trial) == 1
    (ended,) = hub.of_kind("conversationEnded")
    assert isinstance(ended, ConversationEnded)
    assert ended.end_reason == EndReason.RESOURCE_LIMIT
    assert b'print("scaffold")' in hub.archives[ended.candidate]


def test_the_gates_report_opens_the_next_conversation(make: Callable[..., Trial], hub: FakeHub) -> None:
    """In the same sandbox, with the next turn's number."""
    trial = make(agent_of("oracle"))
    ended_well(trial.session())
    step = GateStep(name="limits", passed=False, seconds=1, output="expected 400")
    ended = next(entry for entry in hub.of_kind("conversationEnded") if isinstance(entry, ConversationEnded))
    gate = GateReported(conversation=1, attempt=1, candidate=ended.candidate, passed=False, steps=[step], at=ended.at)
    hub.rows[gate.key()] = gate
    pod = trial.session(conversation=2)
    ended_well(pod)
    opened = hub.rows["turn/3/1/opened"].dump()
    assert "expected 400" in str(opened["message"])
    assert pod.outcome("user")["conversation"] == 2


def test_a_delivery_that_was_only_not_told_is_told_now(make: Callable[..., Trial], hub: FakeHub) -> None:
    """A session that died after its last journal entry is not developed again."""
    trial = make(agent_of("oracle"))
    first = trial.session()
    ended_well(first)
    uploads = hub.uploads
    second = trial.session(attempt=2)
    ended_well(second)
    assert second.outcome("user") == first.outcome("user")
    assert (hub.uploads, starts(trial)) == (uploads, 1)


def test_the_time_limit_ends_a_turn_that_runs(make: Callable[..., Trial]) -> None:
    """What runs is ended, and the turn is over with what there is; that it reaches the limit, the next step sees."""
    trial = make(agent_of("oracle"), install=["sh", "-c", "echo half > half; sleep 300"])
    pod = trial.session()
    pod.user.kill()
    status = AgentContainer(pod.port).take_turn(Say(1, "hurry", 2.0), 1)
    assert "exited with 137" in status.reply
    assert (parse(str(status.ended_at)) - parse(status.started_at)).total_seconds() >= 1.5
    assert (trial.box.workspace / "half").exists()


def test_a_spoilt_part_is_refused(make: Callable[..., Trial], hub: FakeHub) -> None:
    """One flipped byte in what the hub sends is noticed by whoever was told the digest."""
    trial = make(agent_of("oracle"))
    hub.spoil = True
    pod = trial.session()
    assert pod.user.wait(60) == 75
    assert pod.outcome("user")["reason"] == "DigestMismatch"
    assert of_bytes(hub.parts["user"]) == (hub.manifest.parts["user"] if hub.manifest else None)
