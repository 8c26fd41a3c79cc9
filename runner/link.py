"""HTTP to a server that may go away: every call is repeated until it is answered or patience is over.

Only idempotent calls may go through here. What an answer means is the caller's business (`runner.daemon`,
`runner.hub`); this module knows connection loss, "not now" answers and our one error shape.
"""

import io
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import httpx2

from runner.errors import (
    CanaryAnswered,
    Conflict,
    Missing,
    NotNow,
    PackageMalformed,
    SandboxLost,
    TooLarge,
    Unprocessable,
    Unreachable,
)
from wire.errors import Broken, DigestMismatch, InvalidInput, ProctorError, Refused

T = TypeVar("T")
BACKOFF_SECONDS: Final = (0.1, 5.0)
ANSWER_SECONDS: Final = 30.0
"""For an answer's next bytes, beyond what a long poll asked for."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a silent server is waited for; None: as long as the pod lives."""

    first_seconds: float | None = None
    """For the first answer ever: the other pod may still be pulling its image."""
    silence_seconds: float | None = None


class Link:
    """One server, one bearer, one connection pool."""

    def __init__(self, url: str, bearer: str, patience: Patience, later: frozenset[int]) -> None:
        """`later` holds the status codes that mean "ask again" and not "no"."""
        self._client = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {bearer}"},
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=5.0),
            # A pod's environment may carry a proxy for its own world; pods of a trial talk directly.
            trust_env=False,
        )
        self._patience = patience
        self._later = later
        self._heard = time.monotonic()
        self._has_answered = False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def retry(self, call: Callable[[httpx2.Client], T]) -> T:
        """Make a call until it is answered. The call raises what `check` raises, or httpx2's transport errors.

        Raises:
            Unreachable: nobody answered for as long as patience says.
        """
        pause, cap = BACKOFF_SECONDS
        while True:
            try:
                result = call(self._client)
            except httpx2.TransportError as error:
                self._bear(error)
            except NotNow:
                self._note_answer()
            except ProctorError:
                self._note_answer()
                raise
            else:
                self._note_answer()
                return result
            # Jitter, so that many pods do not come back at one moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(cap, pause * 2)

    def request(self, method: str, path: str, **options: object) -> httpx2.Response:
        """Make a plain call with a small answer; `options` are httpx2's."""

        def call(client: httpx2.Client) -> httpx2.Response:
            response = client.request(method, path, **options)  # type: ignore[arg-type]  # httpx2 checks them itself
            self.check(response)
            return response

        return self.retry(call)

    def check(self, response: httpx2.Response) -> None:
        """Turn a refusal into the error that says what to do about it."""
        if response.status_code < 400:
            return
        response.read()
        reason, words = _refusal(response)
        message = f"{response.request.method} {response.request.url.path}: {response.status_code} {words}"
        if response.status_code in self._later:
            raise NotNow(message)
        raise (_REASONS.get(reason) or _KINDS.get(response.status_code, Broken))(message)

    def _note_answer(self) -> None:
        self._heard, self._has_answered = time.monotonic(), True

    def _bear(self, error: Exception) -> None:
        patience = self._patience.silence_seconds if self._has_answered else self._patience.first_seconds
        silent = time.monotonic() - self._heard
        if patience is not None and silent > patience:
            raise Unreachable(f"{self._client.base_url} did not answer for {silent:.0f} s: {error}") from error


def opened(archive: Path | bytes) -> BinaryIO:
    """Open an archive for an upload; a repeated call opens it again."""
    return archive.open("rb") if isinstance(archive, Path) else io.BytesIO(archive)


def chunks(content: BinaryIO) -> Iterator[bytes]:
    """Yield a file in pieces."""
    while chunk := content.read(1 << 20):
        yield chunk


def length(archive: Path | bytes) -> dict[str, str]:
    """Return the header that lets the other side notice a cut upload."""
    size = archive.stat().st_size if isinstance(archive, Path) else len(archive)
    return {"Content-Length": str(size)}


_REASONS: Final[dict[str, type[ProctorError]]] = {
    kind.reason: kind for kind in (DigestMismatch, CanaryAnswered, SandboxLost, PackageMalformed, TooLarge)
}
_KINDS: Final[dict[int, type[ProctorError]]] = {
    400: InvalidInput,
    401: Refused,
    403: Refused,
    404: Missing,
    409: Conflict,
    413: Unprocessable,
    422: Unprocessable,
}


def _refusal(response: httpx2.Response) -> tuple[str, str]:
    """Return reason and words of a refusal, bounded; the other side may be anything."""
    try:
        error = response.json()["error"]
        return str(error["reason"]), str(error["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return "", response.text[:500]
