"""An object's conditions by type, as metav1 wants them. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from controller.status import stamp
from controller.views import Meta
from wire.run import Condition

Truth = Literal["True", "False", "Unknown"]


class Conditions:
    """Conditions by type; a transition time changes only with the status."""

    def __init__(self, meta: Meta, known: Iterable[Condition], now: datetime) -> None:
        self._known = {condition.type: condition for condition in known}
        self._generation, self._now = meta.generation, stamp(now)

    def set(self, kind: str, status: Truth, reason: str, message: str = "") -> None:
        """Set one condition."""
        before = self._known.get(kind)
        since = before.last_transition_time if before and before.status == status else self._now
        self._known[kind] = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message[:4096],
            observed_generation=self._generation,
            last_transition_time=since,
        )

    def list(self) -> list[Condition]:
        """Return them by type."""
        return [self._known[kind] for kind in sorted(self._known)]
