"""Role `gate`: installs, builds and checks a candidate in a clean sut pod, with the public checker run from here.

What the submission does wrong is a failed step; what goes wrong on our side is an error and a new attempt. The tree as
installed and built is stored: the evaluator starts from exactly that.
"""

import contextlib
import secrets
import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from runner.agents.scene import readable
from runner.checking import run_checker
from runner.clock import now
from runner.daemon import Daemon, Finished
from runner.ending import conclude
from runner.errors import TooLarge, Unprocessable
from runner.hub import Hub
from runner.parts import extract_part
from runner.postgres import Postgres
from runner.settings import GateSettings
from wire.digest import Digest
from wire.errors import Broken, DigestMismatch
from wire.journal import GateReported, GateStep
from wire.outcome import Checked
from wire.package import PackageManifest
from wire.sandbox import CommandSpec, CommandState

INSTALL_SECONDS: Final = 900.0
MIGRATE_SECONDS: Final = 120.0
LISTEN_SECONDS: Final = 60.0
API_SECONDS: Final = 1800.0
STEPS_LIMIT: Final = 256
OUTPUT_CHARACTERS: Final = 16384
OVER_LIMIT: Final = "the pod in which this was run went over its memory or disk limit three times, the last time {}"


def main(settings: GateSettings) -> int:
    """Check one candidate and write the outcome."""
    return conclude(settings.termination_log, partial(work, settings))


def work(settings: GateSettings) -> Checked:
    """Check one candidate, unless an earlier attempt has reported it already."""
    hub = Hub(settings.hub_url, settings.secret("token"), settings.trial_uid, settings.spool)
    reported = earlier_report(hub, settings)
    if reported is None:
        daemon = Daemon(settings.daemon_url, settings.secret("daemon"))
        with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
            reported = Gate(settings, hub, daemon, Path(scratch)).check()
        hub.journal(reported)
        hub.flush()
    return Checked(
        conversation=reported.conversation,
        candidate=reported.candidate,
        passed=reported.passed,
        prepared=reported.prepared,
    )


def earlier_report(hub: Hub, settings: GateSettings) -> GateReported | None:
    """Return what the journal holds about this candidate: stored once, it stays what it is."""
    for entry in hub.entries("gateReported"):
        if isinstance(entry, GateReported) and _is_about(entry, settings):
            return entry
    return None


def _is_about(entry: GateReported, settings: GateSettings) -> bool:
    return entry.conversation == settings.conversation and entry.candidate == settings.candidate


class StepFailed(Exception):
    """The submission failed a step; what follows makes no sense."""


class Gate:
    """One candidate's way through the gate."""

    def __init__(self, settings: GateSettings, hub: Hub, daemon: Daemon, scratch: Path) -> None:
        self._settings, self._hub, self._daemon, self._scratch = settings, hub, daemon, scratch
        self._steps: list[GateStep] = []
        self._prepared: Digest | None = None
        # A sut is used by one gate pod alone, but a word of ours in an id tells apart whatever runs there.
        self._prefix = f"gate-{settings.conversation}"

    def check(self) -> GateReported:
        """Take all steps up to the first that fails."""
        with contextlib.suppress(StepFailed):  # its step is recorded
            self._check()
        return GateReported(
            conversation=self._settings.conversation,
            attempt=self._settings.attempt,
            candidate=self._settings.candidate,
            passed=all(step.passed for step in self._steps),
            steps=self._steps[:STEPS_LIMIT],
            prepared=self._prepared,
            image=self._settings.image[:512],
            at=now(),
        )

    def _check(self) -> None:
        if self._settings.sut_death is not None:
            self._fail("limits", OVER_LIMIT.format(self._settings.sut_death))
        manifest = self._hub.manifest(self._settings.spec.package)
        public = extract_part(self._hub, manifest, "public", self._scratch / "public")
        self._deliver()
        self._prepare(manifest)
        self._operate(manifest, public)

    def _deliver(self) -> None:
        """Hand the candidate to the sut and make sure that it lies there unchanged."""
        archive = self._scratch / "candidate.tar"
        self._hub.get_archive(self._settings.candidate, archive)
        try:
            self._daemon.deliver_submission(archive)
        except Unprocessable as error:
            self._fail("unpack", str(error))
        archive.unlink()  # This pod's disk is made for one archive at a time.
        self._hub.journal(self._daemon.canaries())
        found = self._daemon.digest(self._settings.submission_folder)
        if found != self._settings.candidate:
            raise DigestMismatch(f"the sut holds {found}, not the candidate {self._settings.candidate}")

    def _prepare(self, manifest: PackageManifest) -> None:
        """Install and build on a copy, and store the result."""
        operations = manifest.task.operations
        copy = [
            "cp",
            "-R",
            "--no-preserve=ownership",
            f"{self._settings.submission_folder}/.",
            self._settings.workspace,
        ]
        if not self._run("copy", copy, INSTALL_SECONDS).passed:
            raise Broken("the submission cannot be copied into the workspace")
        self._step("install", operations.install, INSTALL_SECONDS)
        self._step("build", operations.build, INSTALL_SECONDS)
        # A server that the build left behind could still write into the tree that is graded.
        self._daemon.stop()
        archive = self._scratch / "prepared.tar"
        try:
            prepared = self._daemon.get_tree([self._settings.workspace], archive)
        except TooLarge as error:
            self._fail("build", str(error))
        self._hub.put_archive(archive, prepared)
        self._prepared = prepared
        archive.unlink()

    def _operate(self, manifest: PackageManifest, public: Path) -> None:
        """Migrate a database, start the API, run the public checker against it, stop everything."""
        operations = manifest.task.operations
        with Postgres.start(self._scratch / "postgres", self._settings.pod_ip) as server:
            token = secrets.token_urlsafe(24)
            environment = {
                "DATABASE_URL": server.create_database().url,
                "HOST": self._settings.api_host,
                "PORT": str(self._settings.api_port),
                "ADMIN_TOKEN": token,
            }
            self._step("migrate", operations.migrate, MIGRATE_SECONDS, environment)
            api = self._spec(operations.api, API_SECONDS, environment)
            self._daemon.put_command(f"{self._prefix}-api", api)
            try:
                self._await_api()
                url = f"http://{self._daemon.host}:{self._settings.api_port}"
                self._steps += run_checker(public, self._settings.path, url, token)
            finally:
                self._daemon.stop()

    def _await_api(self) -> None:
        """Wait until the API listens."""
        started = time.monotonic()
        while time.monotonic() - started < LISTEN_SECONDS:
            status = self._daemon.wait(f"{self._prefix}-api", 0)
            if status.state is CommandState.EXITED:
                break
            try:
                socket.create_connection((self._daemon.host, self._settings.api_port), timeout=2).close()
            except OSError:
                time.sleep(0.2)
            else:
                self._steps.append(GateStep(name="start", passed=True, seconds=time.monotonic() - started))
                return
        words, _ = self._daemon.output(f"{self._prefix}-api")
        self._fail("start", readable(words), time.monotonic() - started)

    def _step(self, name: str, argv: list[str], seconds: float, environment: dict[str, str] | None = None) -> None:
        """Run one command of the submission and record it.

        Raises:
            StepFailed: it did not exit with 0.
        """
        done = self._run(name, argv, seconds, environment)
        self._steps.append(
            GateStep(
                name=name,
                passed=done.passed,
                exit_code=done.status.exit_code,
                seconds=done.seconds,
                output=readable(done.tail)[-OUTPUT_CHARACTERS:],
            )
        )
        if not done.passed:
            raise StepFailed(name)

    def _run(self, name: str, argv: list[str], seconds: float, environment: dict[str, str] | None = None) -> Finished:
        return self._daemon.run(f"{self._prefix}-{name}", self._spec(argv, seconds, environment or {}))

    def _spec(self, argv: list[str], seconds: float, environment: dict[str, str]) -> CommandSpec:
        return CommandSpec(argv=argv, cwd=self._settings.workspace, env=environment, timeout_seconds=seconds)

    def _fail(self, name: str, output: str, seconds: float = 0.0) -> NoReturn:
        self._steps.append(GateStep(name=name, passed=False, seconds=seconds, output=output[-OUTPUT_CHARACTERS:]))
        raise StepFailed(name)
