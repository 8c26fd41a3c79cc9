"""Everything a trial's planner may look at, as one frozen value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controller.settings import Settings
from controller.views import Children, TrialView


@dataclass(frozen=True, kw_only=True)
class World:
    """One trial, its children, and what its run wants."""

    trial: TrialView
    children: Children
    now: datetime
    settings: Settings
    suspended: bool = False
    cancelled: bool = False
    registered: tuple[int, int] | None = None
    """(attempt, sandbox) as last told to the hub by this process; an optimisation, telling again is harmless."""
    made: Mapping[str, str] = field(default_factory=dict)
    """Secrets and policies made by this process: name → UID; an optimisation, making again is harmless."""
    lost: frozenset[str] = frozenset()
    """UIDs of which the API server itself said that they are gone."""

    def has(self, name: str) -> bool:
        """Tell whether an unwatched child (Secret, policy) is known to exist."""
        return name in self.trial.status.pods or name in self.made
