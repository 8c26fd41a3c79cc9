"""The closed set of things a planner may ask for. Each is idempotent or carries its precondition."""

from dataclasses import dataclass
from typing import TypeAlias

from controller.cluster import Kind, Object
from wire.journal import Settlement
from wire.run import BenchmarkRunStatus
from wire.trial import TrialStatus


@dataclass(frozen=True, kw_only=True)
class Create:
    """Make a child; the same name with the same owner is success."""

    kind: Kind
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete the child with this UID; no UID = look the name up and delete it if it is ours."""

    kind: Kind
    name: str
    uid: str = ""
    at_once: bool = False
    """Its containers have ended, so no grace is due."""


@dataclass(frozen=True, kw_only=True)
class Confirm:
    """Ask the API server itself whether a recorded child still exists."""

    kind: Kind
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class SetStatus:
    """Record intents and outcomes; refused when the object has changed since it was read."""

    status: TrialStatus | BenchmarkRunStatus


@dataclass(frozen=True, kw_only=True)
class Register:
    """Tell the hub which attempt is alive."""


@dataclass(frozen=True, kw_only=True)
class Settle:
    """Settle at the hub, then record what it answered."""

    settlement: Settlement


@dataclass(frozen=True, kw_only=True)
class Finalize:
    """Hold or release our finalizer."""

    held: bool


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Look again after some time, whatever happens."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something outside keeps this trial from going on; shown on its run until it is over."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Emit:
    """A Kubernetes event on the object."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Remove:
    """Delete the whole object (a run past its time to live, a trial of a deleted run)."""

    kind: Kind
    name: str
    uid: str


Action: TypeAlias = Create | Delete | Confirm | SetStatus | Register | Settle | Finalize | Wait | Note | Emit | Remove
