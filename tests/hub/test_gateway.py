"""The gateway stub: it knows who may call and forwards nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from hub.gateway.app import create_app
from hub.serving import server
from tests.hub.builders import KEY, Hub, bearer, wait_until
from wire.errors import InvalidInput
from wire.journal import Settlement
from wire.token import Role

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@contextmanager
def serving_gateway(folder: Path, database_url: str) -> Iterator[httpx2.Client]:
    """Serve a gateway on a Unix socket."""
    socket = folder / "gateway.sock"
    serving = server(create_app(KEY, database_url), f"unix:{socket}")
    thread = threading.Thread(target=serving.run)
    thread.start()
    wait_until(lambda: serving.started)
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://gateway") as client:
        yield client
    serving.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def gateway(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A gateway beside the hub."""
    with serving_gateway(tmp_path_factory.mktemp("gateway"), hub.settings.database_url) as client:
        yield client


def called(gateway: httpx2.Client, role: Role, trial: str, attempt: int) -> tuple[int, str]:
    """Call a model; return the answer's status and code."""
    answer = gateway.post("/v1/responses", json={"model": "m"}, headers=bearer(role, trial, attempt))
    return answer.status_code, answer.json()["error"]["code"]


def test_it_answers_the_canaries(gateway: httpx2.Client) -> None:
    """Untrusted pods check that the gateway is within reach."""
    assert gateway.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role.SANDBOX, (404, "model_not_found")),
        (Role.AGENT, (404, "model_not_found")),
        (Role.USER, (404, "model_not_found")),
        (Role.GATE, (403, "forbidden")),
        (Role.EVALUATOR, (403, "forbidden")),
        (Role.OPERATOR, (403, "forbidden")),
        (None, (401, "invalid_api_key")),
    ],
)
def test_it_knows_who_may_call_models(
    gateway: httpx2.Client, hub: Hub, path: str, role: Role | None, expected: tuple[int, str]
) -> None:
    """Holders of a model scope learn that there is no provider; all others are refused."""
    headers = bearer(role, hub.put_trial(), 1) if role else {}
    answer = gateway.post(path, json={"model": "m"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == expected


def test_a_token_dies_with_its_attempt_and_its_trial(gateway: httpx2.Client, hub: Hub) -> None:
    """A sandbox's token lives as long as its sandbox, a driver's as its attempt, neither longer than the trial."""
    alive, over = (404, "model_not_found"), (403, "attempt_is_over")
    trial = hub.put_trial(attempt=3, sandbox=2)
    assert called(gateway, Role.SANDBOX, trial, 2) == alive
    assert called(gateway, Role.AGENT, trial, 3) == alive
    assert called(gateway, Role.AGENT, trial, 2) == over
    assert called(gateway, Role.SANDBOX, trial, 1) == over
    assert called(gateway, Role.AGENT, "unknown", 1) == over
    hub.settle(trial, Settlement(phase="Cancelled"))
    assert called(gateway, Role.SANDBOX, trial, 2) == over
    assert called(gateway, Role.AGENT, trial, 3) == over


def test_without_its_database_it_answers_canaries_and_lets_nobody_in(tmp_path: Path) -> None:
    """Callers are told to come again, in the shape they expect."""
    with serving_gateway(tmp_path, NOWHERE) as gateway:
        assert gateway.get("/healthz").status_code == 200
        answer = gateway.post("/v1/responses", headers=bearer(Role.AGENT, "t", 1))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("listen", ["", "8080", ":8080", "host:", "host:http"])
def test_a_bad_address_is_refused(listen: str) -> None:
    """An address that is neither host:port nor unix:<path> stops the program with one line."""
    with pytest.raises(InvalidInput, match="listen"):
        server(create_app(KEY, NOWHERE), listen)


def test_a_short_path_is_fine(tmp_path: Path) -> None:
    """Both forms make a server."""
    assert server(create_app(KEY, NOWHERE), f"unix:{tmp_path}/s").config.uds == f"{tmp_path}/s"
    assert server(create_app(KEY, NOWHERE), "[::1]:8081").config.host == "::1"
