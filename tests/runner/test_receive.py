"""The sut's init step takes exactly what it was told to expect, and hands over to the daemon."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from runner.daemon import Daemon
from runner.errors import Unprocessable
from tests.runner.processes import BEARER, Box, Running, await_health, start_role
from wire.archive import tree_bytes
from wire.digest import of_bytes
from wire.errors import DigestMismatch

Start = Callable[[bytes], Running]


@pytest.fixture
def sut(tmp_path: Path) -> Iterator[Box]:
    """A sut whose init step has not begun."""
    made = Box(folder=tmp_path / "sut")
    made.folder.mkdir()
    (made.folder / "submission").mkdir()
    yield made
    made.stop()


@pytest.fixture
def receive(sut: Box) -> Iterator[Start]:
    """Start the init step for an archive."""
    started: list[Running] = []

    def start(archive: bytes) -> Running:
        told = {"submission_digest": of_bytes(archive), "submission_folder": sut.folder / "submission"}
        started.append(start_role("receive", sut.folder, sut.told() | told))
        await_health(sut.url, started[-1])
        return started[-1]

    yield start
    for running in started:
        running.kill()


def archive_of(folder: Path) -> bytes:
    """Return a small submission."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.ts").write_text("a")
    return tree_bytes(folder)


def test_the_announced_archive_is_unpacked_and_the_daemon_follows(sut: Box, receive: Start, tmp_path: Path) -> None:
    """The driver hands it over once, whatever is lost on the way; its digest is still that of the folder."""
    archive = archive_of(tmp_path / "tree")
    (tmp_path / "candidate.tar").write_bytes(archive)
    running = receive(archive)
    head = {"Authorization": f"Bearer {BEARER}"}
    assert httpx2.put(f"{sut.url}/v1/submission", content=archive, headers=head).status_code == 204
    assert running.wait(10) == 0
    sut.start()
    daemon = sut.client()
    daemon.deliver_submission(tmp_path / "candidate.tar")
    assert daemon.digest(str(sut.folder / "submission")) == of_bytes(archive)


def test_one_flipped_byte_is_refused_and_nothing_unpacked(sut: Box, receive: Start, tmp_path: Path) -> None:
    """The pod keeps waiting for the right one."""
    archive = archive_of(tmp_path / "tree")
    spoilt = archive.replace(b"a.ts", b"b.ts")
    running = receive(archive)
    daemon = sut.client()
    (tmp_path / "spoilt.tar").write_bytes(spoilt)
    with pytest.raises(DigestMismatch):
        daemon.deliver_submission(tmp_path / "spoilt.tar")
    assert list((sut.folder / "submission").iterdir()) == []
    assert running.process.poll() is None


def test_an_archive_that_leaves_its_folder_is_refused(sut: Box, receive: Start, tmp_path: Path) -> None:
    """Whoever made it and whatever its digest."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../planted"))
    receive(out.getvalue())
    (tmp_path / "hostile.tar").write_bytes(out.getvalue())
    with pytest.raises(Unprocessable):
        sut.client().deliver_submission(tmp_path / "hostile.tar")
    assert not (sut.folder / "planted").exists()


def test_nobody_else_can_hand_something_over(sut: Box, receive: Start, tmp_path: Path) -> None:
    """The bearer is asked for before the body is read."""
    archive = archive_of(tmp_path / "tree")
    running = receive(archive)
    assert httpx2.put(f"{sut.url}/v1/submission", content=archive).status_code == 401
    assert running.process.poll() is None


def test_a_receiver_that_is_told_nothing_says_so(sut: Box) -> None:
    """One line naming the setting."""
    running = start_role("receive", sut.folder, sut.told())
    assert running.wait(20) == 2
    assert "PROCTOR_SUBMISSION_DIGEST" in running.output()


def test_a_client_of_nothing_gives_up(tmp_path: Path) -> None:
    """A pod that never comes is a lost one after the first patience."""
    daemon = Daemon("http://127.0.0.1:9", BEARER, first_seconds=0.3)
    with pytest.raises(Exception, match="did not answer"):
        daemon.status("x")
    daemon.close()
