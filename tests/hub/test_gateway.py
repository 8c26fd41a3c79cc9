"""The gateway stub: it knows who may call and forwards nothing."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from hub.gateway.app import create_app
from hub.serving import server
from tests.hub.builders import KEY, bearer, wait_until
from wire.errors import InvalidInput
from wire.token import Role


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A gateway that listens on a Unix socket."""
    socket = tmp_path_factory.mktemp("gateway") / "gateway.sock"
    serving = server(create_app(KEY), f"unix:{socket}")
    thread = threading.Thread(target=serving.run)
    thread.start()
    wait_until(lambda: serving.started)
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://gateway") as client:
        yield client
    serving.should_exit = True
    thread.join(timeout=20)


def test_it_answers_the_canaries(gateway: httpx2.Client) -> None:
    """Untrusted pods check that the gateway is within reach."""
    assert gateway.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("role", "status", "code"),
    [
        (Role.SANDBOX, 404, "model_not_found"),
        (Role.AGENT, 404, "model_not_found"),
        (Role.USER, 404, "model_not_found"),
        (Role.GATE, 403, "forbidden"),
        (Role.EVALUATOR, 403, "forbidden"),
        (Role.OPERATOR, 403, "forbidden"),
        (None, 401, "invalid_api_key"),
    ],
)
def test_it_knows_who_may_call_models(
    gateway: httpx2.Client, path: str, role: Role | None, status: int, code: str
) -> None:
    """Holders of a model scope learn that there is no provider; all others are refused."""
    answer = gateway.post(path, json={"model": "m"}, headers=bearer(role, "t", 1) if role else {})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("listen", ["", "8080", ":8080", "host:", "host:http"])
def test_a_bad_address_is_refused(listen: str) -> None:
    """An address that is neither host:port nor unix:<path> stops the program with one line."""
    with pytest.raises(InvalidInput, match="listen"):
        server(create_app(KEY), listen)


def test_a_short_path_is_fine(tmp_path: Path) -> None:
    """Both forms make a server."""
    assert server(create_app(KEY), f"unix:{tmp_path}/s").config.uds == f"{tmp_path}/s"
    assert server(create_app(KEY), "[::1]:8081").config.host == "::1"
