"""One database and one role for each case, with random names and password, on the kit's own PostgreSQL.

SQL is evidence and never an assertion. It runs as the case's own role: as a superuser, a view or function that the
submission left behind would run with the superuser's rights, in the evaluator's pod.
"""

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg import sql

from runner.kit.casefile import CaseFile, cut
from runner.postgres import Database, Postgres

__all__ = ["Database", "attach_rows", "create", "drop", "is_connectable"]

CONNECTIONS: Final = 90
TABLES: Final = 24
ROWS: Final = 12


def create(server: Postgres) -> Database:
    """Create a database owned by a fresh role which can do nothing else."""
    return server.create_database(CONNECTIONS)


def drop(server: Postgres, database: Database) -> None:
    """Remove a database and its role, whoever is connected."""
    with psycopg.connect(server.admin, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database.name)))
        admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(database.role)))


def is_connectable(server: Postgres, database: Database, is_allowed: bool) -> None:
    """Open or close a case's database to new connections; closing ends the present ones."""
    statement = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}").format(
        sql.Identifier(database.name), sql.Literal(is_allowed)
    )
    with psycopg.connect(server.admin, autocommit=True) as admin:
        admin.execute(statement)
        if not is_allowed:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database.name])


def attach_rows(database: Database, case_file: CaseFile) -> None:
    """Put the last rows of every table on the case's file."""
    options: Mapping[str, str | int] = {"connect_timeout": 3, "options": "-c statement_timeout=2000"}
    try:
        with psycopg.connect(database.url, autocommit=True, **options) as reader:  # type: ignore[arg-type]  # by name
            case_file.text("rows", "\n\n".join(_tables(reader)))
    except psycopg.Error as error:
        case_file.line(f"no rows: {error}")


def _tables(reader: psycopg.Connection) -> list[str]:
    names = reader.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname = 'public' ORDER BY 1 LIMIT %s",
        [TABLES],
    ).fetchall()
    return [_table(reader, name) for (name,) in names]


def _table(reader: psycopg.Connection, name: str) -> str:
    query = sql.SQL("SELECT left(t::text, 400), count(*) OVER () FROM {} t ORDER BY ctid DESC LIMIT {}")
    rows = reader.execute(query.format(sql.Identifier(name), sql.Literal(ROWS))).fetchall()
    total = rows[0][1] if rows else 0
    return cut(f"{name}: {total} rows\n" + "\n".join(str(row[0]) for row in reversed(rows)), 3000)
