"""The journal in PostgreSQL: rows by key, once, in the order in which they were accepted."""

from collections.abc import Collection, Sequence

from hub.database import Connection
from hub.records import text_of
from wire.journal import ENTRY, AnyEntry
from wire.report import JOURNAL_PAGE_ROWS, JournalRow


def append(connection: Connection, trial: str, attempt: int, entries: Sequence[AnyEntry]) -> int:
    """Store what is not there yet and return how much that was; the caller holds the trial's lock.

    The lock makes sequence numbers of a trial visible in their order, so that `after` never skips a row.
    """
    done = connection.execute(
        """
        INSERT INTO journal (trial, key, attempt, kind, body)
        SELECT %s, key, %s, kind, body::json
        FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS sent (key, kind, body, place)
        ORDER BY place
        ON CONFLICT (trial, key) DO NOTHING
        """,
        (
            trial,
            attempt,
            [entry.key() for entry in entries],
            [entry.kind for entry in entries],
            [text_of(entry) for entry in entries],
        ),
    )
    return done.rowcount


def read_page(connection: Connection, trial: str, kinds: Collection[str], after: int) -> list[JournalRow]:
    """Return the next rows after a sequence number; fewer than `JOURNAL_PAGE_ROWS` when there are no more."""
    rows = connection.execute(
        "SELECT sequence, body::text FROM journal WHERE trial = %s AND kind = ANY(%s) AND sequence > %s "
        "ORDER BY sequence LIMIT %s",
        (trial, list(kinds), after, JOURNAL_PAGE_ROWS),
    ).fetchall()
    return [JournalRow(sequence=sequence, entry=ENTRY.validate_json(body)) for sequence, body in rows]


def read_entries(connection: Connection, trial: str, kinds: Collection[str]) -> list[AnyEntry]:
    """Return a trial's entries of some kinds, in order."""
    rows = connection.execute(
        "SELECT body::text FROM journal WHERE trial = %s AND kind = ANY(%s) ORDER BY sequence", (trial, list(kinds))
    ).fetchall()
    return [ENTRY.validate_json(row[0]) for row in rows]
