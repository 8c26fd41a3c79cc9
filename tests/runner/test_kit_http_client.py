"""Answers of a hostile submission are taken as they come, and never for more than was sent."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.kit.casefile import CaseFile
from runner.kit.faults import SubmissionFailed
from runner.kit.http_client import ANSWER_BYTES, HttpClient

BOMB = gzip.compress(gzip.compress(bytes(64 << 20)))


class Handler(BaseHTTPRequestHandler):
    """Answers with a bomb, with a redirect, or without end."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("location", "/bomb")
        self.send_header("content-encoding", "gzip, gzip")
        self.send_header("x-asked-for", self.headers.get("accept-encoding", ""))
        self.end_headers()
        self.wfile.write(BOMB)
        with contextlib.suppress(OSError):
            while self.path == "/endless":
                self.wfile.write(bytes(1 << 16))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def client(tmp_path: Path) -> Iterator[HttpClient]:
    """A client of a hostile server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = HttpClient(f"http://127.0.0.1:{server.server_port}", CaseFile(tmp_path), lambda: True)
    yield made
    made.close()
    server.shutdown()
    server.server_close()


def test_an_answer_is_never_unpacked(client: HttpClient) -> None:
    """Nested encodings turn a few bytes into gigabytes; none is asked for and none is undone."""
    answer = client.get("/bomb")
    assert answer.body == BOMB
    assert answer.headers["x-asked-for"] == "identity"


def test_a_redirect_is_not_followed(client: HttpClient) -> None:
    """Where an answer points is no place for this pod to go."""
    assert client.get("/away").status == 302


def test_an_endless_answer_is_cut_off(client: HttpClient) -> None:
    """By size."""
    with pytest.raises(SubmissionFailed, match=str(ANSWER_BYTES)):
        client.get("/endless")
