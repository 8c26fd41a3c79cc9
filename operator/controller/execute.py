"""Idempotent effects on the cluster. Each either succeeds, has succeeded before, or says why it cannot."""

from typing import Final

from controller.cluster import AlreadyExists, Cluster, Kind, Object, Rejected
from controller.views import owner_of
from wire.errors import NotReady
from wire.model import Wire
from wire.names import FINALIZER


class NameTaken(NotReady):
    """A child's name belongs to another owner: a predecessor that is being cleaned up, or somebody else's object."""

    reason = "NameTaken"


async def create(cluster: Cluster, kind: Kind, body: Object, owner: str) -> Object:
    """Create a child of `owner`; one that exists already is success if it is the same owner's."""
    try:
        return await cluster.create(kind, body)
    except AlreadyExists as error:
        meta = body["metadata"]
        found = await cluster.get(kind, meta["namespace"], meta["name"])
        if found is None:
            raise NotReady(f"{kind.name} {meta['name']} has just gone away") from error
        if owner_of(found) != owner:
            message = f"{kind.name} {meta['name']} exists and is not ours; delete it if nobody needs it"
            raise NameTaken(message, retry_seconds=10.0) from error
        return found


async def ensure(cluster: Cluster, kind: Kind, body: Object) -> None:
    """Create an object that several may look after, if it is missing."""
    try:
        await cluster.create(kind, body)
    except AlreadyExists:
        return


async def delete(cluster: Cluster, kind: Kind, known: Object, *, owner: str, at_once: bool = False) -> None:
    """Delete a child; with no UID in `known` the name is looked up and deleted if it is the owner's."""
    meta = known["metadata"]
    if not meta.get("uid"):
        found = await cluster.get(kind, meta["namespace"], meta["name"])
        if found is None or owner_of(found) != owner:
            return
        known = found
    await cluster.delete(kind, known, grace_seconds=0 if at_once else None)


async def set_status(cluster: Cluster, kind: Kind, known: Object, status: Wire) -> Object:
    """Write a status if the object is still as `known`. Raises Conflict."""
    patch = difference(known.get("status") or {}, status.dump())
    if not patch:
        return known
    return await cluster.patch(kind, known, {"status": patch}, status=True)


async def finalize(cluster: Cluster, kind: Kind, known: Object, *, held: bool) -> Object:
    """Hold or release our finalizer, leaving others' alone. Raises Conflict."""
    others = [name for name in known["metadata"].get("finalizers") or () if name != FINALIZER]
    wanted = [*others, FINALIZER] if held else others
    return await cluster.patch(kind, known, {"metadata": {"finalizers": wanted}})


QUOTA: Final = "exceeded quota"


def refusal(error: Rejected) -> tuple[str, str]:
    """Return a reason and a message with a fix for what the API server will not create."""
    text = str(error)
    if QUOTA in text:
        return "QuotaExceeded", f"{text}; raise the namespace's quota or lower `parallelism`; tried again by itself"
    return "PodRefused", f"{text}; mend what it names; tried again by itself"


def difference(before: object, after: object) -> Object:
    """Return the merge patch that leads from one object to another."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        raise TypeError("a merge patch leads from an object to an object")
    patch: Object = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := difference(old, value):
                patch[name] = inner
        elif name not in before or old != value:
            patch[name] = value
    return patch
