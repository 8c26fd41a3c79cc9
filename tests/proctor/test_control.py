"""The socket of a running launcher: wishes that are no wishes, and a launcher that ends before it answers."""

import asyncio
import json
from pathlib import Path

import pytest

from proctor.local.control import serve_control, wish
from proctor.local.memory import MemoryCluster
from wire.errors import NotReady


def test_a_launcher_that_ends_before_it_answers_is_not_ready(tmp_path: Path) -> None:
    """The caller is told to try again, in one line."""

    async def story() -> None:
        async def leave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with await asyncio.start_unix_server(leave, tmp_path / "control"):
            with pytest.raises(NotReady, match="before it answered"):
                await asyncio.to_thread(wish, tmp_path / "control", "cancel", "quick")

    asyncio.run(story())


@pytest.mark.parametrize("line", [b"[]", b"1", b"{}", b"nonsense", b'{"verb": "sing", "name": "quick"}'])
def test_what_is_no_wish_is_answered_with_an_error(tmp_path: Path, line: bytes) -> None:
    """The launcher goes on, and whoever asked is not left waiting."""

    async def story() -> None:
        async with serve_control(tmp_path / "control", MemoryCluster(), lambda _: 0):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "control")
            writer.write(line + b"\n")
            assert "error" in json.loads(await asyncio.wait_for(reader.readline(), 5))
            writer.close()

    asyncio.run(story())
