"""Addresses, and the one wire between an untrusted pod and its driver.

Each untrusted pod owns a /30: the lower address is its own, the upper its driver's of the moment. Nothing else is
reachable: there is no route besides the /30.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from typing import Final

from proctor.local.nest import Nest, shell
from wire.errors import NotReady

# Never routed anywhere, so any private range would do.
NETWORK: Final = IPv4Network("10.213.0.0/16")
BLOCKS: Final = NETWORK.num_addresses // 4
# $1 untrusted holder, $2 driver holder, $3 and $4 their addresses. A wire to an earlier driver goes first: the kernel
# takes it away in its own time after that driver's end.
JOIN: Final = """
nsenter --target="$1" --net ip link delete eth0 2>/dev/null || :
ip link add eth0 netns "$1" type veth peer name eth0 netns "$2"
nsenter --target="$1" --net sh -ec "ip address add $3/30 dev eth0; ip link set eth0 up"
nsenter --target="$2" --net sh -ec "ip address add $4/30 dev eth0; ip link set eth0 up"
"""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The two addresses of a pair."""

    untrusted: str
    driver: str


class Addresses:
    """Hands out blocks in turn, so that one is not used again soon."""

    def __init__(self) -> None:
        self._next = count()
        self._taken: set[str] = set()

    def claim(self) -> Block:
        """Return a free block. Raises NotReady when there is none."""
        for _ in range(BLOCKS):
            base = NETWORK.network_address + 4 * (next(self._next) % BLOCKS)
            block = Block(untrusted=str(base + 1), driver=str(base + 2))
            if block.untrusted not in self._taken:
                self._taken.add(block.untrusted)
                return block
        raise NotReady("no local pod address is free")

    def release(self, block: Block) -> None:
        """Give a block back."""
        self._taken.discard(block.untrusted)


def driver_side(untrusted: str) -> str:
    """Return the address a driver of this untrusted pod has."""
    return str(IPv4Address(untrusted) + 1)


async def join(nest: Nest, holders: tuple[int, int], block: Block) -> None:
    """Lay the wire between the pods of these holders (untrusted, driver). Raises NotReady."""
    numbers = [str(holder) for holder in holders]
    code, said = await nest.run(*shell(JOIN, *numbers, block.untrusted, block.driver))
    if code != 0:
        raise NotReady(f"cannot join two pods: {said}")
