"""Client of a sandbox daemon: how trusted pods run commands and move trees in an untrusted one.

Every call survives lost connections: commands are named, started once however often they are sent, and their output
is read from an offset. A daemon that is silent for `SILENCE_SECONDS` is `SandboxLost`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx2

from runner.errors import CanaryAnswered, Missing, SandboxLost, TooLarge, Unreachable
from runner.link import Link, Patience, chunks, length, opened
from wire.archive import BYTES_LIMIT
from wire.digest import Digest, Hasher
from wire.errors import Broken
from wire.journal import Canaries
from wire.sandbox import END_HEADER, CommandSpec, CommandState, CommandStatus

T = TypeVar("T")
FIRST_SECONDS: Final = 600.0
SILENCE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 20.0
TAIL_BYTES: Final = 16384
TREE_SECONDS: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A command that is over."""

    status: CommandStatus
    tail: bytes
    """The end of what it printed."""

    @property
    def passed(self) -> bool:
        """Tell whether it exited with 0."""
        return self.status.exit_code == 0

    @property
    def seconds(self) -> float:
        """How long it ran, by the sandbox's clock."""
        return max(0.0, (self.status.ended_at or self.status.started_at) - self.status.started_at)


class Daemon:
    """One untrusted pod's daemon. Safe to use from several threads."""

    def __init__(
        self, url: str, bearer: str, *, first_seconds: float = FIRST_SECONDS, silence_seconds: float = SILENCE_SECONDS
    ) -> None:
        self.url = url
        patience = Patience(first_seconds=first_seconds, silence_seconds=silence_seconds)
        self._link = Link(url, bearer, patience, later=frozenset({503}))

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    @property
    def host(self) -> str:
        """Address of the pod; the submission's servers listen there too."""
        return httpx2.URL(self.url).host

    # Life

    def canaries(self) -> Canaries:
        """Wait until the daemon may run commands, and return what it could reach.

        Raises:
            CanaryAnswered: something that must not answer did, or the gateway did not.
        """
        seen = Canaries.model_validate_json(self._request("GET", "/v1/canaries").content)
        bad = [name for name, was_refused in seen.refused.items() if not was_refused]
        if bad or (seen.refused and not seen.gateway_answers):
            what = f"reaches {', '.join(sorted(bad))}" if bad else "does not reach the gateway"
            raise CanaryAnswered(f"the untrusted pod {seen.pod} {what}; are network policies enforced?")
        return seen

    def deliver_submission(self, archive: Path) -> None:
        """Hand a sut's init step the archive it waits for, then wait for the daemon that starts after it.

        Raises:
            InvalidInput: the receiver refused it (`DigestMismatch`: not the bytes it was told to expect).
        """
        while (role := self._role()) == "receive":
            try:
                self._upload("/v1/submission", archive)
            except Missing:
                continue  # it was received before, and the daemon took the receiver's place meanwhile
            # The receiver leaves before the daemon comes.
            time.sleep(0.05)
        if role != "sandbox":
            raise Broken(f"{self.url} is neither a receiver nor a daemon but {role!r}")

    # Commands

    def put_command(self, command: str, spec: CommandSpec) -> CommandStatus:
        """Start a command, once however often it is asked for."""
        body = spec.model_dump_json(by_alias=True, exclude_none=True)
        return self._status(self._request("PUT", f"/v1/commands/{command}", content=body))

    def status(self, command: str, wait_seconds: float = 0.0) -> CommandStatus | None:
        """Return how a command stands, after waiting up to `wait_seconds` for its end; None: it was never started."""
        try:
            return self._status(self._poll(f"/v1/commands/{command}", {"wait": wait_seconds}, wait_seconds))
        except Missing:
            return None

    def wait(self, command: str, timeout_seconds: float | None = None) -> CommandStatus:
        """Wait for a command's end; with a timeout, return the status as it stands then."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
            status = self.status(command, max(0.0, left))
            if status is None:
                raise Missing(f"the command {command} was never started")
            if status.state is CommandState.EXITED or left <= 0:
                return status

    def output(self, command: str, offset: int = 0, wait_seconds: float = 0.0) -> tuple[bytes, bool]:
        """Return some output from an offset on, and whether there will be no more after it."""
        parameters = {"offset": offset, "wait": wait_seconds}
        response = self._poll(f"/v1/commands/{command}/output", parameters, wait_seconds)
        return response.content, response.headers.get(END_HEADER) == "true"

    def follow(self, command: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a command's output from an offset on, until its end."""
        is_over = False
        while not is_over:
            piece, is_over = self.output(command, offset, POLL_SECONDS)
            offset += len(piece)
            if piece:
                yield piece

    def run(self, command: str, spec: CommandSpec, on_output: Callable[[bytes], None] | None = None) -> Finished:
        """Run a command to its end, or join it where it runs already. `on_output` gets everything it printed."""
        self.put_command(command, spec)
        tail = b""
        for piece in self.follow(command):
            tail = (tail + piece)[-TAIL_BYTES:]
            if on_output:
                on_output(piece)
        return Finished(status=self.wait(command), tail=tail)

    def signal(self, command: str, name: str) -> None:
        """Send a signal such as `SIGKILL` to a command's process group."""
        self._request("POST", f"/v1/commands/{command}/signal", json={"signal": name})

    def stop(self) -> None:
        """End every process of the agent's user."""
        self._request("POST", "/v1/stop")

    # Trees

    def get_tree(self, roots: Sequence[str], target: Path, excluded: Sequence[str] = ()) -> Digest:
        """Store a deterministic tar of one folder, or of several under their full paths, in a file.

        Raises:
            TooLarge: it is over the limits of archives.
        """

        def call(client: httpx2.Client) -> Digest:
            seen = Hasher()
            with client.stream("GET", "/v1/tree", params=_tree(roots, excluded), timeout=TREE_SECONDS) as response:
                self._link.check(response)
                with target.open("wb") as out:
                    for chunk in response.iter_raw(1 << 20):
                        seen.update(chunk)
                        # The sandbox looks first, but its word is the agent's.
                        if seen.length > BYTES_LIMIT:
                            raise TooLarge(f"the tree is over {BYTES_LIMIT} bytes")
                        out.write(chunk)
            return seen.digest()

        return self._guard(lambda: self._link.retry(call))

    def put_tree(self, root: str, archive: Path | bytes, *, clean: bool = False) -> None:
        """Unpack a tar below a folder as the agent's user; `clean` empties the folder first."""
        self._upload("/v1/tree", archive, {"root": root, "clean": "true" if clean else "false"})

    def digest(self, root: str, excluded: Sequence[str] = ()) -> Digest:
        """Return the digest of the tar that `get_tree` would give."""
        response = self._request("GET", "/v1/digest", params=_tree([root], excluded), timeout=TREE_SECONDS)
        return Digest(str(response.json()["digest"]))

    # Inside

    def _role(self) -> str:
        return str(self._request("GET", "/healthz").json().get("role"))

    def _status(self, response: httpx2.Response) -> CommandStatus:
        return CommandStatus.model_validate_json(response.content)

    def _poll(self, path: str, parameters: dict[str, float], wait_seconds: float) -> httpx2.Response:
        return self._request("GET", path, params=parameters, timeout=wait_seconds + 30.0)

    def _request(self, method: str, path: str, **options: object) -> httpx2.Response:
        return self._guard(lambda: self._link.request(method, path, **options))

    def _upload(self, path: str, archive: Path | bytes, parameters: dict[str, str] | None = None) -> None:
        def call(client: httpx2.Client) -> None:
            with opened(archive) as content:
                response = client.put(
                    path, params=parameters, content=chunks(content), headers=length(archive), timeout=TREE_SECONDS
                )
            self._link.check(response)

        self._guard(lambda: self._link.retry(call))

    def _guard(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Unreachable as error:
            raise SandboxLost(str(error)) from error


def _tree(roots: Sequence[str], excluded: Sequence[str]) -> httpx2.QueryParams:
    return httpx2.QueryParams([*(("root", root) for root in roots), *(("exclude", path) for path in excluded)])
