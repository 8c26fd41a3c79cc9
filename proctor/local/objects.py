"""Kubernetes objects in memory with the API server's rules: one write at a time, versions, finalizers, owners.

Synchronous and deterministic: UIDs (unless given), versions and the order of notifications follow from the calls. What
a pod or a Job does is not known here; a kubelet and the Job controller listen and write like in a cluster.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar, cast

from controller.cluster import AlreadyExists, Conflict, Kind, Object, Rejected

Json = TypeVar("Json")
Key: TypeAlias = tuple[Kind, str, str]
Clock: TypeAlias = Callable[[], datetime]
Admit: TypeAlias = Callable[[Kind, Object | None, Object], None]

WITH_STATUS: Final = frozenset({Kind.BenchmarkRun, Kind.Trial, Kind.TaskSuite, Kind.Pod, Kind.Job})
# The API server's own; a client's values for them are ignored.
SERVER_FIELDS: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "name",
    "namespace",
)
POD_GRACE_SECONDS: Final = 30


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One object after one write; `removed` = it no longer exists."""

    kind: Kind
    object: Object
    removed: bool = False


Listener: TypeAlias = Callable[[Notice], None]


def copied(value: Json) -> Json:
    """Copy JSON data: several times quicker than `copy.deepcopy`, which matters since every listener gets a copy."""
    return cast(Json, _copied(value))


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list | tuple) else value


def merge(target: object, patch: object) -> object:
    """Apply a JSON merge patch (RFC 7386) and return the result; neither argument is changed."""
    if not isinstance(patch, dict):
        return copied(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def rfc3339(moment: datetime) -> str:
    """Write a moment the way Kubernetes does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Objects:
    """All objects of a cluster. Everything handed in or out is a copy."""

    def __init__(self, clock: Clock, admit: Admit | None = None, new_uid: Callable[[], str] | None = None) -> None:
        self._clock = clock
        self._admit = admit
        self._new_uid = new_uid or self._next_uid
        self._held: dict[Key, Object] = {}
        self._version = 0
        self._born = 0
        self._listeners: list[Listener] = []
        self._notices: deque[Notice] = deque()
        self._notifying = False

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every write, in order; the returned function ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return a copy of the object; None = it does not exist."""
        return copied(self._held.get((kind, namespace, name)))

    def all(self, kind: Kind, namespace: str | None = None) -> tuple[Object, ...]:
        """Return copies of all objects of a kind, by name; no namespace = all of them."""
        keys = sorted(key[1:] for key in self._held if key[0] is kind and namespace in (None, key[1]))
        return tuple(copied(self._held[(kind, *key)]) for key in keys)

    def everything(self) -> Iterator[tuple[Kind, Object]]:
        """Yield a copy of each object there is."""
        for key, held in sorted(self._held.items(), key=lambda item: (item[0][0].plural, *item[0][1:])):
            yield key[0], copied(held)

    def create(self, kind: Kind, body: Object) -> Object:
        """Store a new object. Raises AlreadyExists, Rejected."""
        made = copied(body)
        meta = made.get("metadata") or {}
        name, namespace = meta.get("name"), meta.get("namespace")
        if not name or not namespace:
            raise Rejected(f"{kind.name}: metadata.name and metadata.namespace are required")
        key = (kind, str(namespace), str(name))
        if key in self._held:
            raise AlreadyExists(f"{kind.plural} {name!r} already exists")
        if kind in WITH_STATUS:
            made.pop("status", None)
        if kind is Kind.Pod:
            made["status"] = {"phase": "Pending"}
        if self._admit:
            self._admit(kind, None, made)
        made |= {"apiVersion": kind.api_version, "kind": kind.name}
        made["metadata"] = meta | {
            "uid": self._new_uid(),
            "creationTimestamp": rfc3339(self._clock()),
            "generation": 1,
        }
        made["metadata"].pop("deletionTimestamp", None)
        self._write(key, made)
        answer = copied(made)
        self._notify()
        self._drop_orphan(key)
        return answer

    def patch(self, kind: Kind, known: Object, patch: Object, *, status: bool = False) -> Object:
        """Merge-patch an object or its status if it is still as `known`. Raises Conflict, Rejected."""
        key = _key(kind, known)
        held = self._held.get(key)
        if held is None or _identity(held) != _identity(known):
            raise Conflict(f"{kind.plural} {key[2]!r} has changed since it was read")
        return self._change(key, held, patch, status)

    def set_status(self, kind: Kind, known: Object, status: Object) -> None:
        """Replace a status whatever the version, as a node or controller may; a gone object is no error."""
        held = self._held.get(_key(kind, known))
        if held is None or held["metadata"]["uid"] != known["metadata"]["uid"] or held.get("status") == status:
            return
        self._write(_key(kind, known), {**held, "status": copied(status)})
        self._notify()

    def bind(self, known: Object, node: str) -> None:
        """Give a pod its node; from then on its deletion is the kubelet's to finish."""
        held = self._held.get(_key(Kind.Pod, known))
        if held is not None and held["metadata"]["uid"] == known["metadata"]["uid"]:
            self._change(_key(Kind.Pod, known), held, {"spec": {"nodeName": node}}, False)

    def delete(self, kind: Kind, known: Object, *, grace_seconds: int | None = None) -> None:
        """Delete the object with this UID: at once, or marked while finalizers or a running pod hold it."""
        key = _key(kind, known)
        held = self._held.get(key)
        if held is None or held["metadata"]["uid"] != known["metadata"]["uid"]:
            return
        grace = _pod_grace(held, grace_seconds) if kind is Kind.Pod else 0
        if grace == 0 and not held["metadata"].get("finalizers"):
            self._remove(key)
        else:
            self._mark(key, held, grace)
        self._notify()

    def _next_uid(self) -> str:
        self._born += 1
        return f"{self._born:08x}-0000-4000-8000-{self._born:012x}"

    def _change(self, key: Key, held: Object, patch: Object, status: bool) -> Object:
        changed = _patched(key[0], held, patch, status)
        if changed == held:
            return copied(held)
        if self._admit:
            self._admit(key[0], copied(held), copied(changed))
        if changed.get("spec") != held.get("spec"):
            changed["metadata"]["generation"] = held["metadata"]["generation"] + 1
        self._write(key, changed)
        answer = copied(changed)
        # A pod's end stays with its kubelet: without finalizers it goes only when the grace is over.
        waits = changed["metadata"].get("finalizers") or changed["metadata"].get("deletionGracePeriodSeconds")
        if changed["metadata"].get("deletionTimestamp") and not waits:
            self._remove(key)
        self._notify()
        return answer

    def _mark(self, key: Key, held: Object, grace: int) -> None:
        meta = held["metadata"]
        if meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds", 0) <= grace:
            return
        ends = rfc3339(self._clock() + timedelta(seconds=grace))
        meta = meta | {"deletionTimestamp": meta.get("deletionTimestamp", ends), "deletionGracePeriodSeconds": grace}
        self._write(key, {**held, "metadata": meta})

    def _remove(self, key: Key) -> None:
        gone = self._held.pop(key)
        self._version += 1
        gone["metadata"] = gone["metadata"] | {"resourceVersion": str(self._version)}
        self._notices.append(Notice(kind=key[0], object=gone, removed=True))
        for other, held in list(self._held.items()):
            owners = held["metadata"].get("ownerReferences") or ()
            if other in self._held and any(owner["uid"] == gone["metadata"]["uid"] for owner in owners):
                self.delete(other[0], held)

    def _drop_orphan(self, key: Key) -> None:
        """Do what the garbage collector does to an object whose owners are all gone."""
        held = self._held.get(key)
        owners = (held or {}).get("metadata", {}).get("ownerReferences") or ()
        alive = {other["metadata"]["uid"] for other in self._held.values()}
        if held and owners and not any(owner["uid"] in alive for owner in owners):
            self.delete(key[0], held)

    def _write(self, key: Key, made: Object) -> None:
        self._version += 1
        made["metadata"] = made["metadata"] | {"resourceVersion": str(self._version)}
        self._held[key] = made
        self._notices.append(Notice(kind=key[0], object=made))

    def _notify(self) -> None:
        """Tell the listeners; what they write in turn is told after, in order, to all."""
        if self._notifying:
            return
        self._notifying = True
        try:
            while self._notices:
                notice = self._notices.popleft()
                for listener in tuple(self._listeners):
                    listener(Notice(kind=notice.kind, object=copied(notice.object), removed=notice.removed))
        finally:
            self._notifying = False


def _key(kind: Kind, known: Object) -> Key:
    return kind, str(known["metadata"]["namespace"]), str(known["metadata"]["name"])


def _identity(known: Object) -> tuple[object, object]:
    return known["metadata"].get("uid"), known["metadata"].get("resourceVersion")


def _pod_grace(pod: Object, asked: int | None) -> int:
    """Return how long a pod may take to end: not at all when it never reached a node or has ended."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", POD_GRACE_SECONDS)) if asked is None else asked


def _patched(kind: Kind, held: Object, patch: Object, status: bool) -> Object:
    """Return the object with the parts of the patch that this call may change."""
    if status:
        merged = merge(held.get("status", {}), patch.get("status", {}))
        return {**held, "status": merged}
    allowed = {key: value for key, value in patch.items() if key != "status" or kind not in WITH_STATUS}
    changed = merge(held, allowed)
    if not isinstance(changed, dict):
        raise Rejected(f"{kind.name}: a patch must be an object")
    kept = {name: held["metadata"][name] for name in SERVER_FIELDS if name in held["metadata"]}
    changed["metadata"] = {**{k: v for k, v in changed["metadata"].items() if k not in SERVER_FIELDS}, **kept}
    if kind is Kind.Secret and held.get("immutable") and changed.get("data") != held.get("data"):
        raise Rejected("Secret: data: field is immutable when `immutable` is set")
    return changed
