"""Where output goes: tables or JSON to standard output, everything said on the way to standard error."""

import json
import sys
from collections.abc import Sequence

from rich.console import Console, RenderableType

from wire.model import Wire

# Wide where there is no terminal: a log or a pipe must not lose half a name.
output = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
errors = Console(stderr=True, width=None if sys.stderr.isatty() else 200, highlight=False)


def show(page: RenderableType, value: object, *, as_json: bool) -> None:
    """Print a page for people, or the value as JSON."""
    if not as_json:
        output.print(page)
        return
    sys.stdout.write(json.dumps(_plain(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, Wire):
        return value.dump()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
