"""An aggregating event recorder: one Event object per (object, reason), counted up at most once a minute.

Events are for people. Nothing depends on them, so a full queue drops and an error is only logged.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from controller.actions import Emit
from controller.cluster import AlreadyExists, Cluster, Kind, Object
from wire.digest import of_json
from wire.errors import ProctorError

LOG = structlog.get_logger()
QUEUE_LIMIT: Final = 1000
AGAIN_SECONDS: Final = 60.0
FORGET_ABOVE: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Happened:
    """Something to tell about an object."""

    object: Object
    emit: Emit
    at: datetime


class Recorder:
    """Takes events at once and writes them in the background."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self._cluster, self._identity = cluster, identity
        self._queue: asyncio.Queue[Happened] = asyncio.Queue(maxsize=QUEUE_LIMIT)
        self._last: dict[str, datetime] = {}

    def record(self, about: Object, emit: Emit, at: datetime) -> None:
        """Queue an event; the same one again within a minute is dropped."""
        name = _name(about, emit)
        last = self._last.get(name)
        if last is not None and (at - last).total_seconds() < AGAIN_SECONDS:
            return
        if len(self._last) > FORGET_ABOVE:
            self._last.clear()
        self._last[name] = at
        try:
            self._queue.put_nowait(Happened(object=about, emit=emit, at=at))
        except asyncio.QueueFull:
            LOG.warning("event dropped", reason=emit.reason)

    async def run(self) -> None:
        """Write what is queued, for ever."""
        while True:
            happened = await self._queue.get()
            try:
                await self._write(happened)
            except ProctorError as error:
                LOG.warning("event not written", reason=happened.emit.reason, error=str(error))

    async def _write(self, happened: Happened) -> None:
        body = _body(happened, self._identity)
        try:
            await self._cluster.create(Kind.Event, body)
        except AlreadyExists:
            known = await self._cluster.get(Kind.Event, body["metadata"]["namespace"], body["metadata"]["name"])
            if known is not None:
                count = {"count": known.get("count", 1) + 1}
                later = {"lastTimestamp": body["lastTimestamp"], "message": body["message"]}
                await self._cluster.patch(Kind.Event, known, count | later)


def _name(about: Object, emit: Emit) -> str:
    meta = about["metadata"]
    return f"{meta['name']}.{of_json([meta['uid'], emit.reason])[7:23]}"


def _body(happened: Happened, identity: str) -> Object:
    about, emit = happened.object, happened.emit
    meta, at = about["metadata"], happened.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(about, emit), "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": about.get("apiVersion", ""),
            "kind": about.get("kind", ""),
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "type": "Warning" if emit.warning else "Normal",
        "reason": emit.reason,
        "message": emit.message[:1024],
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": "proctor-operator"},
        "reportingComponent": "proctor.dev/operator",
        "reportingInstance": identity,
    }
