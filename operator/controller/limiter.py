"""An adaptive limit on calls to the API server: doubles while it answers, halves when it says 429."""

import asyncio

FIRST_PER_SECOND = 20.0
MOST_PER_SECOND = 320.0
LEAST_PER_SECOND = 1.0
BURST_SECONDS = 1.0
LONGEST_PATIENCE_SECONDS = 60.0


def patience(retry_after: str | None) -> float:
    """Return how long a server wants to be left alone, by its header: bounded, and a second where it says no number."""
    try:
        return min(LONGEST_PATIENCE_SECONDS, max(0.0, float(retry_after or 1)))
    except ValueError:
        return 1.0


class Limiter:
    """Spaces calls; a second's worth may go at once."""

    def __init__(self) -> None:
        self.per_second = FIRST_PER_SECOND
        self._next = 0.0
        self._answered = 0

    async def slot(self) -> None:
        """Wait for the next free slot."""
        now = asyncio.get_running_loop().time()
        start = max(self._next, now - BURST_SECONDS)
        self._next = start + 1.0 / self.per_second
        if start > now:
            await asyncio.sleep(start - now)

    def answered(self) -> None:
        """Count an answer without a 429; after a second's worth of them the limit doubles."""
        self._answered += 1
        if self._answered >= self.per_second and self.per_second < MOST_PER_SECOND:
            self.per_second, self._answered = min(MOST_PER_SECOND, self.per_second * 2), 0

    def throttled(self, retry_seconds: float) -> None:
        """Halve the limit and let nobody call before the server wants to be called."""
        self.per_second, self._answered = max(LEAST_PER_SECOND, self.per_second / 2), 0
        self._next = max(self._next, asyncio.get_running_loop().time() + retry_seconds)
