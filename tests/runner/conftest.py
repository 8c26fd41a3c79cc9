"""Sandboxes as the test's own user, and, where the tests are root, as another one: that is how a pod has it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.fakes import FakeHub, serving
from tests.runner.processes import OTHER_UID, Box, box


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder below which the other user may go: pytest's own are closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["own user", "other user"])
def sandbox(request: pytest.FixtureRequest, public_folder: Path) -> Iterator[Box]:
    """A running sandbox, both ways of having a user."""
    if request.param == "own user":
        with box(public_folder) as running:
            yield running
        return
    if os.geteuid() != 0:
        pytest.skip("only root can start commands as another user; the pods of tests/local do so too")
    with box(public_folder, uid=OTHER_UID) as running:
        yield running


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A hub in memory."""
    fake = FakeHub()
    with serving(fake.app()) as url:
        fake.url = url
        yield fake
