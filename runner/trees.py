"""The daemon's side of trees: starts `runner.tree` as the agent's user and passes bytes between it and HTTP."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from runner.account import Account
from runner.errors import TooLarge
from runner.tree import EXIT_REFUSED, EXIT_TOO_LARGE
from runner.web import drain
from wire.digest import Digest, Hasher
from wire.errors import Broken, InvalidInput

T = TypeVar("T")
CHUNK_BYTES: Final = 1 << 20
LIBRARY: Final = str(Path(__file__).resolve().parents[1])
"""Our own code, which is root's; `runner.tree` imports nothing else but the standard library."""


class Trees:
    """Reads and writes folders of the pod, always as the agent's user."""

    def __init__(self, account: Account, python: str, stall_seconds: float) -> None:
        """`stall_seconds`: then a reading process that gives nothing is ended; its user may have halted it."""
        self._account = account
        self._python = python
        self._stall_seconds = stall_seconds

    async def read(self, roots: Sequence[str], excluded: Sequence[str]) -> AsyncIterator[bytes]:
        """Return the pieces of a tar; a refusal comes before the first piece, a later failure breaks the stream."""
        if any("\0" in path for path in excluded):
            raise InvalidInput("exclude: a path holds no NUL")
        process = await self._start("get", *(f"--exclude={path}" for path in excluded), "--", *_checked(roots))
        assert process.stdout is not None
        first = await self._in_time(process, process.stdout.read(CHUNK_BYTES))
        if not first:
            await self._in_time(process, _finish(process))
        return self._pieces(process, process.stdout, first)

    async def digest(self, root: str, excluded: Sequence[str]) -> Digest:
        """Return the digest of the tar that `read` would give."""
        seen = Hasher()
        async for piece in await self.read([root], excluded):
            seen.update(piece)
        return seen.digest()

    async def write(self, root: str, content: AsyncIterator[bytes], *, clean: bool) -> None:
        """Unpack a tar."""
        process = await self._start("put", *(["--clean"] if clean else []), "--", *_checked([root]))
        try:
            await _feed(process, content)
        except BaseException:
            # The sender is gone: half a tree must not look like a whole one to the next step.
            _kill(process)
            await process.wait()
            raise
        await _finish(process)

    async def _start(self, *arguments: str) -> Process:
        return await asyncio.create_subprocess_exec(
            self._python,
            # No user site and no current folder on the path: both are the agent's.
            *("-s", "-P", "-m", "runner.tree"),
            *arguments,
            cwd="/",
            env={"PYTHONPATH": LIBRARY, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=CHUNK_BYTES,
            **self._account.identity(),  # type: ignore[arg-type]  # Popen's own keywords
        )

    async def _pieces(self, process: Process, stdout: asyncio.StreamReader, first: bytes) -> AsyncIterator[bytes]:
        try:
            yield first
            while piece := await self._in_time(process, stdout.read(CHUNK_BYTES)):
                yield piece
            await self._in_time(process, _finish(process))
        finally:
            _kill(process)

    async def _in_time(self, process: Process, awaited: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(awaited, self._stall_seconds)
        except TimeoutError:
            _kill(process)
            raise Broken(f"the tree's process has done nothing for {self._stall_seconds:g} s") from None


def _checked(roots: Sequence[str]) -> Sequence[str]:
    if not roots or not all(root.startswith("/") and "\0" not in root for root in roots):
        raise InvalidInput("root: name at least one folder by its full path")
    return roots


async def _feed(process: Process, content: AsyncIterator[bytes]) -> None:
    assert process.stdin is not None
    try:
        async for chunk in content:
            process.stdin.write(chunk)
            await process.stdin.drain()
        process.stdin.close()
    except ConnectionError:
        # It refused the tar; its reason is on stderr.
        await drain(content)


async def _finish(process: Process) -> None:
    """Wait for the end; turn its exit into an error."""
    assert process.stderr is not None
    words = (await process.stderr.read(4096)).decode(errors="replace").strip()
    code = await process.wait()
    if code == EXIT_TOO_LARGE:
        raise TooLarge(words)
    if code == EXIT_REFUSED:
        raise InvalidInput(words)
    if code != 0:
        raise Broken(f"the tree's process ended with {code}: {words[-500:]}")


def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
