"""Run a hidden suite in a pytest process of its own and pass on what it reports, line by line, as it happens.

A process of its own, because a suite may crash, hang or leave threads behind; what it reported until then counts.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from runner.errors import SuiteCannotStart
from runner.kit.reporting import REPORT, KitConfig, Planned, Ran
from wire.errors import NotReady

OUTPUT_CHARS: Final = 2_000
Take = Callable[[Planned | Ran], None]


class SuiteRun:
    """One pytest process."""

    def __init__(self, suite: Path, config: KitConfig) -> None:
        self._suite, self._config = suite, config

    def run(self, take: Take) -> None:
        """Run the suite to its end or its time limit; `take` gets every report.

        Raises:
            SuiteCannotStart: it ended by itself before it had a plan.
        """
        scratch = Path(self._config.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        process = self._start(scratch, writing)
        os.close(writing)
        is_late = threading.Event()
        timer = threading.Timer(self._config.limit_seconds, _end_late, [process, is_late])
        timer.start()
        try:
            has_plan = _pass_on(reading, take)
        finally:
            timer.cancel()
            _kill(process)
            process.wait()
        if not has_plan and is_late.is_set():
            raise NotReady(f"the suite had no plan after {self._config.limit_seconds:g} s")
        if not has_plan:
            raise SuiteCannotStart(f"the suite has no plan; pytest said: {_words(scratch / 'pytest.log')}")

    def _start(self, scratch: Path, writing: int) -> "subprocess.Popen[bytes]":
        # A pipe and not a file: a report is passed on the moment it is written.
        config = self._config.model_copy(update={"reports": f"/dev/fd/{writing}"})
        path = scratch / "kit.json"
        path.touch(mode=0o600)
        path.write_text(config.model_dump_json(by_alias=True))
        with (scratch / "pytest.log").open("wb") as output:
            return subprocess.Popen(
                _command(self._suite, path),
                cwd=self._suite,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                start_new_session=True,
            )


def _command(suite: Path, config: Path) -> list[str]:
    """Return pytest's command line: the suite's own folder is its world, no other configuration counts."""
    plugins = ["-p", "runner.kit.plugin", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    place = ["-c", os.devnull, "--rootdir", str(suite), str(suite)]
    return [sys.executable, "-m", "pytest", *plugins, "--kit", str(config), "-q", "--tb=short", *place]


def _pass_on(reading: int, take: Take) -> bool:
    """Pass on every report until the last writer has gone; tell whether there was a plan."""
    has_plan = False
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            try:
                report = REPORT.validate_json(line)
            except ValidationError:
                continue  # Cut by the death of its writer: the case counts as not reported.
            has_plan = has_plan or isinstance(report, Planned)
            take(report)
    return has_plan


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End the process and everything that it has started; harmless once it has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _end_late(process: "subprocess.Popen[bytes]", is_late: threading.Event) -> None:
    is_late.set()
    _kill(process)


def _words(output: Path) -> str:
    """Return what pytest says went wrong: its error lines, else the end of its output."""
    text = output.read_text(errors="replace")
    wrong = [line for line in text.splitlines() if line.startswith(("E  ", "ERROR"))]
    return "\n".join(reversed(wrong))[:OUTPUT_CHARS] or text[-OUTPUT_CHARS:]
