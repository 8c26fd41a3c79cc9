"""The runner's own client against the real hub: what both promise each other holds over a real connection."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.local.postgres import Postgres
from runner.hub import Hub as Client
from tests.hub.builders import KEY, PARTS, Hub, a_case, a_manifest, a_plan, a_trial, an_event, prepare, running_hub
from wire.digest import of_bytes
from wire.errors import DigestMismatch, InvalidInput, Refused
from wire.token import Role, Token, mint

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that a test may kill, if it starts it again."""
    server = Postgres(folder=tmp_path_factory.mktemp("pg"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tcp_hub(own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub on loopback, as drivers in a cluster reach it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("hub")
    with running_hub(folder, own_postgres.url, listen=f"127.0.0.1:{port}", wait_seconds=0.3) as hub:
        prepare(hub)
        yield hub


@pytest.fixture
def connect(tcp_hub: Hub, tmp_path: Path) -> Iterator[Connect]:
    """Makes clients, each with the token of a role and attempt of one trial."""
    clients: list[Client] = []

    def make(role: Role, trial: str, attempt: int = 1) -> Client:
        token = mint(KEY, Token(trial=trial, attempt=attempt, role=role))
        client = Client(f"http://{tcp_hub.settings.listen}", token, trial, tmp_path / f"spool-{len(clients)}")
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def test_a_pod_writes_reads_and_fetches(tcp_hub: Hub, connect: Connect, tmp_path: Path) -> None:
    """Journal, archives, manifest and parts, each by the role that needs them."""
    trial = tcp_hub.put_trial()
    agent, evaluator = connect(Role.AGENT, trial), connect(Role.EVALUATOR, trial)
    agent.journal(*(an_event(number, "x\x00y") for number in range(1100)))
    agent.flush()
    assert len(agent.entries("turnEvent")) == 1100
    (tmp_path / "tree").write_bytes(os.urandom(3 << 20))
    digest = of_bytes((tmp_path / "tree").read_bytes())
    assert not agent.has_archive(digest)
    agent.put_archive(tmp_path / "tree", digest)
    evaluator.get_archive(digest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "tree").read_bytes()
    manifest = evaluator.manifest(a_manifest().digest())
    evaluator.get_part("evaluator", manifest.parts["evaluator"], tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == PARTS["evaluator"]
    with pytest.raises(Refused):
        agent.get_part("evaluator", manifest.parts["evaluator"], tmp_path / "part")


def test_a_dead_attempt_learns_that_it_is_over(tcp_hub: Hub, connect: Connect, tmp_path: Path) -> None:
    """Refusals reach the client as Refused instead of being retried for ever."""
    trial = tcp_hub.put_trial()
    client = connect(Role.EVALUATOR, trial)
    tcp_hub.put_record(a_trial(trial, attempt=2))
    client.journal(a_case("A-01"))
    with pytest.raises(Refused):
        client.flush()
    (tmp_path / "tree").write_bytes(os.urandom(3 << 20))
    with pytest.raises(Refused):
        client.put_archive(tmp_path / "tree", of_bytes((tmp_path / "tree").read_bytes()))
    with pytest.raises(Refused):
        client.entries("caseReported")


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_a_spoilt_archive_ends_in_an_error_and_not_in_a_loop(
    tcp_hub: Hub, connect: Connect, tmp_path: Path, size: int
) -> None:
    """One flipped byte in the store: the driver is told, however large the archive is."""
    trial = tcp_hub.put_trial()
    client = connect(Role.GATE, trial)
    (tmp_path / "tree").write_bytes(os.urandom(size))
    digest = of_bytes((tmp_path / "tree").read_bytes())
    client.put_archive(tmp_path / "tree", digest)
    name = digest.removeprefix("sha256:")
    stored = Path(tcp_hub.settings.store) / name[:2] / name
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(bytes(content))
    with pytest.raises(DigestMismatch):
        client.get_archive(digest, tmp_path / "back")


def test_a_journal_survives_a_dead_database(tcp_hub: Hub, connect: Connect, own_postgres: Postgres) -> None:
    """What a pod wrote while the database was dead is there afterwards, once and in order."""
    trial = tcp_hub.put_trial()
    client = connect(Role.EVALUATOR, trial)
    client.journal(a_plan("A-01", "B-01"))
    client.flush()
    own_postgres.kill()
    client.journal(a_case("A-01"))
    client.journal(a_case("B-01"))
    time.sleep(0.5)
    own_postgres.start()
    client.flush()
    assert [entry.kind for entry in client.entries("suitePlanned", "caseReported")] == [
        "suitePlanned",
        "caseReported",
        "caseReported",
    ]


def test_a_bad_package_digest_is_an_error(tcp_hub: Hub, connect: Connect) -> None:
    """A package that is not this trial's is refused, not waited for."""
    client = connect(Role.EVALUATOR, tcp_hub.put_trial())
    with pytest.raises(InvalidInput):
        client.manifest(of_bytes(b"another"))
