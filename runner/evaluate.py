"""Role `evaluate`: runs one shard of the hidden suite on the frozen submission and reports every case as it ends.

The submission is pushed to its sut, digests are compared, the prepared tree is restored, and pytest runs in a process
of its own (`runner.evaluate_suite`). Cases that have an outcome already are not run again: a retried shard and a
further round do what is missing or unresolved, and nothing else.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog

from runner.clock import now
from runner.daemon import Daemon
from runner.ending import conclude
from runner.evaluate_suite import SuiteRun
from runner.hub import Hub
from runner.kit.reporting import KitConfig, Planned, Ran
from runner.parts import extract_part
from runner.settings import EvaluateSettings
from wire.digest import Digest, of_stream
from wire.errors import DigestMismatch
from wire.journal import CaseOutcome, CaseReported, Evidence, SubmissionChecked, SuitePlanned
from wire.outcome import Evaluated
from wire.package import PackageManifest

# Left for reporting and flushing before the operator's own limit for the round strikes.
SPARE_SECONDS: Final = 60.0
NOT_BUILT: Final = "the submission could not be installed and built; the gate's report says why"
OVER_LIMIT: Final = "not run: the submission's pod went over its memory or disk limit three times, the last time {}"
NOT_REPORTED: Final = "the kit ended before this case did"
log = structlog.get_logger()


def main(settings: EvaluateSettings) -> int:
    """Evaluate this pod's shard and return the exit code."""
    hub = Hub(settings.hub_url, settings.secret("token"), settings.trial_uid, settings.spool)
    daemon = Daemon(
        settings.suts[settings.shard],
        settings.secret(f"daemon-{settings.shard}"),
        first_seconds=settings.first_seconds,
        silence_seconds=settings.lost_seconds,
    )
    with TemporaryDirectory(prefix="evaluate-") as scratch:
        shard = Shard(settings, hub, daemon, Path(scratch))
        try:
            return conclude(settings.termination_log, shard.evaluate)
        finally:
            hub.close()
            daemon.close()


class Shard:
    """One shard's evaluation, from the archives to the last case."""

    def __init__(self, settings: EvaluateSettings, hub: Hub, daemon: Daemon, scratch: Path) -> None:
        self._settings, self._hub, self._daemon, self._scratch = settings, hub, daemon, scratch
        self._mine: list[str] = []
        self._outcomes: dict[str, CaseOutcome] = {}

    def evaluate(self) -> Evaluated:
        """Run what is left of this shard's cases and return what the operator must know."""
        self._outcomes = self._earlier()
        manifest = self._hub.manifest(self._settings.spec.package)
        suite = extract_part(self._hub, manifest, "evaluator", self._scratch / "suite")
        config = self._config(manifest, extract_part(self._hub, manifest, "public", self._scratch / "public"))
        prepared, death = self._settings.submission.prepared, self._settings.sut_death
        if prepared is None or death is not None:
            # Nothing of it can be started, or is worth another sut: the sut is not even given it.
            SuiteRun(suite, config.model_copy(update={"plan_only": True})).run(self._take)
            self._report_rest(CaseOutcome.FAILED, NOT_BUILT if death is None else OVER_LIMIT.format(death))
        else:
            with self._unchanged(prepared):
                SuiteRun(suite, config).run(self._take)
                self._report_rest(CaseOutcome.UNRESOLVED, NOT_REPORTED)
        self._hub.flush()
        unresolved = sum(self._outcomes.get(case) is CaseOutcome.UNRESOLVED for case in self._mine)
        return Evaluated(shard=self._settings.shard, submission=self._settings.submission.digest, unresolved=unresolved)

    def _earlier(self) -> dict[str, CaseOutcome]:
        """Return the settled outcomes in the journal, but for those of shards whose digests disagreed."""
        entries = self._hub.entries("caseReported", "submissionChecked")
        altered = {
            (entry.attempt, entry.shard)
            for entry in entries
            if isinstance(entry, SubmissionChecked) and entry.is_altered(self._settings.submission)
        }
        return {
            entry.case: entry.outcome
            for entry in entries
            if isinstance(entry, CaseReported)
            and entry.outcome is not CaseOutcome.UNRESOLVED
            and (entry.attempt, entry.shard) not in altered
        }

    @contextlib.contextmanager
    def _unchanged(self, prepared: Digest) -> Iterator[None]:
        """Prepare the sut; compare digests before and after what happens inside."""
        submission, folder = self._settings.submission.digest, self._settings.submission_folder
        with self._archive(submission) as archive:
            self._daemon.deliver_submission(archive)
        self._hub.journal(self._daemon.canaries())
        # An evaluator that died here before may have left something running.
        self._daemon.stop()
        before = self._daemon.digest(folder)
        self._compare("submission", submission, before)
        with self._archive(prepared) as archive:
            self._daemon.put_tree(self._settings.workspace, archive, clean=True)
        self._compare("prepared tree", prepared, self._daemon.digest(self._settings.workspace))
        yield
        after = self._daemon.digest(folder)
        self._hub.journal(
            SubmissionChecked(
                attempt=self._settings.attempt,
                shard=self._settings.shard,
                submission_before=before,
                submission_after=after,
                prepared=prepared,
            )
        )
        # Also when this shard ends here: the hub must know that its reports do not count.
        self._hub.flush()
        self._compare("submission", submission, after)

    @contextlib.contextmanager
    def _archive(self, digest: Digest) -> Iterator[Path]:
        """Fetch an archive for as long as it is needed: this pod's disk is made for one at a time."""
        path = self._scratch / "archive.tar"
        self._hub.get_archive(digest, path)
        yield path
        path.unlink()

    def _compare(self, what: str, expected: Digest, found: Digest) -> None:
        if found != expected:
            raise DigestMismatch(f"the {what} in the sut is {found}, not {expected}")

    def _config(self, manifest: PackageManifest, public: Path) -> KitConfig:
        evaluation = self._settings.spec.evaluation
        return KitConfig(
            daemon_url=self._daemon.url,
            daemon_bearer=self._settings.secret(f"daemon-{self._settings.shard}"),
            sut_host=self._daemon.host,
            own_host=self._settings.pod_ip,
            operations=manifest.task.operations,
            workspace=self._settings.workspace,
            shard=self._settings.shard,
            shards=len(self._settings.suts),
            tags=evaluation.tags,
            settled=sorted(self._outcomes),
            reports="",
            scratch=str(self._scratch / "kit"),
            public=str(public),
            limit_seconds=max(60.0, evaluation.timeout_minutes * 60 - SPARE_SECONDS),
        )

    def _take(self, report: Planned | Ran) -> None:
        """Journal what pytest's process reports."""
        if isinstance(report, Planned):
            self._mine = list(report.mine)
            self._hub.journal(SuitePlanned(submission=self._settings.submission.digest, cases=report.cases))
            return
        pictures = [
            Evidence(name=picture.name, media_type=picture.media_type, archive=self._store(Path(picture.path)))
            for picture in report.pictures
        ]
        self._report(report.model_copy(update={"evidence": [*report.evidence, *pictures]}))

    def _store(self, path: Path) -> Digest:
        with path.open("rb") as content:
            digest = of_stream(content)
        self._hub.put_archive(path, digest)
        return digest

    def _report(self, ran: Ran) -> None:
        self._outcomes[ran.case] = ran.outcome
        self._hub.journal(
            CaseReported(
                case=ran.case,
                attempt=self._settings.attempt,
                shard=self._settings.shard,
                outcome=ran.outcome,
                seconds=ran.seconds,
                message=ran.message,
                evidence=ran.evidence,
                at=now(),
            )
        )
        log.info("case ended", case=ran.case, outcome=ran.outcome, seconds=ran.seconds)

    def _report_rest(self, outcome: CaseOutcome, message: str) -> None:
        """Report the cases of this shard that nothing was heard of."""
        for case in self._mine:
            if case not in self._outcomes:
                self._report(Ran(case=case, outcome=outcome, seconds=0, message=message))
