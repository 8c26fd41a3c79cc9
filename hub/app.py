"""The hub's shell: makes the app and starts what goes on behind it.

The app listens at once and says `ready` when the database is migrated and the bundled packages are stored; until then
requests are sent away to try again. So a hub may be started before its database.
"""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from fastapi import Depends, FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from prometheus_client import generate_latest

from hub.api import archives, trials
from hub.api.answers import add_handlers
from hub.api.request import Services
from hub.database import Database, migrate
from hub.packages import store_bundled
from hub.settings import Settings, read_key
from hub.store import FolderStore, Store
from hub.telemetry import Measured, Metrics
from wire.errors import InvalidInput, NotReady

log = structlog.get_logger()


class Preparation:
    """What has to be done once before requests can be answered, tried until it is done."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self.done = threading.Event()
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name="preparation", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    async def require_done(self) -> None:
        """Send a request away until the work is done."""
        if not self.done.is_set():
            raise NotReady(self.failure or "the hub is starting", 1.0)

    def stop(self) -> None:
        """Give up and wait for the end."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._work()
            except NotReady as error:
                self.failure = str(error)
                log.warning("not ready yet", message=str(error))
                self._stop.wait(error.retry_seconds)
            except Exception as error:  # the top of this thread: told at /readyz, and tried again
                self.failure = str(error)
                log.error("preparation failed", message=str(error), exc_info=True)
                self._stop.wait(10)
            else:
                self.done.set()
                return


def open_store(place: str, endpoint: str | None) -> Store:
    """Return the store that the settings name."""
    if not place.startswith("s3://"):
        try:
            return FolderStore(Path(place))
        except OSError as error:
            raise InvalidInput(f"HUB_STORE: {error}") from error
    bucket = place.removeprefix("s3://").strip("/")
    if not bucket or "/" in bucket:
        raise InvalidInput(f"HUB_STORE: {place!r} is not s3://<bucket>")
    # Here: boto3 takes longer to import than everything else together, and a folder does not need it.
    from hub.store_s3 import open_bucket

    return open_bucket(bucket, endpoint)


def create_app(settings: Settings) -> FastAPI:
    """Return the hub's app."""
    database = Database(settings.database_url, settings.connections, settings.wait_seconds)
    given = Services(
        database=database,
        store=open_store(settings.store, settings.store_endpoint),
        key=read_key(settings.installation_key),
    )
    preparation = Preparation(lambda: _prepare(settings.database_url, settings.bundled_tasks, given))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database.open()
        preparation.start()
        yield
        await run_in_threadpool(preparation.stop)
        await run_in_threadpool(database.close)

    app = FastAPI(title="Proctor hub", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.services = given
    for router in (trials.router, archives.router):
        app.include_router(router, dependencies=[Depends(preparation.require_done)])
    add_handlers(app)
    metrics = Metrics()
    _add_probes(app, given, preparation, metrics)
    app.add_middleware(Measured, metrics=metrics)
    return app


def _prepare(url: str, bundled: Path | None, given: Services) -> None:
    applied = migrate(url)
    log.info("database ready", migrations_applied=applied)
    if bundled is not None:
        store_bundled(bundled, given.database, given.store)


def _add_probes(app: FastAPI, given: Services, preparation: Preparation, metrics: Metrics) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz", dependencies=[Depends(preparation.require_done)])
    def readyz() -> dict[str, str]:
        with given.database.transaction() as connection:
            connection.execute("SELECT 1")
        given.store.check()
        return {"status": "ready"}

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type="text/plain; version=0.0.4")
