"""A proxy in front of PostgreSQL that lies once: it acknowledges one write and drops it.

Tests with substance notice. It speaks just enough of the protocol to see what clients send: the COMMIT of the chosen
transaction that inserted rows becomes a ROLLBACK whose answer is renamed; an insert outside a transaction is wrapped
into one that is rolled back. Transactions that change the schema, and the bookkeeping of migrations, are left alone:
losing those would break any test, or none.
"""

import contextlib
import itertools
import re
import socket
import struct
import threading
from enum import Enum
from typing import Final

MESSAGE_BYTES: Final = 64 << 20
HOLD_SECONDS: Final = 30.0
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
_INSERT: Final = re.compile(rb"\binsert\s+into\s+(?!\S*migration)", re.I)
_SCHEMA: Final = re.compile(rb"\b(create|alter|drop|truncate|grant)\s", re.I)
_BEGIN: Final = re.compile(rb"^\s*(begin|start\s+transaction)\b", re.I)
_COMMIT: Final = re.compile(rb"^\s*(commit|end)\b[^;]*;?\s*$", re.I)
_ROLLBACK: Final = re.compile(rb"^\s*(rollback|abort)\b(?!\s+to\b)", re.I)


class _Gone(Exception):
    """The other side has closed."""


class Mode(Enum):
    """What to do with one group of the server's messages, up to its ReadyForQuery."""

    PASS = "pass"
    SWALLOW = "swallow"
    CALM = "calm"
    """Pass it on, but say that no transaction is open."""


class LyingProxy:
    """Listens on its own port and passes everything on to the server but the `at`-th write; none = an honest proxy.

    With `hold`, every write waits there before it is committed: a request is in the middle of its work, provably.
    """

    def __init__(
        self,
        target: tuple[str, int],
        at: int | None = None,
        hold: threading.Event | None = None,
        bind: str = "0.0.0.0",
    ) -> None:
        self._target, self._at, self._hold = target, at, hold
        self._lock = threading.Lock()
        self.writes = 0
        """Committed inserts seen so far."""
        self.dropped: str | None = None
        """The statement that the lie was about, once told."""
        self._server = socket.create_server((bind, 0), backlog=64)
        self.port: int = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        for sock in (self._server, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def is_the_one(self, sql: bytes) -> bool:
        """Count a write and tell whether it is the one to lie about."""
        with self._lock:
            self.writes += 1
            is_it = self.writes - 1 == self._at
            if is_it:
                self.dropped = sql.decode(errors="replace")[:400]
        if self._hold is not None:
            self._hold.wait(HOLD_SECONDS)
        return is_it

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for sock in (client, server):
                # Messages are small and passed on one by one: waiting for acknowledgements would cost 40 ms each.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [client, server]
            threading.Thread(target=_Link(self, client, server).run, daemon=True).start()


class _Link:
    """One client's connection: two threads, one for each direction."""

    def __init__(self, proxy: LyingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._modes: dict[int, Mode] = {}
        self._groups = 1  # The start-up ends with a ReadyForQuery of its own.
        self._rename = threading.Event()
        self._open = False
        self._insert: bytes | None = None
        self._schema = False

    def run(self) -> None:
        """Carry both directions until either side closes."""
        with contextlib.suppress(OSError, _Gone):
            self._start_up()
            threading.Thread(target=self._downstream, daemon=True).start()
            self._upstream()
        self._close()

    def _close(self) -> None:
        for sock in (self._client, self._server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _start_up(self) -> None:
        while True:
            length = struct.unpack("!I", _exactly(self._client, 4))[0]
            if not 8 <= length <= 10_000:
                raise _Gone
            body = _exactly(self._client, length - 4)
            if struct.unpack("!I", body[:4])[0] not in (SSL_REQUEST, GSS_REQUEST):
                self._server.sendall(struct.pack("!I", length) + body)
                return
            self._client.sendall(b"N")

    def _upstream(self) -> None:
        fresh, wrapping = True, False
        while True:
            kind, body = _message(self._client)
            sql = _statement(kind, body)
            if sql is not None:
                if fresh and self._is_lone_lie(sql):
                    wrapping = True
                    self._inject(b"BEGIN", Mode.SWALLOW)
                    self._modes[self._groups] = Mode.CALM
                elif self._is_commit_lie(sql):
                    body = _with_statement(kind, body, b"ROLLBACK")
                    self._rename.set()
            self._server.sendall(_frame(kind, body))
            fresh = kind in (b"Q", b"S", b"F")
            if fresh:
                self._groups += 1
                if wrapping:
                    self._inject(b"ROLLBACK", Mode.SWALLOW)
                    wrapping = False

    def _inject(self, sql: bytes, mode: Mode) -> None:
        self._modes[self._groups] = mode
        self._groups += 1
        self._server.sendall(_frame(b"Q", sql + b"\0"))

    def _is_lone_lie(self, sql: bytes) -> bool:
        """Tell whether this is an insert outside a transaction, and the one to lie about."""
        if self._open or _BEGIN.match(sql) or not _INSERT.search(sql) or _SCHEMA.search(sql):
            return False
        return self._proxy.is_the_one(sql)

    def _is_commit_lie(self, sql: bytes) -> bool:
        """Follow the transaction; tell whether this commits the one to lie about."""
        if _BEGIN.match(sql):
            self._open, self._insert, self._schema = True, None, False
        elif _ROLLBACK.match(sql):
            self._open = False
        elif self._open and _COMMIT.match(sql):
            self._open = False
            return self._insert is not None and not self._schema and self._proxy.is_the_one(self._insert)
        elif self._open:
            self._schema = self._schema or bool(_SCHEMA.search(sql))
            if _INSERT.search(sql):
                self._insert = sql
        return False

    def _downstream(self) -> None:
        with contextlib.suppress(OSError, _Gone):
            for group in itertools.count():
                self._carry_group(group)
        self._close()

    def _carry_group(self, group: int) -> None:
        while True:
            kind, body = _message(self._server)
            # Looked up late: a group's mode is set before the server can have answered it.
            mode = self._modes.get(group, Mode.PASS)
            if kind == b"C" and body == b"ROLLBACK\0" and mode is Mode.PASS and self._rename.is_set():
                self._rename.clear()
                body = b"COMMIT\0"
            if kind == b"Z" and mode is Mode.CALM:
                body = b"I"
            if mode is not Mode.SWALLOW:
                self._client.sendall(_frame(kind, body))
            if kind == b"Z":
                return


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        chunk = sock.recv(min(65536, count - len(parts)))
        if not chunk:
            raise _Gone
        parts += chunk
    return bytes(parts)


def _message(sock: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(sock, 5)
    length = struct.unpack("!I", head[1:])[0]
    if not 4 <= length <= MESSAGE_BYTES:
        raise _Gone
    return head[:1], _exactly(sock, length - 4)


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _statement(kind: bytes, body: bytes) -> bytes | None:
    """Return the SQL that a client's message carries, if any."""
    if kind == b"Q":
        return body.rstrip(b"\0")
    if kind == b"P":
        return body.split(b"\0", 2)[1]
    return None


def _with_statement(kind: bytes, body: bytes, sql: bytes) -> bytes:
    if kind == b"Q":
        return sql + b"\0"
    name, _, rest = body.split(b"\0", 2)
    return name + b"\0" + sql + b"\0" + rest
