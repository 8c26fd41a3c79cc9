"""`python -m controller`: the operator's process. Exits 0 when asked to stop, 75 when it lost the Lease.

Crash-only: whatever else ends it, a fresh process goes on from what the cluster holds.
"""

import asyncio
import logging
import signal
import socket
import sys

import httpx2
import structlog

from controller.engine import Engine, wall_clock
from controller.handlers import listen
from controller.hub import HttpHub
from controller.kube import KubeCluster
from controller.lease import Elector, LeaseLost
from controller.metrics import Metrics
from controller.probes import Probes
from controller.settings import Settings

LOG = structlog.get_logger()
EXIT_LEASE_LOST = 75
RESOLVE_SECONDS = 2.0


def main() -> None:
    """Read settings, wire everything, run."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    settings = Settings()
    settings = settings.model_copy(update={"installation_key": settings.read_key()})
    sys.exit(asyncio.run(serve(settings)))


async def serve(settings: Settings) -> int:
    """Serve probes, wait for the Lease, then work until told to stop."""
    stop, metrics = asyncio.Event(), Metrics()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = KubeCluster(metrics)
    probes = Probes(cluster, metrics)
    await probes.start(settings.probe_port)
    elector = Elector(cluster, settings.install_namespace, settings.identity, wall_clock)
    code = 0
    try:
        if await elector.acquire(stop):
            metrics.leader.set(1)
            await _lead(await resolved(settings), cluster, probes, elector, stop)
    except* LeaseLost:
        LOG.error("lease lost")
        code = EXIT_LEASE_LOST
    finally:
        await elector.release()
        await cluster.close()
    return code


async def _lead(
    settings: Settings, cluster: KubeCluster, probes: Probes, elector: Elector, stop: asyncio.Event
) -> None:
    async with httpx2.AsyncClient(base_url=settings.hub_url) as client:
        engine = Engine(cluster, HttpHub(client, settings.key()), settings, metrics=probes.metrics)
        probes.engine = engine
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.run(stop))
            group.create_task(listen(engine, settings, stop))
            group.create_task(elector.hold(stop))


async def resolved(settings: Settings) -> Settings:
    """Return the settings with addresses instead of names: pods look none up. Waits until there are some."""
    names = ("hub_address", "gateway_address", "api_address")
    return settings.model_copy(update={name: await _resolved(getattr(settings, name)) for name in names})


async def _resolved(address: str) -> str:
    host, _, port = address.rpartition(":")
    while host:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            return f"{found[0][4][0]}:{port}"
        except OSError as error:
            LOG.warning("address not resolved", address=address, error=str(error))
            await asyncio.sleep(RESOLVE_SECONDS)
    return address


if __name__ == "__main__":
    main()
