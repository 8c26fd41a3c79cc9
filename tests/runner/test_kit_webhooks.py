"""The receiver of webhooks behaves as its case says, and proves what it holds."""

from pathlib import Path

import httpx2
import pytest

from runner.kit.casefile import CaseFile, cut
from runner.kit.faults import SubmissionFailed
from runner.kit.openapi import OpenApi
from runner.kit.patience import eventually
from runner.kit.webhooks import BODY_BYTES, TOTAL_BYTES, Hold, Lose, Receiver, Reply


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    """A receiver on loopback."""
    return Receiver("127.0.0.1", CaseFile(tmp_path), bind="127.0.0.1")


def send(receiver: Receiver, body: dict[str, str], seconds: float = 5) -> int:
    """Send one event and return the answer's status."""
    return httpx2.post(receiver.url, json=body, timeout=seconds, trust_env=False).status_code


def test_it_refuses_loses_and_answers_in_turn(receiver: Receiver) -> None:
    """A lost answer was an event taken all the same."""
    receiver.script(Reply(503), Lose())
    assert send(receiver, {"id": "1"}) == 503
    with pytest.raises(httpx2.HTTPError):
        send(receiver, {"id": "1"})
    assert send(receiver, {"id": "1"}) == 200
    assert [delivery.status for delivery in receiver.seen()] == [503, None, 200]
    receiver.close()


def test_a_held_delivery_is_not_answered_until_told(receiver: Receiver) -> None:
    """It is seen at once, and its sender's patience may end first."""
    hold = Hold(then=Reply(200, {"grant": "late"}))
    receiver.script(hold)
    with pytest.raises(httpx2.ReadTimeout):
        send(receiver, {"id": "1"}, seconds=0.3)
    held = receiver.wait_for(lambda delivery: delivery.json["id"] == "1", "it should arrive")
    assert held.status is None
    hold.release.set()
    assert eventually(held.gone.is_set, "the request should end", seconds=5)
    receiver.close()


def test_only_the_unguessable_path_is_heard(receiver: Receiver) -> None:
    """A submission that scans ports learns and changes nothing."""
    base = receiver.url.rsplit("/", 1)[0]
    assert httpx2.post(f"{base}/guess", json={}, trust_env=False).status_code == 404
    assert receiver.seen() == []
    receiver.close()


def test_a_malformed_delivery_is_the_submissions_failure(receiver: Receiver) -> None:
    """When a case reads it."""
    httpx2.post(receiver.url, content=b"{", trust_env=False)
    with pytest.raises(SubmissionFailed, match="not JSON"):
        _ = receiver.seen()[0].json
    receiver.close()


def test_evidence_is_bounded(tmp_path: Path) -> None:
    """Whatever a submission says, and however much of it."""
    file = CaseFile(tmp_path)
    for number in range(5000):
        file.line(f"{number} " + "x" * 5000)
    for number in range(100):
        file.text(f"log {number}", "y" * 1_000_000)
    evidence = file.evidence()
    assert len(evidence) <= 32
    assert sum(len(item.text) for item in evidence) < 600_000
    assert evidence[0].text.startswith("0 x")
    assert cut("a\0b", 10) == "a\\0b"


def test_a_hostile_document_is_its_own_fault() -> None:
    """References may not leave it, and what is missing in it is said."""
    with pytest.raises(SubmissionFailed, match=r"3\.1"):
        OpenApi({"openapi": "2.0", "paths": {}})
    with pytest.raises(SubmissionFailed, match="paths"):
        OpenApi([])


def test_half_a_character_does_not_cost_a_case_its_report(tmp_path: Path) -> None:
    """Legal in JSON, and yet no text: whoever quotes it in an answer must not become unresolved by it."""
    file = CaseFile(tmp_path)
    file.line("said \ud800")
    file.text("log \ud800", "\udfff")
    assert [(item.name, item.text) for item in file.evidence()] == [
        ("exchanges", "said \\ud800"),
        ("log \\ud800", "\\udfff"),
    ]


def test_deliveries_are_bounded_in_bytes(receiver: Receiver) -> None:
    """Its memory is this pod's: beyond its room nothing more is taken, whoever knows the path."""
    body = b"x" * BODY_BYTES
    answers = [
        httpx2.post(receiver.url, content=body, trust_env=False).status_code for _ in range(TOTAL_BYTES // BODY_BYTES)
    ]
    assert answers == [200] * (len(answers) - 1) + [503]
    receiver.close()
