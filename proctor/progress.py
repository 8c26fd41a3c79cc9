"""Live progress of runs: a table that redraws itself on a terminal, plain lines elsewhere.

Fed with Trials as they change; knows nothing of where they come from.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from controller.cluster import Object

OVER: Final = ("Graded", "Errored", "Cancelled")
STYLES: Final = {"Graded": "green", "Errored": "red", "Cancelled": "yellow", "Pending": "dim"}
ROWS_LIMIT: Final = 24


@dataclass(kw_only=True)
class Row:
    """One trial on the screen."""

    name: str
    place: str
    phase: str
    since: float
    began: float
    detail: str = ""
    pods: dict[str, str] = field(default_factory=dict)


class Progress:
    """Shows how trials stand; use it as a context."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._rows: dict[str, Row] = {}
        self._started = clock()
        self._live = Live(console=console, get_renderable=self._page, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(Text(f"{self._elapsed(self._started):>6}  {text}"))

    def trial(self, found: Object) -> None:
        """Take a Trial as it is now."""
        name, spec, status = found["metadata"]["name"], found["spec"], found.get("status") or {}
        phase = status.get("phase", "Pending")
        row = self._rows.get(name)
        if row is None:
            place = f"{spec['task']} / {spec['arm']['name']} / {spec['repetition']}"
            row = self._rows[name] = Row(name=name, place=place, phase="", since=self._clock(), began=self._clock())
        detail = _detail(status)
        if (row.phase, row.detail) == (phase, detail):
            return
        if row.phase != phase:
            row.since = self._clock()
        row.phase, row.detail = phase, detail
        if not self._console.is_terminal:
            self.say(f"{name}  {row.place}  {phase}{f'  {detail}' if detail else ''}")

    def _page(self) -> RenderableType:
        counts = Counter(row.phase for row in self._rows.values())
        said = ", ".join(f"{number} {phase}" for phase, number in sorted(counts.items()))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("TRIAL", "TASK / ARM / REPETITION", "PHASE", "FOR", ""):
            table.add_column(column, no_wrap=True)
        # Whoever works comes first; the finished ones make room.
        rows = sorted(self._rows.values(), key=lambda row: (row.phase in OVER, row.phase == "Pending", row.name))
        for row in rows[:ROWS_LIMIT]:
            length = "" if row.phase in OVER else self._elapsed(row.since)
            table.add_row(row.name, row.place, Text(row.phase, STYLES.get(row.phase, "cyan")), length, Text(row.detail))
        return Group(table, Text(f"{self._elapsed(self._started)}  {said}", "dim"))

    def _elapsed(self, since: float) -> str:
        seconds = int(self._clock() - since)
        return f"{seconds // 60}:{seconds % 60:02d}"


def _detail(status: Object) -> str:
    parts = []
    if status.get("attempt", 0) > 1:
        parts.append(f"attempt {status['attempt']}")
    if attempts := status.get("attempts"):
        parts.append(f"last: {attempts[-1]['reason']}")
    if result := status.get("result"):
        parts.append(f"{result['passed']} of {result['applicable']} cases passed")
    if message := _blocked(status):
        parts.append(message)
    return ", ".join(parts)


def _blocked(status: Object) -> str:
    for condition in status.get("conditions") or ():
        if condition["status"] == "False" and condition.get("message"):
            return str(condition["message"])
    return ""
