"""The database may go away and come back at any moment: nothing is lost, doubled or half written."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.local.postgres import Postgres
from tests.hub.builders import Hub, a_case, a_plan, an_event, graded, prepare, running_hub, wait_until
from wire.digest import of_bytes
from wire.report import JournalRow
from wire.token import Role


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that a test may kill, if it starts it again."""
    server = Postgres(folder=tmp_path_factory.mktemp("pg"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def own_hub(own_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub over that server."""
    with running_hub(tmp_path_factory.mktemp("hub"), own_postgres.url, wait_seconds=0.3) as hub:
        prepare(hub)
        yield hub


def journal_of(hub: Hub, trial: str) -> list[str]:
    """Return the keys of a trial's journal."""
    return [JournalRow.model_validate(row).entry.key() for row in hub.client.get(f"/v1/trials/{trial}/journal").json()]


def test_a_dead_database_is_waited_out(own_hub: Hub, own_postgres: Postgres) -> None:
    """While it is dead every call says 503 and when to return, liveness stays; afterwards all works by itself."""
    trial = own_hub.put_trial()
    own_postgres.kill()
    calls = [
        own_hub.send(trial, Role.AGENT, an_event(1)),
        own_hub.client.get("/v1/runs"),
        own_hub.client.put(f"/v1/archives/{of_bytes(b'x')}", content=b"x"),
        own_hub.client.get("/readyz"),
    ]
    assert [(one.status_code, one.json()["error"]["reason"]) for one in calls] == [(503, "NotReady")] * 4
    assert all(int(one.headers["Retry-After"]) >= 1 for one in calls)
    assert own_hub.client.get("/healthz").status_code == 200
    own_postgres.start()
    wait_until(lambda: own_hub.client.get("/readyz").status_code == 200, seconds=5)
    assert own_hub.send(trial, Role.AGENT, an_event(1)).json() == {"stored": 1}


def test_senders_that_insist_lose_and_double_nothing(own_hub: Hub, own_postgres: Postgres) -> None:
    """Four senders go on through two crashes; each entry is stored once, and every accepted one is there."""
    trial = own_hub.put_trial()
    stop = threading.Event()
    sent: list[str] = []

    def insist(sender: int) -> None:
        number = sender
        while not stop.is_set():
            event = an_event(number)
            if own_hub.send(trial, Role.AGENT, event).status_code == 200:
                sent.append(event.key())
                number += 4

    senders = [threading.Thread(target=insist, args=(sender,)) for sender in range(4)]
    for sender in senders:
        sender.start()
    for _ in range(2):
        time.sleep(0.3)
        own_postgres.kill()
        time.sleep(0.3)
        own_postgres.start()
        before = len(sent)
        wait_until(lambda seen=before: len(sent) > seen + 8)  # type: ignore[misc]  # mypy wants no default in lambdas
    stop.set()
    for sender in senders:
        sender.join()
    stored = journal_of(own_hub, trial)
    assert len(stored) == len(set(stored))
    assert set(sent) <= set(stored)
    # An entry may have been stored by a call whose answer was lost; never the other way round.
    assert len(set(stored) - set(sent)) <= 4


def test_a_settlement_through_a_crash_is_one(own_hub: Hub, own_postgres: Postgres) -> None:
    """A settlement that is repeated until it is answered counts everything and stands."""
    trial = own_hub.put_trial()
    assert own_hub.send(trial, Role.EVALUATOR, a_plan("A-01"), a_case("A-01")).is_success
    own_postgres.kill()
    assert own_hub.settle(trial, graded()).status_code == 503
    own_postgres.start()
    wait_until(lambda: own_hub.settle(trial, graded()).status_code == 200)
    assert own_hub.settle(trial, graded()).json()["result"]["passed"] == 1


def test_a_hub_may_be_started_before_its_database(tmp_path: Path) -> None:
    """It listens at once, says that it is not ready, and prepares the database when that appears."""
    postgres = Postgres(folder=tmp_path / "pg", durable=False)
    with running_hub(tmp_path / "hub", postgres.url, wait_seconds=0.3) as hub:
        assert hub.client.get("/healthz").status_code == 200
        assert hub.client.get("/readyz").status_code == 503
        assert hub.client.get("/v1/runs").status_code == 503
        postgres.start()
        wait_until(lambda: hub.client.get("/readyz").status_code == 200)
        assert hub.client.get("/v1/runs").json() == []
    postgres.stop()


def test_a_restarted_hub_knows_everything(database_url: str, tmp_path: Path) -> None:
    """Nothing that matters is in memory."""
    with running_hub(tmp_path / "hub", database_url) as hub:
        prepare(hub)
        trial = hub.put_trial()
        assert hub.send(trial, Role.EVALUATOR, a_plan("A-01"), a_case("A-01")).is_success
        result = hub.settle(trial, graded()).json()
    with running_hub(tmp_path / "hub", database_url) as hub:
        wait_until(lambda: hub.client.get("/readyz").status_code == 200)
        assert hub.settle(trial, graded()).json() == result
        assert hub.client.get(f"/v1/archives/{of_bytes(b'user part')}").content == b"user part"


def test_a_store_that_is_away_is_waited_out(own_hub: Hub) -> None:
    """Without its folder the store is not ready; when the folder is back, so is the hub."""
    store = Path(own_hub.settings.store)
    away = store.with_name("away")
    store.rename(away)
    assert own_hub.client.get("/readyz").status_code == 503
    assert own_hub.client.put(f"/v1/archives/{of_bytes(b'x')}", content=b"x").status_code == 503
    away.rename(store)
    assert own_hub.client.get("/readyz").status_code == 200
    assert own_hub.client.put(f"/v1/archives/{of_bytes(b'x')}", content=b"x").status_code == 200
