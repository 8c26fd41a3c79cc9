"""A receiver of webhooks in the evaluator's pod, on an unguessable path, which behaves as the case tells it to.

It can answer, refuse first, take an event and lose the answer, or hold the answer back until told: a held delivery is
a point inside the submission's work that the evaluator owns, and proof that the work has got there.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from runner.kit.answers import Fields
from runner.kit.casefile import CaseFile, cut
from runner.kit.faults import SubmissionFailed
from runner.kit.patience import eventually

BODY_BYTES: Final = 1 << 20
DELIVERIES: Final = 20_000
TOTAL_BYTES: Final = 64 << 20
"""Of all deliveries, by what their senders announce: whatever is promised may have to be held."""
HOLD_SECONDS: Final = 90.0


@dataclass(kw_only=True)
class Delivery:
    """One request that arrived."""

    number: int
    headers: Mapping[str, str]
    body: bytes
    at: float
    status: int | None = None
    """What it was answered; none while it is held or when the answer was lost."""
    answered_at: float | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    """Set once this request has ended, answered or not."""

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        try:
            return json.loads(self.body, object_hook=Fields)
        except (ValueError, RecursionError) as error:
            raise SubmissionFailed(f"webhook delivery {self.number} is not JSON: {error}") from error


@dataclass(frozen=True)
class Reply:
    """Answer with this status and, where given, a JSON body."""

    status: int = 200
    body: object = None


@dataclass(frozen=True)
class Lose:
    """Take the event, then close the connection without an answer."""


@dataclass(frozen=True)
class Hold:
    """Withhold the answer until `release`, then answer, if anyone still listens."""

    release: threading.Event = field(default_factory=threading.Event)
    then: Reply = Reply()


Behaviour = Reply | Lose | Hold


class Receiver:
    """The receiver of one case."""

    def __init__(self, host: str, case_file: CaseFile, bind: str = "0.0.0.0") -> None:
        self.deliveries: list[Delivery] = []
        self._behave: Callable[[Delivery], Behaviour] = lambda _: Reply()
        self._lock = threading.Lock()
        self._file = case_file
        self._room = TOTAL_BYTES
        self._path = f"/{secrets.token_urlsafe(24)}"
        self._holds: list[Hold] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent: the case's file has it."""

        self._server = ThreadingHTTPServer((bind, 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://{host}:{self._server.server_port}{self._path}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let go of everything held and stop listening."""
        for hold in self._holds:
            hold.release.set()
        self._server.shutdown()
        self._server.server_close()

    def behave(self, by: Callable[[Delivery], Behaviour]) -> None:
        """Decide by the delivery itself from now on."""
        self._behave = by

    def script(self, *steps: Behaviour, then: Behaviour | None = None) -> None:
        """Behave by these steps for the next deliveries, afterwards as `then` says."""
        left = list(steps)
        last = then or Reply()
        self._behave = lambda _: left.pop(0) if left else last

    def seen(self) -> list[Delivery]:
        """Return the deliveries so far, in order of arrival."""
        with self._lock:
            return list(self.deliveries)

    def wait_for(self, wanted: Callable[[Delivery], bool], sentence: str, *, seconds: float = 20) -> Delivery:
        """Return the first delivery that is wanted."""
        return eventually(lambda: next(filter(wanted, self.seen()), None), sentence, seconds=seconds)

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        length = handler.headers.get("content-length") or "0"
        if handler.path != self._path or not length.isdigit() or int(length) > BODY_BYTES:
            handler.send_error(404)
            return
        headers = {name.lower(): value for name, value in handler.headers.items()}
        if not self._has_room(int(length) + sum(len(name) + len(value) for name, value in headers.items())):
            handler.send_error(503)
            return
        body = handler.rfile.read(int(length))
        with self._lock:
            delivery = Delivery(number=len(self.deliveries) + 1, headers=headers, body=body, at=time.monotonic())
            self.deliveries.append(delivery)
            behaviour = self._behave(delivery)
            if isinstance(behaviour, Hold):
                self._holds.append(behaviour)
        self._file.line(f"webhook {delivery.number} {cut(body.decode(errors='replace'), 400)} → {_named(behaviour)}")
        self._answer(handler, delivery, behaviour)

    def _has_room(self, size: int) -> bool:
        """Take room for a delivery that begins to arrive."""
        with self._lock:
            if size > self._room or len(self.deliveries) >= DELIVERIES:
                return False
            self._room -= size
            return True

    def _answer(self, handler: BaseHTTPRequestHandler, delivery: Delivery, behaviour: Behaviour) -> None:
        handler.close_connection = True
        try:
            if isinstance(behaviour, Lose):
                return
            if isinstance(behaviour, Hold):
                behaviour.release.wait(HOLD_SECONDS)
            reply = behaviour if isinstance(behaviour, Reply) else behaviour.then
            content = b"" if reply.body is None else json.dumps(reply.body).encode()
            handler.send_response(reply.status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(content)))
            # Before the bytes leave: whoever has read the answer must find it noted.
            delivery.status, delivery.answered_at = reply.status, time.monotonic()
            handler.end_headers()
            handler.wfile.write(content)
            handler.wfile.flush()
        except OSError:
            delivery.status = delivery.answered_at = None
            self._file.line(f"webhook {delivery.number}: the sender had gone before the answer")
        finally:
            delivery.gone.set()


def _named(behaviour: Behaviour) -> str:
    return f"answer {behaviour.status}" if isinstance(behaviour, Reply) else type(behaviour).__name__.lower()
