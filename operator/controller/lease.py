"""Leader election by one Lease: 15 s valid, renewed within 10 s, tried every 2 s. Not a fence.

An old leader that sleeps through its loss can still write; names and preconditions keep that harmless. The Lease only
spares the API server two operators doing the same work.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog

from controller.cluster import AlreadyExists, Cluster, Kind, Object, Rejected
from wire.errors import Broken, NotReady

LOG = structlog.get_logger()
NAME: Final = "proctor-operator"
VALID_SECONDS: Final = 15
RENEW_SECONDS: Final = 10
TRY_SECONDS: Final = 2.0


class LeaseLost(Broken):
    """Somebody else may lead by now: end at once."""

    reason = "LeaseLost"


class Elector:
    """Takes, keeps and gives back the Lease."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str, clock: Callable[[], datetime]) -> None:
        self._cluster, self._namespace, self._identity, self._clock = cluster, namespace, identity, clock
        self._known: Object | None = None
        self._seen: tuple[Any, float] = (None, 0.0)
        """What another holder wrote last, and when we first saw it: their clock is not ours."""

    async def acquire(self, stop: asyncio.Event) -> bool:
        """Wait until we lead; False = asked to stop before."""
        while not stop.is_set():
            if await self._try():
                LOG.info("leading", identity=self._identity)
                return True
            await _sleep(stop, TRY_SECONDS)
        return False

    async def hold(self, stop: asyncio.Event) -> None:
        """Renew until asked to stop. Raises LeaseLost when that has not worked for too long."""
        renewed = asyncio.get_running_loop().time()
        while not stop.is_set():
            await _sleep(stop, TRY_SECONDS)
            if await self._try():
                renewed = asyncio.get_running_loop().time()
            elif asyncio.get_running_loop().time() - renewed > RENEW_SECONDS:
                raise LeaseLost("the Lease could not be renewed in time")

    async def release(self) -> None:
        """Give the Lease back, so that the next leader need not wait."""
        if self._known is None or self._holder(self._known) != self._identity:
            return
        try:
            await self._cluster.patch(Kind.Lease, self._known, {"spec": {"holderIdentity": ""}})
        except (NotReady, Rejected) as error:
            LOG.warning("lease not released", error=str(error))

    async def _try(self) -> bool:
        """Take or renew the Lease; False = another holds it, or nobody could be asked."""
        try:
            async with asyncio.timeout(RENEW_SECONDS / 2):
                return await self._take()
        except (NotReady, AlreadyExists, TimeoutError) as error:
            LOG.info("lease not taken", reason=type(error).__name__)
            return False

    async def _take(self) -> bool:
        found = await self._cluster.get(Kind.Lease, self._namespace, NAME)
        if found is None:
            body = {"metadata": {"name": NAME, "namespace": self._namespace}, "spec": self._spec(None)}
            self._known = await self._cluster.create(Kind.Lease, body)
            return True
        if self._holder(found) not in ("", self._identity) and not self._is_stale(found):
            return False
        self._known = await self._cluster.patch(Kind.Lease, found, {"spec": self._spec(found)})
        return True

    def _is_stale(self, found: Object) -> bool:
        """Tell whether its holder has written nothing new for as long as a Lease is valid."""
        now = asyncio.get_running_loop().time()
        wrote = (self._holder(found), found["spec"].get("renewTime"))
        if self._seen[0] != wrote:
            self._seen = (wrote, now)
        return now - self._seen[1] > VALID_SECONDS

    def _spec(self, found: Object | None) -> Object:
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = {} if found is None else found["spec"]
        ours = before.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": VALID_SECONDS,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (0 if ours or found is None else 1),
        }

    @staticmethod
    def _holder(found: Object) -> str:
        return str(found["spec"].get("holderIdentity") or "")


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
