"""The operator's cluster port in memory: local mode's API server, and the cluster of the operator's tests.

A kubelet plugs in by listening to `objects` and writing pod status there; without one pods stay Pending. Jobs are
looked after by `proctor.local.jobs`. Nothing here waits, so a test decides the order of everything.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from controller.cluster import Change, Kind, Object, Removed, Replaced, Updated
from proctor.local.jobs import JobController
from proctor.local.objects import Admit, Clock, Notice, Objects
from wire.names import MANAGED_BY


def wall_clock() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)  # noqa: TID251 - the shell's clock; tests pass their own


class MemoryCluster:
    """Implements `controller.cluster.Cluster`; `objects` is the same state for kubelets, controllers and tests."""

    def __init__(
        self, clock: Clock = wall_clock, admit: Admit | None = None, new_uid: Callable[[], str] | None = None
    ) -> None:
        self.objects = Objects(clock, admit, new_uid)
        self.objects.listen(JobController(self.objects, clock).notice)

    async def watch(self, kind: Kind, namespace: str) -> AsyncIterator[Change]:
        """Yield the collection, then every change to it."""
        changes: asyncio.Queue[Change] = asyncio.Queue()

        def notice(seen: Notice) -> None:
            if (
                seen.kind is kind
                and seen.object["metadata"]["namespace"] == namespace
                and _is_watched(kind, seen.object)
            ):
                changes.put_nowait(Removed(object=seen.object) if seen.removed else Updated(object=seen.object))

        end = self.objects.listen(notice)
        try:
            yield Replaced(objects=tuple(o for o in self.objects.all(kind, namespace) if _is_watched(kind, o)))
            while True:
                yield await changes.get()
        finally:
            end()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object; None = it does not exist."""
        return self.objects.get(kind, namespace, name)

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object. Raises AlreadyExists, Rejected."""
        return self.objects.create(kind, body)

    async def patch(self, kind: Kind, known: Object, patch: Object, *, status: bool = False) -> Object:
        """Merge-patch an object or its status if it is still as `known`. Raises Conflict, Rejected."""
        return self.objects.patch(kind, known, patch, status=status)

    async def delete(self, kind: Kind, known: Object, *, grace_seconds: int | None = None) -> None:
        """Delete the object with this UID; already gone is success."""
        self.objects.delete(kind, known, grace_seconds=grace_seconds)


def _is_watched(kind: Kind, seen: Object) -> bool:
    """Of pods and Jobs only those of the operator are watched, as in a cluster."""
    if kind not in (Kind.Pod, Kind.Job):
        return True
    return (seen["metadata"].get("labels") or {}).get(MANAGED_BY[0]) == MANAGED_BY[1]
