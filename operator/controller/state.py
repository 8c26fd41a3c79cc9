"""What the operator's process knows besides the cluster: all of it is lost at a restart, and none of it is needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from controller.actions import Note
from controller.admit import Group
from controller.cluster import Cluster
from controller.events import Recorder
from controller.hub import Hub
from controller.metrics import Metrics
from controller.reflect import Store
from controller.settings import Settings
from controller.work import Pending
from wire.package import PackageManifest

Clock: TypeAlias = Callable[[], datetime]
Key: TypeAlias = tuple[str, str, str]
"""("run" | "trial" | "suite" | "pump", namespace, name)"""
PUMP: Key = ("pump", "", "")


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports and the settings: what every reconciler is given."""

    cluster: Cluster
    hub: Hub
    settings: Settings
    clock: Clock
    events: Recorder
    metrics: Metrics


@dataclass(kw_only=True)
class Memory:
    """Optimisations by UID; forgetting any of it costs a call and nothing else."""

    store: Store
    queue: Pending[Key]
    registered: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Trial → (attempt, sandbox), run → (generation, 0): as told to the hub."""
    made: dict[str, dict[str, str]] = field(default_factory=dict)
    """Trial → its Secrets and policy by name."""
    lost: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    """Children whose deletion was asked for."""
    notes: dict[str, Note] = field(default_factory=dict)
    """Trial → what keeps it from going on."""
    widths: dict[Group, int] = field(default_factory=dict)
    manifests: dict[str, PackageManifest] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    """Namespaces whose policies are known to be there."""
    written: dict[str, datetime] = field(default_factory=dict)
    """Run → when its status was last written."""
    strikes: dict[Key, int] = field(default_factory=dict)
    """Passes in a row that could not finish."""
