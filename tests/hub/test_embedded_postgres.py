"""The embedded PostgreSQL: it starts anywhere, is joined instead of doubled, and ends with whoever started it."""

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from proctor.local.postgres import Postgres
from tests.hub.builders import wait_until
from wire.errors import InvalidInput

LAUNCHER = """
import sys, time
from pathlib import Path
from proctor.local.postgres import Postgres
server = Postgres(folder=Path(sys.argv[1]), durable=False)
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and waits to be collected does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_it_starts_where_only_we_may_enter_and_stops_without_a_trace(tmp_path: Path) -> None:
    """The folder may be closed to everyone else, as a home is; what was written is there after a restart."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = Postgres(folder=closed / "pg", durable=False)
    for expected in (0, 1):
        server.start()
        pid = server.pid
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (number integer)")
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (expected,)
            connection.execute("INSERT INTO kept VALUES (1)")
        server.stop()
        assert server.pid is None
        assert pid is not None
        assert not is_alive(pid)


def test_a_second_one_joins_the_first(tmp_path: Path) -> None:
    """Two programs on one folder share one server, and only its owner stops it."""
    owner, guest = (Postgres(folder=tmp_path / "pg", durable=False) for _ in range(2))
    owner.start()
    guest.start()
    assert owner.pid == guest.pid
    guest.stop()
    with psycopg.connect(owner.url) as connection:
        assert connection.execute("SHOW server_version_num").fetchone() == ("160014",)
    owner.stop()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_launcher(tmp_path: Path, how: signal.Signals) -> None:
    """A launcher that is killed leaves no server behind, and the next one starts on the same folder."""
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "pg")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        assert is_alive(pid)
        launcher.send_signal(how)
    wait_until(lambda: not is_alive(pid))
    server = Postgres(folder=tmp_path / "pg", durable=False)
    server.start()
    server.stop()


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """Unix sockets have short names; say so instead of failing in the server's log."""
    with pytest.raises(InvalidInput, match="too long"):
        Postgres(folder=tmp_path / ("x" * 100)).start()
