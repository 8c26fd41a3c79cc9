"""A page in the evaluator's browser is hostile: it gets nowhere but home, and leaves nothing on the disk."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runner.kit.browser import Chromium
from runner.kit.casefile import CaseFile
from runner.kit.faults import SubmissionFailed

HOME, ELSEWHERE = "127.0.0.8", "127.0.0.9"
CHROMIUM = "/usr/bin/chromium"
PAGE = """<h1>home</h1><script>
fetch("http://{elsewhere}/direct", {{mode: "no-cors"}}).catch(() => 0);
fetch("/away", {{mode: "no-cors"}}).catch(() => 0);
window.open("http://{elsewhere}/popup");
for (const path of ["/away", "/endless"]) {{
  const frame = document.createElement("iframe");
  frame.src = path;
  document.body.append(frame);
}}
const socket = new WebSocket("ws://{elsewhere}/socket");
const done = () => document.body.insertAdjacentHTML("beforeend", "<p role='status'>tried</p>");
socket.onclose = () => fetch("/away", {{mode: "no-cors"}}).then(done, done);
</script>"""
DOWNLOAD_LIMIT_BYTES = 64 << 20
PIECE = bytes(1 << 20)
Answer = Callable[[BaseHTTPRequestHandler], None]


def serve(host: str, answer: Answer) -> ThreadingHTTPServer:
    """Start a server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Hostile:
    """A submission whose page tries every way out, and a bystander that should never hear of it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.downloaded = 0
        self.bystander = serve(ELSEWHERE, self._hear)
        self.elsewhere = f"{ELSEWHERE}:{self.bystander.server_port}"
        self.server = serve(HOME, self._answer)
        self.url = f"http://{HOME}:{self.server.server_port}"

    def close(self) -> None:
        """Stop listening."""
        for server in (self.server, self.bystander):
            server.shutdown()
            server.server_close()

    def _hear(self, request: BaseHTTPRequestHandler) -> None:
        self.heard.append(request.path)
        request.send_response(200)
        request.end_headers()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        targets = {"/away": f"http://{self.elsewhere}/redirected", "/file": "file:///etc/passwd"}
        request.send_response(302 if request.path in targets else 200)
        if request.path in targets:
            request.send_header("location", targets[request.path])
        if request.path == "/endless":
            request.send_header("content-disposition", "attachment; filename=x")
        request.send_header("content-type", "text/html")
        request.end_headers()
        if request.path == "/":
            request.wfile.write(PAGE.format(elsewhere=self.elsewhere).encode())
        with contextlib.suppress(OSError):
            while request.path == "/endless" and self.downloaded < DOWNLOAD_LIMIT_BYTES:
                request.wfile.write(PIECE)
                self.downloaded += len(PIECE)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    """The submission."""
    made = Hostile()
    yield made
    made.close()


def test_a_page_gets_nowhere_but_home(hostile: Hostile, tmp_path: Path) -> None:
    """Neither by a request, a redirect, a new window nor a WebSocket; and no download is taken."""
    chromium = Chromium(CHROMIUM, HOME)
    page = chromium.open(hostile.url, CaseFile(tmp_path))
    page.goto("/")
    assert page.wait_for("heading", name="home") == "home"
    assert page.wait_for("status") == "tried"
    with pytest.raises(SubmissionFailed, match="UNSAFE_REDIRECT"):
        page.goto("/file")
    page.close()
    chromium.close()
    assert hostile.heard == []
    assert hostile.downloaded < DOWNLOAD_LIMIT_BYTES
