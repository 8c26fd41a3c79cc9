"""The journal: every key once, in order, whatever senders and networks do."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hub.builders import Hub, a_case, an_event, bearer
from wire.digest import canonical
from wire.report import JournalRow
from wire.token import Role


def rows(hub: Hub, trial: str, query: str = "") -> list[JournalRow]:
    """Return a trial's journal as the operator reads it."""
    answer = hub.client.get(f"/v1/trials/{trial}/journal{query}")
    assert answer.status_code == 200, answer.text
    return [JournalRow.model_validate(row) for row in answer.json()]


def test_a_key_is_stored_once_however_often_it_is_sent(hub: Hub) -> None:
    """Sending again stores nothing and changes nothing, even with another body."""
    trial = hub.put_trial()
    assert hub.send(trial, Role.AGENT, an_event(1, "first"), an_event(2)).json() == {"stored": 2}
    assert hub.send(trial, Role.AGENT, an_event(1, "second"), an_event(3), an_event(3)).json() == {"stored": 1}
    assert [row.entry for row in rows(hub, trial)] == [an_event(1, "first"), an_event(2), an_event(3)]


def test_concurrent_senders_of_the_same_entries_store_one_set(hub: Hub) -> None:
    """Eight senders of overlapping batches leave each entry once."""
    trial = hub.put_trial()
    batches = [[an_event(number) for number in range(start, start + 20)] for start in (0, 5, 10, 15) * 2]
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda batch: hub.send(trial, Role.AGENT, *batch).json()["stored"], batches))
    assert sum(stored) == 35
    assert len({row.entry.key() for row in rows(hub, trial)}) == len(rows(hub, trial)) == 35


def test_reading_on_never_skips_what_is_written_meanwhile(hub: Hub) -> None:
    """A reader that goes on after the last sequence number it saw sees every row of concurrent writers."""
    trial = hub.put_trial()
    seen: list[str] = []
    done = threading.Event()

    def read() -> None:
        after, is_last = 0, False
        while not is_last:
            is_last = done.is_set()
            for row in rows(hub, trial, f"?after={after}"):
                seen.append(row.entry.key())
                after = row.sequence

    reader = threading.Thread(target=read)
    reader.start()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: hub.send(trial, Role.AGENT, an_event(number)), range(120)))
    done.set()
    reader.join()
    assert len(seen) == len(set(seen)) == 120


def test_text_comes_back_byte_for_byte(hub: Hub) -> None:
    """What agents print is kept as it is: NUL, control characters, other planes, JSON in JSON."""
    trial = hub.put_trial()
    event = an_event(1, 'a\x00b\x1b[31m é 漢字 🚀 {"\\u0000": 1}')
    assert hub.send(trial, Role.AGENT, event).json() == {"stored": 1}
    assert canonical(rows(hub, trial)[0].entry.dump()) == canonical(event.dump())


def test_pages_end_and_go_on(hub: Hub) -> None:
    """A page holds at most 1000 rows; `after` goes on behind it, `kind` narrows it."""
    trial = hub.put_trial()
    for start in (0, 600):
        assert hub.send(trial, Role.AGENT, *(an_event(number) for number in range(start, start + 600))).is_success
    first = rows(hub, trial)
    rest = rows(hub, trial, f"?after={first[-1].sequence}")
    assert (len(first), len(rest)) == (1000, 200)
    assert rows(hub, trial, "?kind=gateReported&kind=turnSealed") == []


CASE = (
    b'[{"kind": "caseReported", "case": "A-01", "attempt": 1, "shard": 0, "outcome": "passed", "at": "",'
    b' "seconds": SECONDS}]'
)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(b"[{}]", 422, "kind", id="no kind"),
        pytest.param(b"{", 422, "JSON", id="no JSON"),
        pytest.param(b'[{"kind": "turnEvent", "turn": 1}]', 422, "0.turnEvent.attempt", id="a missing field"),
        pytest.param(b'[{"kind": "turnEvent", "turn": "\\ud800"}]', 422, "", id="half a surrogate pair"),
        pytest.param(CASE.replace(b"SECONDS", b"NaN"), 422, "finite", id="no number"),
        pytest.param(CASE.replace(b"SECONDS", b"1e999"), 422, "finite", id="a number without end"),
        pytest.param(b" " * ((8 << 20) + 1), 413, "8388608", id="too large"),
    ],
)
def test_bad_batches_get_one_clear_error(hub: Hub, body: bytes, status: int, message: str) -> None:
    """A batch that cannot be understood is refused whole, naming the field."""
    trial = hub.put_trial()
    answer = hub.client.post(f"/v1/trials/{trial}/journal", content=body, headers=bearer(Role.AGENT, trial, 1))
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
    assert rows(hub, trial) == []


def test_a_batch_with_one_foreign_entry_stores_nothing(hub: Hub) -> None:
    """An agent's batch that holds a case's outcome is refused as a whole."""
    trial = hub.put_trial()
    answer = hub.send(trial, Role.AGENT, an_event(1), a_case("A-01"))
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "Refused")
    assert rows(hub, trial) == []


def test_nobody_writes_what_a_later_attempt_will_have_to_say(hub: Hub) -> None:
    """A key is stored once: a stolen token could otherwise speak for attempts whose tokens are not even minted."""
    trial = hub.put_trial()
    answer = hub.send(trial, Role.EVALUATOR, a_case("A-01"), a_case("B-01", attempt=2))
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "Refused")
    assert rows(hub, trial) == []
