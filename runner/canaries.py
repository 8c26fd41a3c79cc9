"""Canaries: before an untrusted pod runs anything, it proves that it cannot reach what it must not.

Network policies may take seconds to bite, so everything is tried again until all is as it should be or time is up. The
gateway's answer shows that the network is there at all: otherwise no policy would look like a perfect one.
"""

import asyncio
import time
from typing import Final

from runner.cgroup import are_pids_bounded
from runner.settings import Canary
from wire.errors import InvalidInput
from wire.journal import Canaries

CONNECT_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.5


def is_good(seen: Canaries, wanted: Canary) -> bool:
    """Tell whether commands may run."""
    return all(seen.refused.values()) and (seen.gateway_answers or wanted.gateway is None)


async def settle(wanted: Canary | None, pod: str, limit_seconds: float) -> Canaries:
    """Try until all is as it should be, or until time is up; return what was seen last."""
    if wanted is None:
        return Canaries(pod=pod, refused={}, gateway_answers=False, pids_bounded=are_pids_bounded())
    deadline = time.monotonic() + limit_seconds
    while True:
        seen = await _look(wanted, pod)
        if is_good(seen, wanted) or time.monotonic() > deadline:
            return seen
        await asyncio.sleep(PAUSE_SECONDS)


async def _look(wanted: Canary, pod: str) -> Canaries:
    names = sorted(wanted.refused)
    connected = await asyncio.gather(*(_connects(wanted.refused[name]) for name in names))
    return Canaries(
        pod=pod,
        refused={name: not has_connected for name, has_connected in zip(names, connected, strict=True)},
        gateway_answers=wanted.gateway is not None and await _answers(wanted.gateway),
        pids_bounded=are_pids_bounded(),
    )


async def _connects(address: str) -> bool:
    host, port = _split(address)
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_SECONDS)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _answers(address: str) -> bool:
    """Tell whether `GET /healthz` is answered with 200."""
    host, port = _split(address)
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_SECONDS)
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        line = await asyncio.wait_for(reader.readline(), CONNECT_SECONDS)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return b" 200 " in line


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(f"PROCTOR_CANARIES: {address!r} is not `ip:port`")
    return host.strip("[]"), int(port)
