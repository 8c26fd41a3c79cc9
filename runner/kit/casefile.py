"""A case's evidence, collected while it runs and bounded: exchanges, deliveries, rows, logs, pictures.

What the submission says is data: cut to size, never interpreted.
"""

import threading
from pathlib import Path
from typing import Final

from runner.kit.reporting import Picture
from runner.text import storable
from wire.journal import Evidence

LINE_CHARS: Final = 1_200
TEXT_CHARS: Final = 16_000
HEAD, TAIL = 24, 60
ITEMS: Final = 24


def cut(text: str, chars: int) -> str:
    """Return a text, its middle left out when it is too long, as one that can be stored."""
    text = storable(text)
    if len(text) <= chars:
        return text
    half = chars // 2 - 20
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


class CaseFile:
    """What will be shown beside the case's outcome."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._first: list[str] = []
        self._last: list[str] = []
        self._left_out = 0
        self._items: list[Evidence] = []
        self.pictures: list[Picture] = []

    def line(self, text: str) -> None:
        """Note one exchange or step, in the order in which it happened."""
        text = cut(text, LINE_CHARS)
        with self._lock:
            if len(self._first) < HEAD:
                self._first.append(text)
                return
            self._last.append(text)
            if len(self._last) > TAIL:
                del self._last[0]
                self._left_out += 1

    def text(self, name: str, text: str, media_type: str = "text/plain") -> None:
        """Attach a text under a name."""
        with self._lock:
            if len(self._items) < ITEMS:
                self._items.append(Evidence(name=cut(name, 200), media_type=media_type, text=cut(text, TEXT_CHARS)))

    def picture(self, name: str, content: bytes) -> None:
        """Attach a PNG."""
        with self._lock:
            if len(self.pictures) >= 4:
                return
            path = self._folder / f"picture-{len(self.pictures)}.png"
            path.write_bytes(content)
            self.pictures.append(Picture(name=cut(name, 200), media_type="image/png", path=str(path)))

    def evidence(self) -> list[Evidence]:
        """Return everything but the pictures."""
        with self._lock:
            middle = [f"… {self._left_out} exchanges left out …"] if self._left_out else []
            lines = self._first + middle + self._last
            exchanges = [Evidence(name="exchanges", text=cut("\n".join(lines), 2 * TEXT_CHARS))] if lines else []
            return exchanges + self._items
