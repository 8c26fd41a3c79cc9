"""The proxy in front of PostgreSQL: honest, lying about one write, or holding it; seen by a real client."""

import os
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from proctor.local.postgres import binaries
from runner.kit import database as databases
from runner.kit.database import Database
from runner.kit.lying import LyingProxy
from runner.postgres import Postgres


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server with the programs of the Python package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(binaries()), prepend=os.pathsep)
        with Postgres.start(tmp_path_factory.mktemp("kit") / "postgres", "127.0.0.1") as server:
            yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """A database with one empty table."""
    made = databases.create(postgres)
    with psycopg.connect(made.url, autocommit=True) as owner:
        owner.execute("CREATE TABLE t (n int)")
    yield made
    databases.drop(postgres, made)


def rows(database: Database) -> list[int]:
    """Return what is really there."""
    with psycopg.connect(database.url) as reader:
        return [n for (n,) in reader.execute("SELECT n FROM t ORDER BY n")]


def test_an_honest_proxy_counts_writes(postgres: Postgres, database: Database) -> None:
    """Transactions and single statements alike; schema changes and reads do not count."""
    proxy = LyingProxy((postgres.host, postgres.port), bind="127.0.0.1")
    with psycopg.connect(database.through(proxy.port)) as client:
        client.execute("INSERT INTO t VALUES (1)")
        client.execute("INSERT INTO t VALUES (2)")
        client.commit()
        client.execute("CREATE TABLE schema_migrations (name text)")
        client.execute("INSERT INTO t VALUES (3)")
        client.commit()
        client.autocommit = True
        client.execute("INSERT INTO t VALUES (%s)", [4])
        client.execute("SELECT 1")
    proxy.close()
    assert rows(database) == [1, 2, 3, 4]
    assert (proxy.writes, proxy.dropped) == (2, None)


@pytest.mark.parametrize(("at", "left"), [(0, [2, 3]), (1, [1, 3]), (2, [1, 2])], ids=["first", "second", "alone"])
def test_a_lie_drops_one_write_and_acknowledges_it(
    postgres: Postgres, database: Database, at: int, left: list[int]
) -> None:
    """The client sees no difference, goes on using its connection, and finds the row missing."""
    proxy = LyingProxy((postgres.host, postgres.port), at=at, bind="127.0.0.1")
    with psycopg.connect(database.through(proxy.port)) as client:
        for n in (1, 2):
            assert client.execute("INSERT INTO t VALUES (%s) RETURNING n", [n]).fetchone() == (n,)
            client.commit()
        client.autocommit = True
        assert client.execute("INSERT INTO t VALUES (%s)", [3]).statusmessage == "INSERT 0 1"
        assert client.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        assert client.execute("SELECT count(*) FROM t").fetchone() == (2,)
    proxy.close()
    assert rows(database) == left
    assert proxy.dropped is not None


def test_a_held_write_waits_at_its_commit(postgres: Postgres, database: Database) -> None:
    """Until it is let go; then it is kept."""
    gate = threading.Event()
    proxy = LyingProxy((postgres.host, postgres.port), hold=gate, bind="127.0.0.1")

    def write() -> None:
        with psycopg.connect(database.through(proxy.port)) as client:
            client.execute("INSERT INTO t VALUES (1)")

    writing = threading.Thread(target=write)
    writing.start()
    deadline = time.monotonic() + 10
    while not proxy.writes and time.monotonic() < deadline:
        time.sleep(0.02)
    assert rows(database) == []
    gate.set()
    writing.join(10)
    proxy.close()
    assert rows(database) == [1]


def test_evidence_runs_as_the_cases_own_role(database: Database) -> None:
    """What a submission leaves in its tables is never evaluated with more rights than it had itself."""
    with psycopg.connect(database.url) as owner:
        assert owner.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database.url.replace(database.role, "postgres"))
