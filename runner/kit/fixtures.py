"""What a suite's cases are given. Everything made for a case ends with it; nothing leaks into the next.

Session-wide are only the sut, the PostgreSQL server and the browser.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from runner.daemon import Daemon
from runner.kit import database as databases
from runner.kit.casefile import CaseFile
from runner.kit.database import Database
from runner.kit.lying import LyingProxy
from runner.kit.processes import Api, Launcher, Sut
from runner.kit.reporting import KitConfig
from runner.kit.stashes import CONFIG, FILE
from runner.kit.webhooks import Receiver
from runner.postgres import Postgres

if TYPE_CHECKING:  # Loading Playwright costs most of a second; many shards open no page.
    from runner.kit.browser import Chromium, Ui

SILENCE_SECONDS: Final = 30.0
OpenUi = Callable[..., "Ui"]
Receivers = Callable[[], Receiver]
Proxies = Callable[..., LyingProxy]


@pytest.fixture(scope="session")
def kit(request: pytest.FixtureRequest) -> KitConfig:
    """What this run was told."""
    return request.config.stash[CONFIG]


@pytest.fixture(scope="session")
def sut(kit: KitConfig) -> Iterator[Sut]:
    """The untrusted pod with the submission."""
    daemon = Daemon(kit.daemon_url, kit.daemon_bearer, silence_seconds=SILENCE_SECONDS)
    yield Sut(daemon, kit.sut_host, kit.workspace, kit.daemon_url)
    daemon.close()


@pytest.fixture(scope="session")
def postgres(kit: KitConfig) -> Iterator[Postgres]:
    """A PostgreSQL server of the kit's own."""
    with Postgres.start(Path(kit.scratch) / "postgres", kit.own_host) as server:
        yield server


@pytest.fixture(scope="session")
def chromium(kit: KitConfig) -> Iterator["Chromium"]:
    """The browser; it starts with the first page."""
    from runner.kit.browser import Chromium

    browser = Chromium(kit.chromium, kit.sut_host)
    yield browser
    browser.close()


@pytest.fixture
def case_file(request: pytest.FixtureRequest) -> CaseFile:
    """The evidence of this case."""
    return request.node.stash[FILE]  # type: ignore[no-any-return]  # pytest types `node` as Any


@pytest.fixture
def database(postgres: Postgres, case_file: CaseFile) -> Iterator[Database]:
    """An empty database of this case's own."""
    made = databases.create(postgres)
    yield made
    databases.attach_rows(made, case_file)
    databases.drop(postgres, made)


@pytest.fixture
def launcher(sut: Sut, case_file: CaseFile, database: Database) -> Iterator[Launcher]:
    """Starts this case's processes. Takes `database` so that processes end before their database is dropped."""
    started = Launcher(sut, case_file)
    yield started
    started.close()


@pytest.fixture
def receivers(kit: KitConfig, case_file: CaseFile) -> Iterator[Receivers]:
    """Makes receivers of webhooks, or providers."""
    made: list[Receiver] = []

    def make() -> Receiver:
        made.append(Receiver(kit.own_host, case_file))
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def proxies(postgres: Postgres) -> Iterator[Proxies]:
    """Makes proxies in front of PostgreSQL; keywords as of `LyingProxy`."""
    made: list[LyingProxy] = []

    def make(**behaviour: Any) -> LyingProxy:
        made.append(LyingProxy((postgres.host, postgres.port), **behaviour))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def open_ui(chromium: "Chromium", case_file: CaseFile) -> Iterator[OpenUi]:
    """Opens a page of an API instance in a browser context of its own."""
    pages: list[Ui] = []

    def open_one(api: Api, width: int = 1440, height: int = 1000) -> "Ui":
        pages.append(chromium.open(api.base, case_file, width, height))
        return pages[-1]

    yield open_one
    for page in pages:
        page.picture("at the end")
        page.close()
