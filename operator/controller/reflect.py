"""What the cluster holds, as far as we have heard: a store fed by watches and by the answers to our own writes.

It never goes backwards: an event older than what is held is dropped, so a pass never sees a copy that predates our
own last write. It is a cache; whatever must be true is secured by names and preconditions, not by it.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TypeAlias

from controller.cluster import Cluster, Kind, Object, Removed, Replaced
from controller.views import TrialView, trial_of
from wire.names import LABEL_TRIAL

Place: TypeAlias = tuple[str, str]
"""(namespace, name)"""
Notice: TypeAlias = Callable[[Kind, Object | None, Object | None], None]
"""Called with the kind, the object before and the object now."""
TOMBSTONES = 8192
WATCHED = (Kind.BenchmarkRun, Kind.Trial, Kind.TaskSuite, Kind.Pod, Kind.Job)


class Store:
    """Objects by kind and place, with the two indexes that reconciling needs."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._held: dict[Kind, dict[Place, Object]] = {kind: {} for kind in WATCHED}
        self._children: dict[Place, dict[Kind, set[Place]]] = defaultdict(lambda: {Kind.Pod: set(), Kind.Job: set()})
        self._trials: dict[str, set[Place]] = defaultdict(set)
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._views: dict[str, tuple[str, TrialView]] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object as far as we know."""
        return self._held[kind].get((namespace, name))

    def all(self, kind: Kind) -> list[Object]:
        """Return all objects of a kind."""
        return list(self._held[kind].values())

    def children(self, kind: Kind, namespace: str, trial: str) -> list[Object]:
        """Return the pods or Jobs labelled with a trial's name."""
        places = self._children[(namespace, trial)][kind] if (namespace, trial) in self._children else ()
        return [self._held[kind][place] for place in places]

    def trials(self, run_uid: str) -> list[Object]:
        """Return a run's trials."""
        return [self._held[Kind.Trial][place] for place in self._trials.get(run_uid, ())]

    def trial(self, found: Object) -> TrialView:
        """Return a Trial's view, parsed once a version. Raises pydantic's ValidationError."""
        uid, version = found["metadata"]["uid"], found["metadata"].get("resourceVersion", "")
        held = self._views.get(uid)
        if held is None or held[0] != version:
            held = (version, trial_of(found))
            self._views[uid] = held
        return held[1]

    def apply(self, kind: Kind, found: Object) -> None:
        """Take over an object unless what is held is as new, or it is known to be gone."""
        meta = found["metadata"]
        place = (meta["namespace"], meta["name"])
        before = self._held[kind].get(place)
        if meta["uid"] in self._gone or (before is not None and not _is_newer(found, before)):
            return
        meta.pop("managedFields", None)
        if before is not None and before["metadata"]["uid"] != meta["uid"]:
            self._unlink(kind, place, before)
        self._held[kind][place] = found
        self._link(kind, place, found)
        self._notice(kind, before, found)

    def discard(self, kind: Kind, gone: Object) -> None:
        """Forget an object that no longer exists."""
        meta = gone["metadata"]
        place = (meta["namespace"], meta["name"])
        self._gone[meta["uid"]] = None
        if len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)
        before = self._held[kind].get(place)
        if before is None or before["metadata"]["uid"] != meta["uid"]:
            return
        del self._held[kind][place]
        self._unlink(kind, place, before)
        self._notice(kind, before, None)

    def replace(self, kind: Kind, namespace: str, objects: tuple[Object, ...]) -> None:
        """Take over a whole collection; what is not in it is gone."""
        there = {found["metadata"]["uid"] for found in objects}
        for place, held in list(self._held[kind].items()):
            if place[0] == namespace and held["metadata"]["uid"] not in there:
                self.discard(kind, held)
        for found in objects:
            self.apply(kind, found)

    def _link(self, kind: Kind, place: Place, found: Object) -> None:
        if kind in (Kind.Pod, Kind.Job) and (trial := _trial_label(found)):
            self._children[(place[0], trial)][kind].add(place)
        elif kind is Kind.Trial:
            self._trials[found["spec"]["runRef"]["uid"]].add(place)

    def _unlink(self, kind: Kind, place: Place, before: Object) -> None:
        if kind in (Kind.Pod, Kind.Job) and (trial := _trial_label(before)):
            self._children[(place[0], trial)][kind].discard(place)
        elif kind is Kind.Trial:
            self._trials[before["spec"]["runRef"]["uid"]].discard(place)
            self._children.pop((place[0], place[1]), None)
            self._views.pop(before["metadata"]["uid"], None)


class Reflector:
    """Feeds one kind of one namespace into the store, for ever."""

    def __init__(self, cluster: Cluster, store: Store, kind: Kind, namespace: str) -> None:
        self._cluster, self._store = cluster, store
        self.kind, self.namespace = kind, namespace
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Follow the watch; the adapter hides broken streams."""
        async for change in self._cluster.watch(self.kind, self.namespace):
            if isinstance(change, Replaced):
                self._store.replace(self.kind, self.namespace, change.objects)
                self.synced.set()
            elif isinstance(change, Removed):
                self._store.discard(self.kind, change.object)
            else:
                self._store.apply(self.kind, change.object)


def _trial_label(found: Object) -> str:
    return str((found["metadata"].get("labels") or {}).get(LABEL_TRIAL, ""))


def _is_newer(found: Object, held: Object) -> bool:
    """Compare versions: they are numbers that grow, for every kind the API server stores."""
    new, old = found["metadata"].get("resourceVersion", ""), held["metadata"].get("resourceVersion", "")
    if found["metadata"]["uid"] != held["metadata"]["uid"] or not (new.isdigit() and old.isdigit()):
        return bool(new != old) or found["metadata"]["uid"] != held["metadata"]["uid"]
    return int(new) > int(old)
