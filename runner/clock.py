"""The one place where the runner's shells read the clock."""

from datetime import UTC, datetime


def now() -> str:
    """Return the time as it is written into the journal."""

    return stamp(datetime.now(UTC))  # noqa: TID251  # the shells' one clock


def stamp(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_unix(seconds: float) -> str:
    """Write Unix seconds as a moment."""
    return stamp(datetime.fromtimestamp(seconds, UTC))


def parse(text: str) -> datetime:
    """Read a moment that was written by `stamp`."""
    return datetime.fromisoformat(text)
