"""Sandboxes as the test's own user, and, where the tests are root, as another one: that is how a pod has it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.fakes import FakeHub, serving
from tests.runner.processes import OTHER_UID, Box, box


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder below which the other user may go: pytest's own are closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


# Only root can start commands as another user. Where the tests are not root, the pods of tests/local show the same.
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to start commands as another user")


@pytest.fixture(params=["own user", pytest.param("other user", marks=as_root)], scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Box]:
    """A running sandbox, both ways of having a user; shared, so ids and files are each test's own."""
    with open_folder() as folder, box(folder, OTHER_UID if request.param == "other user" else None) as running:
        yield running


@pytest.fixture
def root_sandbox() -> Iterator[Box]:
    """A sandbox whose daemon is root and whose commands are not."""
    if os.geteuid() != 0:
        pytest.skip("needs root to start commands as another user")
    with open_folder() as folder, box(folder, OTHER_UID) as running:
        yield running


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[Box]:
    """A sandbox of one test's own, to be lost."""
    with box(tmp_path / "box") as running:
        yield running


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A hub in memory."""
    fake = FakeHub()
    with serving(fake.app()) as url:
        fake.url = url
        yield fake
