"""The hub's client: nothing is lost while the hub is away, and nothing wrong is taken for right."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.hub import BATCH_ENTRIES, Hub
from tests.runner.fakes import FakeHub
from wire.digest import of_bytes
from wire.errors import DigestMismatch, Refused
from wire.journal import TurnEvent


@pytest.fixture
def client(hub: FakeHub, tmp_path: Path) -> Iterator[Hub]:
    """A client with a spool of its own."""
    made = Hub(hub.url, "token", "uid", tmp_path / "spool")
    yield made
    made.close()


def event(number: int) -> TurnEvent:
    """Return an entry."""
    return TurnEvent(turn=1, attempt=1, sequence=number, at="2026-01-01T00:00:00.000Z", event="note", text="ü" * 10)


def test_entries_arrive_in_order_and_once(client: Hub, hub: FakeHub) -> None:
    """More than a batch, some sent twice."""
    entries = [event(number) for number in range(3 * BATCH_ENTRIES)]
    client.journal(*entries)
    client.journal(*entries[:10])
    client.flush()
    assert list(hub.rows.values()) == entries
    assert client.entries("turnEvent") == entries


def test_entries_wait_on_disk_while_the_hub_is_away(client: Hub, hub: FakeHub, tmp_path: Path) -> None:
    """Writing goes on, flushing waits, and everything arrives in the end."""
    hub.is_away = True
    client.journal(event(1))
    flushing = threading.Thread(target=client.flush)
    flushing.start()
    client.journal(event(2))
    assert b'"sequence":2' in (tmp_path / "spool" / "journal.jsonl").read_bytes()
    flushing.join(0.5)
    assert flushing.is_alive()
    hub.is_away = False
    flushing.join(20)
    client.flush()
    assert len(hub.rows) == 2


def test_what_a_dead_container_left_is_sent_by_the_next(hub: FakeHub, tmp_path: Path) -> None:
    """Whole lines are; a line that was cut by the crash was never promised."""
    hub.is_away = True
    first = Hub(hub.url, "token", "uid", tmp_path / "spool")
    first.journal(event(1), event(2))
    first.close()
    with (tmp_path / "spool" / "journal.jsonl").open("ab") as spool:
        spool.write(b'{"kind": "turnEv')
    hub.is_away = False
    second = Hub(hub.url, "token", "uid", tmp_path / "spool")
    second.journal(event(3))
    second.flush()
    second.close()
    assert [key.rpartition("/")[2] for key in hub.rows] == ["1", "2", "3"]


def test_an_attempt_that_is_over_is_told_at_the_next_word(client: Hub, hub: FakeHub) -> None:
    """A pod that the operator has replaced must not go on for ever."""
    hub.attempt_is_over = True
    client.journal(event(1))
    with pytest.raises(Refused):
        client.flush()
    with pytest.raises(Refused):
        client.journal(event(2))


def test_archives_go_up_once_and_come_back(client: Hub, hub: FakeHub, tmp_path: Path) -> None:
    """What is there already is not sent again."""
    (tmp_path / "a").write_bytes(b"content" * 100_000)
    digest = of_bytes(b"content" * 100_000)
    client.put_archive(tmp_path / "a", digest)
    client.put_archive(tmp_path / "a", digest)
    client.get_archive(digest, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert hub.uploads == 1


def test_one_flipped_byte_is_refused(client: Hub, hub: FakeHub, tmp_path: Path) -> None:
    """And nothing of it is left for anyone to use."""
    digest = of_bytes(b"right")
    hub.archives[digest] = b"right"
    hub.spoil = True
    with pytest.raises(DigestMismatch):
        client.get_archive(digest, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_download_that_breaks_is_made_again(client: Hub, hub: FakeHub, tmp_path: Path) -> None:
    """A cut stream is a lost connection, not another content."""
    digest = of_bytes(b"x" * 1_000_000)
    hub.archives[digest] = b"x" * 1_000_000
    hub.cut_downloads = 2
    client.get_archive(digest, tmp_path / "b")
    assert (tmp_path / "b").stat().st_size == 1_000_000


def test_a_hub_that_comes_back_is_found(client: Hub, hub: FakeHub) -> None:
    """Any question waits as long as it takes."""
    hub.is_away = True
    threading.Timer(1.0, lambda: setattr(hub, "is_away", False)).start()
    begun = time.monotonic()
    assert client.entries("turnEvent") == []
    assert time.monotonic() - begun > 0.8
