"""A de-duplicating queue with delays: a key is worked on once at a time, and sleeps until it is due or touched."""

import asyncio
import heapq
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Pending(Generic[Key]):
    """Keys that are due now or later. An earlier time replaces a later one."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0
        self._active: set[Key] = set()
        self._touched: dict[Key, float] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after_seconds: float = 0.0) -> None:
        """Work on a key after some time at the latest; while it is being worked on, again afterwards."""
        due = asyncio.get_running_loop().time() + after_seconds
        if key in self._active:
            self._touched[key] = min(due, self._touched.get(key, due))
        elif due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.set()

    async def take(self) -> Key:
        """Wait for a key that is due; the caller says `done` afterwards."""
        while True:
            self._changed.clear()
            now = asyncio.get_running_loop().time()
            while self._heap and self._heap[0][0] <= now:
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due:
                    del self._due[key]
                    self._active.add(key)
                    if self._heap:
                        self._changed.set()
                    return key
            await self._sleep(self._heap[0][0] - now if self._heap else None)

    def done(self, key: Key) -> None:
        """Say that the work on a key is over."""
        self._active.discard(key)
        due = self._touched.pop(key, None)
        if due is not None:
            self.add(key, max(0.0, due - asyncio.get_running_loop().time()))

    def oldest_seconds(self) -> float:
        """Return how long the longest due key has been waiting."""
        if not self._due:
            return 0.0
        return max(0.0, asyncio.get_running_loop().time() - min(self._due.values()))

    def __len__(self) -> int:
        return len(self._due) + len(self._active)

    async def _sleep(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
