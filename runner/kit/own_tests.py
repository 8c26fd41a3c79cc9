"""Fake-green: the submission's own tests, run with everything intact and with what they need broken.

Intact they must pass; without database, without browser, and with a database that acknowledges one write and drops
it, they must fail. The proxy that lies also stands in the intact run, honest, and counts the writes: so the lie can
be about a write that the tests really make, and a second lie is tried before tests count as vacuous.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.kit.database import Database
from runner.kit.faults import SubmissionFailed, require
from runner.kit.lying import LyingProxy
from runner.kit.processes import Launcher, Process, Sut

NO_BROWSER = "/nonexistent/chromium"


@dataclass(frozen=True, kw_only=True)
class OwnTests:
    """How the tests are run: their command, the variables that name database and browser, and their time."""

    sut: Sut
    launcher: Launcher
    database: Database
    postgres: tuple[str, int]
    """Where the real server listens, seen from here."""
    command: Sequence[str]
    database_variable: str
    browser_variable: str
    chromium: str
    seconds: float

    def judge(self) -> None:
        """Run them all.

        Raises:
            SubmissionFailed: the tests fail when nothing is wrong, or pass when something is.
        """
        writes = self._intact()
        require(writes > 0, "the submission's own tests never write to the database")
        self._must_fail("without a database", self._env(self.database.through(9)))
        self._must_fail("without a browser", {**self._env(self.database.url), self.browser_variable: NO_BROWSER})
        told: list[str] = []
        for at in sorted({0, writes // 2}):
            if (lie := self._lie(at)) is None:
                return
            told.append(lie)
        raise SubmissionFailed(f"the submission's own tests pass although the database dropped a write: {told}")

    def _intact(self) -> int:
        proxy = LyingProxy(self.postgres, at=None)
        try:
            process = self._run("intact", self._env(self.database.through(proxy.port)))
            code = process.status().exit_code
            require(code == 0, f"the submission's own tests end with {code} although everything works")
            return proxy.writes
        finally:
            proxy.close()

    def _must_fail(self, how: str, env: Mapping[str, str]) -> None:
        code = self._run(how.replace(" ", "-"), env).status().exit_code
        require(code != 0, f"the submission's own tests pass {how}")

    def _lie(self, at: int) -> str | None:
        """Lie about one write; return it if the tests did not notice."""
        proxy = LyingProxy(self.postgres, at=at)
        try:
            process = self._run(f"lie-{at}", self._env(self.database.through(proxy.port)))
        finally:
            proxy.close()
        return (proxy.dropped or "nothing written this time") if process.status().exit_code == 0 else None

    def _run(self, name: str, env: Mapping[str, str]) -> Process:
        process = self.launcher.run(f"own-tests-{name}", self.command, env, self.seconds)
        self.sut.reset()
        return process

    def _env(self, database_url: str) -> dict[str, str]:
        return {self.database_variable: database_url, self.browser_variable: self.chromium}
