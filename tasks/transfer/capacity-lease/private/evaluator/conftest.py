"""What every case of CapacityLease is given."""

import json
from pathlib import Path

import pytest

from house import WORK_LEASE_SECONDS, House, fresh_token, tolerant
from runner.kit.database import Database
from runner.kit.openapi import OpenApi
from runner.kit.processes import Launcher
from runner.kit.reporting import KitConfig


@pytest.fixture(scope="session")
def contract(kit: KitConfig) -> OpenApi:
    """The contract's own OpenAPI document."""
    return OpenApi(json.loads((Path(kit.public) / "scaffold" / "openapi.json").read_bytes()))


@pytest.fixture(scope="session")
def shapes(contract: OpenApi) -> OpenApi:
    """The same document, content with more than it asks for: surplus fields are the subject of D-01 alone."""
    return OpenApi(tolerant(contract.document))


@pytest.fixture
def house(kit: KitConfig, shapes: OpenApi, launcher: Launcher, database: Database) -> House:
    """The submission on an empty database; nothing runs yet."""
    env = {
        "DATABASE_URL": database.url,
        "ADMIN_TOKEN": fresh_token(),
        "WORK_LEASE_SECONDS": str(WORK_LEASE_SECONDS),
    }
    return House(launcher, kit.operations, shapes, env, [env["ADMIN_TOKEN"], database.password])
