"""HTTP to one instance of the submission: bounded in time and size, every exchange on the case's file.

A connection that fails is the submission's fault only while its sandbox still answers; else nothing is known.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2

from runner.kit.answers import Answer
from runner.kit.casefile import CaseFile
from runner.kit.faults import KitFailed, SubmissionFailed

ANSWER_BYTES: Final = 4 << 20
SECONDS: Final = 15.0


class HttpClient:
    """Speaks to one base URL; safe to use from many threads at once."""

    def __init__(self, base: str, case_file: CaseFile, is_sut_alive: Callable[[], bool]) -> None:
        self.base = base
        self._file = case_file
        self._is_sut_alive = is_sut_alive
        limits = httpx2.Limits(max_connections=256, max_keepalive_connections=64)
        # Nothing is unpacked: encodings can be nested, and then a few bytes become more than this pod's memory.
        plain = {"accept-encoding": "identity"}
        # trust_env off: a proxy of the machine must never see, or answer, what a case asks.
        self._http = httpx2.Client(base_url=base, limits=limits, headers=plain, timeout=SECONDS, trust_env=False)

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def get(self, path: str, **more: Any) -> Answer:
        """Send a GET; `more` as for `send`."""
        return self.send("GET", path, **more)

    def post(self, path: str, body: object = None, **more: Any) -> Answer:
        """Send a POST with a JSON body; `more` as for `send`."""
        return self.send("POST", path, body=body, **more)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Answer:
        """Send one request and return the whole answer; bytes are sent as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if body is not None:
            sent.setdefault("content-type", "application/json")
        begun = time.monotonic()
        try:
            answer = self._exchange(method, path, content, sent, begun + seconds)
        except (httpx2.HTTPError, httpx2.InvalidURL, SubmissionFailed) as error:
            self._file.line(f"{method} {path} {_shown(content)} → {type(error).__name__}: {error}")
            if isinstance(error, SubmissionFailed):
                raise
            raise self._blame(f"{method} {path}: {type(error).__name__}: {error}") from error
        self._file.line(
            f"{method} {path} {_shown(sent)} {_shown(content)} → {answer.status} in {answer.seconds * 1000:.0f} ms: "
            f"{_shown(answer.body)}"
        )
        return answer

    def _exchange(self, method: str, path: str, content: bytes | None, headers: dict[str, str], end: float) -> Answer:
        begun = time.monotonic()
        body = bytearray()
        timeout = max(0.01, end - begun)
        with self._http.stream(method, path, content=content, headers=headers, timeout=timeout) as response:
            # By the clock as well: the client's own limit counts from byte to byte, and a submission may drip.
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > ANSWER_BYTES:
                    raise SubmissionFailed(f"{method} {path}: the answer is longer than {ANSWER_BYTES} bytes")
                if time.monotonic() > end:
                    raise SubmissionFailed(f"{method} {path}: the answer took too long")
            kept = {name.lower(): value for name, value in response.headers.items()}
            return Answer(f"{method} {path}", response.status_code, kept, bytes(body), time.monotonic() - begun)

    def _blame(self, sentence: str) -> SubmissionFailed | KitFailed:
        if self._is_sut_alive():
            return SubmissionFailed(sentence)
        return KitFailed(f"{sentence}; the sandbox does not answer either")


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return json.dumps(value)
