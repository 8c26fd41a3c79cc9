"""A real PostgreSQL and a real hub, one of each for all tests that do not break them."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from proctor.local.postgres import Postgres
from tests.hub.builders import Hub, prepare, running_hub
from tests.packages import write_package


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for the whole session."""
    server = Postgres(folder=tmp_path_factory.mktemp("pg"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database_url(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """A new database in that server."""
    return new_database(postgres, f"t{abs(hash(request.node.nodeid))}")


@pytest.fixture(scope="session")
def hub(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a run and a package; tests make trials of their own in it."""
    folder: Path = tmp_path_factory.mktemp("hub")
    with running_hub(folder, new_database(postgres, "shared")) as running:
        prepare(running)
        yield running


def new_database(postgres: Postgres, name: str) -> str:
    """Make a database and return its address."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres.url.replace("/proctor?", f"/{name}?")


@pytest.fixture
def package_folder(tmp_path: Path) -> Path:
    """A small task package on disk, inside a `tasks/` folder."""
    return write_package(tmp_path / "tasks")
