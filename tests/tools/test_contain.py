"""`tools/contain.py` ends what a command leaves behind, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CONTAIN = [sys.executable, str(Path(__file__).parents[2] / "tools" / "contain.py")]
# Leaves the session, its parent and the terminal, as a daemon does, and does not care for SIGTERM.
DAEMON = "setsid sh -c 'trap \"\" TERM; echo $$ > {file}; while :; do sleep 0.1; done' </dev/null >/dev/null 2>&1 &"


def pid_in(file: Path) -> int:
    """Wait for a process to say who it is."""
    limit = time.monotonic() + 20
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return int(file.read_text())


def test_exit_codes_come_through() -> None:
    """The command's own code is the answer, a signal's as a shell counts."""
    assert subprocess.run([*CONTAIN, "sh", "-c", "exit 7"], check=False).returncode == 7
    assert subprocess.run([*CONTAIN, "sh", "-c", "kill -9 $$"], check=False).returncode == 137


def test_a_daemon_ends_with_the_command_that_left_it(tmp_path: Path) -> None:
    """Even what left its session and is deaf is found, since orphans are handed up to us."""
    file = tmp_path / "pid"
    script = DAEMON.format(file=file) + f"\nuntil [ -s {file} ]; do sleep 0.05; done"
    environment = {**os.environ, "CONTAIN_PATIENCE_SECONDS": "1"}  # noqa: TID251 handed on to the program
    done = subprocess.run([*CONTAIN, "sh", "-c", script], check=False, env=environment)
    assert done.returncode == 0
    assert not Path(f"/proc/{pid_in(file)}").exists()


def test_what_others_started_lives_on(tmp_path: Path) -> None:
    """Only descendants are ended."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        subprocess.run([*CONTAIN, "true"], check=True)
        assert bystander.poll() is None
        bystander.kill()


def test_an_ended_container_ends_its_command(tmp_path: Path) -> None:
    """SIGTERM to the container reaches everything below it."""
    file = tmp_path / "pid"
    with subprocess.Popen([*CONTAIN, "sh", "-c", f"echo $$ > {file}; exec sleep 60"]) as container:
        inner = pid_in(file)
        container.send_signal(signal.SIGTERM)
        assert container.wait(20) == 143
    assert not Path(f"/proc/{inner}").exists()
