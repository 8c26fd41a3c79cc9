"""`/livez`, `/readyz` and `/metrics`. Live: the loop answers, open streams are not silent, the queue moves.

During an outage of the API server no stream claims to be connected, so a probe does not restart an operator that a
restart would not help.
"""

from collections.abc import Callable
from time import monotonic

from aiohttp import web

from controller.engine import Engine
from controller.kube import KubeCluster
from controller.metrics import Metrics

SILENT_SECONDS = 180.0
STUCK_SECONDS = 300.0


class Probes:
    """The HTTP side of one operator's process."""

    def __init__(self, cluster: KubeCluster, metrics: Metrics) -> None:
        self._cluster, self.metrics = cluster, metrics
        self.engine: Engine | None = None
        """None while another process leads: alive and ready to take over."""

    async def start(self, port: int) -> Callable[[], object]:
        """Serve; the returned coroutine function ends it."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._text)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, port=port).start()
        return runner.cleanup

    def problem(self) -> str:
        """Return what is wrong with this process, or nothing."""
        now = monotonic()
        for (kind, namespace), beat in self._cluster.beats.items():
            if now - beat > SILENT_SECONDS:
                return f"the stream of {kind.plural} in {namespace} has been silent for {now - beat:.0f} s"
        if self.engine is not None and self.engine.queue.oldest_seconds() > STUCK_SECONDS:
            return f"the queue has not moved for {self.engine.queue.oldest_seconds():.0f} s"
        return ""

    async def _livez(self, _: web.Request) -> web.Response:
        problem = self.problem()
        return web.Response(status=503 if problem else 200, text=problem or "ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        synced = self.engine is None or self.engine.is_synced()
        return web.Response(status=200 if synced else 503, text="ok" if synced else "not synced yet")

    async def _text(self, _: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})
