"""Commands start once, keep their output and exit codes, and end when they must: against a real daemon."""

import asyncio
import os
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from runner.account import Account
from runner.commands import OUTPUT_LIMIT_BYTES, Commands, died_of_memory
from runner.errors import Conflict, Missing, SandboxLost, Unprocessable
from tests.runner.processes import BEARER, Box
from wire.errors import Refused
from wire.sandbox import CommandSpec, CommandState


def sh(line: str, *, cwd: str = "/", timeout_seconds: float | None = None, **env: str) -> CommandSpec:
    """Make a shell command."""
    return CommandSpec(argv=["sh", "-c", line], cwd=cwd, timeout_seconds=timeout_seconds, env=env)


def test_a_command_starts_once_however_often_and_at_once_it_is_sent(sandbox: Box) -> None:
    """Forty requests at the same moment from many connections: one start."""
    spec = sh("echo started >> starts; sleep 0.3", cwd=str(sandbox.workspace))
    clients = [sandbox.client() for _ in range(8)]
    with ThreadPoolExecutor(40) as pool:
        statuses = list(pool.map(lambda number: clients[number % 8].put_command("once", spec), range(40)))
    assert len({status.started_at for status in statuses}) == 1
    assert clients[0].wait("once").exit_code == 0
    clients[0].put_command("once", spec)
    assert (sandbox.workspace / "starts").read_text() == "started\n"


def test_an_id_means_one_command_for_ever(sandbox: Box) -> None:
    """Another command under a used id is a conflict, and the first is left alone."""
    daemon = sandbox.client()
    daemon.run("mine", sh("exit 3"))
    with pytest.raises(Conflict):
        daemon.put_command("mine", sh("exit 4"))
    assert daemon.wait("mine").exit_code == 3


def test_output_is_read_from_any_offset_as_often_as_wanted(sandbox: Box) -> None:
    """A reader that comes back reads on where it was, and nothing is lost or doubled."""
    daemon = sandbox.client()
    daemon.put_command("talk", sh("for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done"))
    whole = b"".join(daemon.follow("talk"))
    assert whole == b"".join(b"line %d\n" % i for i in range(1, 6))
    for offset in (0, 1, 7, len(whole)):
        assert sandbox.client().output("talk", offset) == (whole[offset:], True)


def test_long_polling_answers_as_soon_as_there_is_something(sandbox: Box) -> None:
    """A wait ends with the first byte or the end, not with the time that was allowed."""
    daemon = sandbox.client()
    daemon.put_command("slow", sh("sleep 0.4; echo hello; sleep 0.4; exit 7"))
    begun = time.monotonic()
    assert daemon.output("slow", 0, 20)[0] == b"hello\n"
    assert daemon.wait("slow").exit_code == 7
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("line", "code", "signal"),
    [
        pytest.param("exit 5", 5, None, id="exit"),
        pytest.param("kill -TERM $$", 143, 15, id="signal"),
        pytest.param("exec nonsense", 127, None, id="no such program"),
    ],
)
def test_exit_codes_are_those_of_a_shell(sandbox: Box, line: str, code: int, signal: int | None) -> None:
    """128 + n for a signal; 127 for what cannot be found."""
    status = sandbox.client().run(f"end-{code}", sh(line)).status
    assert (status.exit_code, status.signal, status.memory) == (code, signal, False)


def test_a_timeout_kills_the_whole_group(sandbox: Box) -> None:
    """Children of the command die with it."""
    daemon = sandbox.client()
    line = "(sleep 1; touch survived) & sleep 60"
    status = daemon.run("late", sh(line, cwd=str(sandbox.workspace), timeout_seconds=0.3)).status
    assert (status.exit_code, status.timed_out, status.memory) == (137, True, False)
    time.sleep(1.2)
    assert not (sandbox.workspace / "survived").exists()


def test_signals_reach_the_group_and_an_ended_command_none(sandbox: Box) -> None:
    """A stopped worker stays stopped until it is continued; a signal to the dead is no error."""
    daemon = sandbox.client()
    spec = sh("trap 'exit 9' TERM; while true; do sleep 0.05; done")
    daemon.put_command("work", spec)
    time.sleep(0.3)
    daemon.signal("work", "SIGSTOP")
    daemon.signal("work", "SIGTERM")
    assert daemon.wait("work", 0.5).state is CommandState.RUNNING
    daemon.signal("work", "SIGCONT")
    assert daemon.wait("work").exit_code == 9
    daemon.signal("work", "SIGKILL")
    with pytest.raises(Unprocessable):
        daemon.signal("work", "SIGNONSENSE")


def test_stop_ends_every_process_of_the_user(sandbox: Box) -> None:
    """Also what has left the command's process group."""
    daemon = sandbox.client()
    line = "(while true; do touch alive; sleep 0.1; done) & trap '' TERM; sleep 60"
    daemon.put_command("server", sh(line, cwd=str(sandbox.workspace)))
    if sandbox.uid is not None:
        daemon.put_command("escaped", sh("setsid sh -c 'while true; do touch alive; sleep 0.1; done' & sleep 60"))
    time.sleep(0.3)
    daemon.stop()
    status = daemon.wait("server")
    assert (status.exit_code, status.memory) == (137, False)
    (sandbox.workspace / "alive").unlink()
    time.sleep(0.4)
    assert not (sandbox.workspace / "alive").exists()


def test_a_command_ends_although_its_leftovers_hold_its_output(sandbox: Box) -> None:
    """A server that a command starts in the background does not keep the command from ending."""
    begun = time.monotonic()
    done = sandbox.client().run("background", sh("sleep 30 & echo started"))
    assert done.tail == b"started\n"
    assert time.monotonic() - begun < 10


def test_a_command_sees_nothing_of_the_daemon(sandbox: Box) -> None:
    """No environment, no open files, no secrets, and where the user is another one not its spool either."""
    line = f"env; ls -l /proc/self/fd; umask; cat {sandbox.folder}/spool/*; cat {sandbox.folder}/secrets/daemon"
    (sandbox.folder / "secrets" / "daemon").chmod(0o400)
    text = sandbox.client().run("look", sh(line, EXTRA="given")).tail.decode()
    assert "PROCTOR_" not in text
    assert "EXTRA=given" in text
    assert f"HOME={sandbox.home}" in text
    assert "socket:" not in text
    assert "0022" in text
    if sandbox.uid is not None:
        assert text.count("Permission denied") >= 1
        assert BEARER not in text


def test_output_is_bounded(sandbox: Box) -> None:
    """A command that never stops talking fills no disk; it is not stopped for it."""
    daemon = sandbox.client()
    status = daemon.run("flood", sh(f"head -c {OUTPUT_LIMIT_BYTES + 5_000_000} /dev/zero")).status
    assert status.exit_code == 0
    assert OUTPUT_LIMIT_BYTES <= status.output_bytes < OUTPUT_LIMIT_BYTES + 1000
    assert b"not kept" in daemon.output("flood", OUTPUT_LIMIT_BYTES)[0]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(CommandSpec(argv=["a\0b"], cwd="/"), id="NUL in a word"),
        pytest.param(CommandSpec(argv=["true"], cwd="/", env={"A=B": "c"}), id="equals sign in a name"),
    ],
)
def test_a_command_that_cannot_be_one_is_refused(sandbox: Box, spec: CommandSpec) -> None:
    """The refusal is clear and takes no id."""
    daemon = sandbox.client()
    with pytest.raises(Unprocessable):
        daemon.put_command("bad", spec)
    assert daemon.status("bad") is None


def test_unknown_commands_are_missing(sandbox: Box) -> None:
    """Asking for what was never started says so at once."""
    with pytest.raises(Missing):
        sandbox.client().wait("never")


@pytest.mark.parametrize("path", ["/v1/canaries", "/v1/commands/x", "/v1/tree?root=/", "/v1/digest?root=/", "/nowhere"])
def test_nothing_but_health_is_answered_without_the_bearer(sandbox: Box, path: str) -> None:
    """The agent can reach the port; it does not hold the bearer."""
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": BEARER}):
        assert httpx2.get(f"{sandbox.url}{path}", headers=headers).status_code == 401
    with pytest.raises(Refused):
        sandbox.client("wrong").stop()


def test_a_broken_connection_repeats_nothing(sandbox: Box) -> None:
    """A client that dies while it waits leaves the command alone; the next one joins it."""
    spec = sh("echo begun >> begun; sleep 0.8; echo over", cwd=str(sandbox.workspace))
    body = spec.model_dump_json(by_alias=True)
    with socket.create_connection(("127.0.0.1", sandbox.port)) as line:
        head = f"PUT /v1/commands/long HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BEARER}"
        line.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        time.sleep(0.2)  # no answer is read
    done = sandbox.client().run("long", spec)
    assert (done.tail, done.status.exit_code) == (b"over\n", 0)
    assert (sandbox.workspace / "begun").read_text() == "begun\n"


def test_a_silent_daemon_is_a_lost_sandbox(own_sandbox: Box) -> None:
    """Once patience is over the client says so; before that it keeps asking."""
    daemon = own_sandbox.client(silence_seconds=0.5)
    daemon.run("before", sh("true"))
    assert own_sandbox.daemon is not None
    own_sandbox.daemon.kill()
    begun = time.monotonic()
    with pytest.raises(SandboxLost):
        daemon.status("before")
    assert 0.4 < time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("code", "was_ended", "kills", "expected"),
    [
        pytest.param(137, False, (0, 1), True, id="the kernel counted one"),
        pytest.param(1, False, (0, 1), True, id="a child was killed and the command failed by it"),
        pytest.param(0, False, (0, 1), False, id="it went on without the child"),
        pytest.param(137, False, (1, 1), False, id="SIGKILL by the command's own doing"),
        pytest.param(137, False, (None, None), True, id="no counter, unexplained SIGKILL"),
        pytest.param(1, False, (None, None), False, id="no counter, ordinary failure"),
        pytest.param(137, True, (0, 1), False, id="we killed it"),
    ],
)
def test_death_by_memory_is_told_from_other_ends(
    code: int, was_ended: bool, kills: tuple[int | None, int | None], expected: bool
) -> None:
    """The kernel's counter decides where it can be read."""
    assert died_of_memory(code, was_ended=was_ended, kills=kills) is expected


def test_a_commands_folder_is_entered_as_the_user(root_sandbox: Box) -> None:
    """A folder that is closed to the user stays closed: the daemon does not go there first."""
    done = root_sandbox.client().run("closed", sh("pwd", cwd=str(root_sandbox.folder / "spool")))
    assert done.status.exit_code == 126


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("commands/known/output?offset=inf", id="an offset without end"),
        pytest.param("commands/known/output?offset=nan", id="an offset that is no number"),
        pytest.param("commands/known?wait=nan", id="a wait that is no number"),
        pytest.param("digest?root=/&exclude=a%00b", id="a path with a NUL"),
    ],
)
def test_queries_that_mean_nothing_get_one_clear_error(sandbox: Box, query: str) -> None:
    """And no crash."""
    sandbox.client().run("known", CommandSpec(argv=["true"], cwd="/"))
    headers = {"Authorization": f"Bearer {BEARER}"}
    answer = httpx2.get(f"{sandbox.url}/v1/{query}", headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (422, "InvalidInput")


def test_processes_end_also_when_there_is_room_for_no_further_one(root_sandbox: Box) -> None:
    """An agent at its limit of processes leaves none for ending them; one at a time they end all the same."""
    account = Account(uid=root_sandbox.uid, environment={"PATH": os.defpath})
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    with Path(os.devnull).open("wb") as output:
        bomb = [account.start(["sleep", "99"], "/", {}, output.fileno()) for _ in range(5)]
    time.sleep(0.3)
    resource.setrlimit(resource.RLIMIT_NPROC, (2, before[1]))
    try:
        with pytest.raises(OSError, match="temporarily"):
            account.start(["true"], "/", {}, 2)
        account.end_all([])
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)
    assert [process.wait(5) for process in bomb] == [-9] * 5


def test_processes_end_also_when_there_is_room_for_no_further_thread(tmp_path: Path) -> None:
    """Threads count against the agent's limit of processes too."""

    async def start_and_stop() -> bool:
        commands = Commands(Account(uid=None, environment={"PATH": os.defpath}), tmp_path, lambda: None)
        started = commands.start("hog", CommandSpec(argv=["sleep", "99"], cwd="/"))
        without_threads = ThreadPoolExecutor(1)
        without_threads.shutdown()
        asyncio.get_running_loop().set_default_executor(without_threads)
        await commands.stop()
        await started.wait_until(lambda: not started.is_running, 5)
        return started.is_running

    assert not asyncio.run(start_and_stop())
