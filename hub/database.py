"""The way to PostgreSQL: a pool that survives the server's absence, and our migrations.

Whatever means "the database is away or cannot answer now" becomes NotReady, so that callers send their client away to
try again. A transaction is the unit: it happened, or it did not.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from wire.digest import of_bytes
from wire.errors import Broken, InvalidInput, NotReady

Connection = psycopg.Connection[tuple[Any, ...]]
MIGRATIONS: Final = Path(__file__).parent / "migrations"
RETRY_SECONDS: Final = 2.0
_LOCK: Final = 7_066_326
# A server whose machine is gone does not say so: give up a silent connection after some seconds.
_CONNECT: Final[dict[str, Any]] = {
    "connect_timeout": 3,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "application_name": "proctor-hub",
}


class Database:
    """Transactions on one database."""

    def __init__(self, url: str, connections: int, wait_seconds: float) -> None:
        self._pool = ConnectionPool(
            url,
            kwargs=_CONNECT,
            min_size=0,
            max_size=connections,
            timeout=wait_seconds,
            # Give up at once and try anew at the next request: a long back-off would outlast the server's return.
            reconnect_timeout=0.5,
            check=ConnectionPool.check_connection,
            open=False,
        )

    def open(self) -> None:
        """Start the pool; the server need not be there."""
        self._pool.open(wait=False)

    def close(self) -> None:
        """End every connection."""
        self._pool.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a connection inside a transaction.

        Raises:
            NotReady: the server is away, or has cancelled this transaction for reasons of its own.
        """
        try:
            with self._pool.connection() as connection:
                yield connection
        except (PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise NotReady("the database does not answer; try again", RETRY_SECONDS) from error
        except psycopg.DataError as error:
            raise InvalidInput(f"the database cannot hold this: {str(error).splitlines()[0]}") from error


def migrate(url: str, folder: Path = MIGRATIONS) -> int:
    """Apply what is missing of `NNNN_name.sql`, each file in one transaction; return how many were applied.

    Raises:
        NotReady: the database does not answer.
        Broken: an applied file was changed, or the database is newer than this program.
    """
    files = {int(file.name[:4]): file for file in sorted(folder.glob("[0-9]*.sql"))}
    try:
        with psycopg.connect(url, autocommit=True, **_CONNECT) as connection:
            # Tried in a loop, not waited for: a waiting session would hold a snapshot that CONCURRENTLY waits for.
            while not _scalar(connection, f"SELECT pg_try_advisory_lock({_LOCK})"):
                time.sleep(0.1)
            return _apply(connection, files)
    except psycopg.OperationalError as error:
        raise NotReady(f"the database does not answer: {str(error).splitlines()[0]}", RETRY_SECONDS) from error


def _apply(connection: Connection, files: dict[int, Path]) -> int:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY, checksum text NOT NULL, "
        "applied_at timestamptz NOT NULL DEFAULT now())"
    )
    applied: dict[int, str] = dict(connection.execute("SELECT version, checksum FROM migrations").fetchall())
    if unknown := sorted(applied.keys() - files.keys()):
        raise Broken(f"the database is newer than this program: it holds migration {unknown[-1]}; upgrade the hub")
    for version, file in files.items():
        content = file.read_bytes()
        if version in applied and applied[version] != of_bytes(content):
            raise Broken(f"migration {file.name} was changed after it had been applied; restore it and add a new one")
        if version not in applied:
            with connection.transaction():
                connection.execute(content)
                connection.execute(
                    "INSERT INTO migrations (version, checksum) VALUES (%s, %s)", (version, of_bytes(content))
                )
    return len(files) - len(applied)


def _scalar(connection: Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None
