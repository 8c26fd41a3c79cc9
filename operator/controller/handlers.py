"""The kopf shell: the only importer of kopf. Its handlers put keys into the queue and do nothing else.

`on.event` and nothing else, so that kopf writes nothing: no annotations, no finalizers. What it tells is a hint; the
reflectors are the source, so kopf may miss or repeat anything.
"""

import asyncio
import logging
from typing import Any

import kopf
import structlog

from controller.engine import Engine
from controller.settings import Settings
from wire.names import GROUP, VERSION

LOG = structlog.get_logger()
AGAIN_SECONDS = 10.0


def registry(engine: Engine) -> kopf.OperatorRegistry:
    """Return kopf's handlers over one engine."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.startup(registry=handlers)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        tune(settings)

    @kopf.on.login(registry=handlers)
    def login(**given: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**given) or kopf.login_with_kubeconfig(**given)

    @kopf.on.event(GROUP, VERSION, "benchmarkruns", registry=handlers)
    async def run_changed(namespace: str | None, name: str | None, **_: Any) -> None:
        engine.touch_run(str(namespace), str(name))

    @kopf.on.event(GROUP, VERSION, "tasksuites", registry=handlers)
    async def suite_changed(namespace: str | None, **_: Any) -> None:
        engine.touch_runs(str(namespace))

    return handlers


def tune(settings: kopf.OperatorSettings) -> None:
    """Make kopf a quiet listener: no peering, no events of its own, no scanning, streams that end and resume."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.queueing.exit_timeout = 5
    settings.execution.max_workers = 2
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = 20


async def listen(engine: Engine, settings: Settings, stop: asyncio.Event) -> None:
    """Run kopf until the end. Its own end by a signal is ours; its failures are survived: they are only hints."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    while not stop.is_set():
        try:
            await kopf.operator(
                registry=registry(engine), namespaces=settings.namespaces, standalone=True, stop_flag=stop
            )
            stop.set()
        except Exception:  # kopf ends on any error in a stream; the reflectors go on without it
            LOG.exception("kopf ended")
            await _sleep(stop)


async def _sleep(stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), AGAIN_SECONDS)
    except TimeoutError:
        return
