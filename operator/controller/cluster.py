"""The port to Kubernetes: the few verbs the operator asks for. Adapters: `kube.py` (real), `proctor.local` (memory).

Objects are plain Kubernetes dicts. Every verb is idempotent or carries a precondition, so repeating one after a
crash is harmless.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias

from wire.errors import NotReady, ProctorError
from wire.names import API_VERSION

Object: TypeAlias = dict[str, Any]


class Kind(Enum):
    """The kinds we touch: value = (apiVersion, plural)."""

    BenchmarkRun = (API_VERSION, "benchmarkruns")
    Trial = (API_VERSION, "trials")
    TaskSuite = (API_VERSION, "tasksuites")
    Pod = ("v1", "pods")
    Job = ("batch/v1", "jobs")
    Secret = ("v1", "secrets")
    NetworkPolicy = ("networking.k8s.io/v1", "networkpolicies")
    Lease = ("coordination.k8s.io/v1", "leases")
    Event = ("v1", "events")

    @property
    def api_version(self) -> str:
        return self.value[0]

    @property
    def plural(self) -> str:
        return self.value[1]


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """The whole collection, after a list or relist; what is not in it does not exist."""

    objects: tuple[Object, ...]


@dataclass(frozen=True, kw_only=True)
class Updated:
    """An object as it is now: added or modified."""

    object: Object


@dataclass(frozen=True, kw_only=True)
class Removed:
    """An object's last state before it went away."""

    object: Object


Change: TypeAlias = Replaced | Updated | Removed


class AlreadyExists(ProctorError):
    """Another object has this name; compare its owner before you call that success."""

    reason: ClassVar[str] = "AlreadyExists"


class Conflict(NotReady):
    """The object has changed since it was read: look again."""

    reason: ClassVar[str] = "Conflict"


class Rejected(ProctorError):
    """The API server refused the request and will again: invalid, forbidden, over quota."""

    reason: ClassVar[str] = "Rejected"


class Cluster(Protocol):
    """What the operator needs of a cluster."""

    def watch(self, kind: Kind, namespace: str) -> AsyncIterator[Change]:
        """Yield `Replaced` first and after every relist, then single changes, for ever; hides broken streams.

        Pods and Jobs are limited to those managed by us.
        """
        ...

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object as the API server has it now, not a cached copy; None = it does not exist."""
        ...

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object. Raises AlreadyExists, Rejected, NotReady."""
        ...

    async def patch(self, kind: Kind, known: Object, patch: Object, *, status: bool = False) -> Object:
        """Merge-patch an object or its status if it is still as `known`. Raises Conflict, Rejected, NotReady."""
        ...

    async def delete(self, kind: Kind, known: Object, *, grace_seconds: int | None = None) -> None:
        """Delete the object with `known`'s UID; already gone is success."""
        ...
