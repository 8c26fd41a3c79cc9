"""The evaluator's way through one shard, with a real daemon, a hub in memory and a small suite."""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runner.builders import add_package, agent_of, trial_spec, write
from tests.runner.fakes import FakeHub
from tests.runner.processes import BEARER, ROOT, Box, secrets_folder
from wire.archive import tree_bytes
from wire.digest import of_bytes
from wire.journal import CaseOutcome, CaseReported, SubmissionChecked, SuitePlanned

SUITE = """
    import time
    from pathlib import Path
    from runner.kit import case, require

    @case("A-01", dimension="A", title="It says right", clauses=["1"], tags=["quick"])
    def test_says_right(sut, case_file):
        process = sut.start("app", ["cat", "app.py"], {})
        process.wait(10)
        case_file.picture("nothing", b"PNG")
        require(process.log() == "right", process.log())

    @case("B-01", dimension="B", title="It stumbles", clauses=["1"], tags=["quick"])
    def test_stumbles(kit):
        runs = Path(kit.public) / "README.md"
        # What was delivered is not kept: two archives of the largest size are more than the pod's disk.
        left = [path.name for path in Path(kit.scratch).parent.glob("*.tar")]
        raise OSError(f"{runs.read_text()}, archives left: {left}")

    @case("C-01", dimension="C", title="It takes long", clauses=["1"], tags=["slow"])
    def test_takes_long():
        time.sleep(600)
"""


@dataclass
class Bench:
    """One shard's surroundings."""

    hub: FakeHub
    box: Box
    folder: Path
    frozen: Path
    submission: dict[str, object]
    tags: list[str]

    def settings(self, attempt: int = 1, **more: object) -> dict[str, object]:
        """Return what the evaluator is told."""
        assert self.hub.manifest is not None
        spec = trial_spec(self.hub.manifest, agent_of("nop"))
        spec = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"tags": self.tags})})
        place = self.folder / f"evaluate-{attempt}-{time.monotonic_ns()}"
        return {
            "hub_url": self.hub.url,
            "spec": json.dumps(spec.dump()),
            "trial_uid": "uid",
            "attempt": str(attempt),
            "secrets": str(secrets_folder(place / "secrets", **{"token": "t", "daemon-0": BEARER})),
            "spool": str(place / "spool"),
            "workspace": str(self.box.workspace),
            "submission": json.dumps(self.submission),
            "submission_folder": str(self.frozen),
            "suts": json.dumps([self.box.url]),
            "termination_log": str(self.folder / "outcome"),
            **more,
        }

    def evaluate(self, attempt: int = 1, **more: object) -> tuple[int, dict[str, object]]:
        """Run the role to its end; return its exit code and its termination message."""
        with self.start(attempt, **more) as process:
            code = process.wait(90)
        outcome: dict[str, object] = json.loads((self.folder / "outcome").read_text())
        return code, outcome

    def start(self, attempt: int = 1, **more: object) -> "subprocess.Popen[bytes]":
        """Start the role as its pod does."""
        told = {f"PROCTOR_{name.upper()}": str(value) for name, value in self.settings(attempt, **more).items()}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.defpath])
        env = {"PATH": path, "JOB_COMPLETION_INDEX": "0", **told}
        with (self.folder / "evaluate.log").open("ab") as log:
            command = [sys.executable, "-m", "runner", "evaluate"]
            return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)

    def use_suite(self, text: str) -> None:
        """Put a suite into the package."""
        packed = tree_bytes(write(self.folder / "suite", {"test_suite.py": text}))
        self.hub.parts["evaluator"] = packed
        assert self.hub.manifest is not None
        parts = {**self.hub.manifest.parts, "evaluator": of_bytes(packed)}
        self.hub.manifest = self.hub.manifest.model_copy(update={"parts": parts})

    def reports(self) -> list[CaseReported]:
        """Return the reported cases in the journal."""
        return [entry for entry in self.hub.of_kind("caseReported") if isinstance(entry, CaseReported)]

    def outcomes(self) -> dict[str, CaseOutcome]:
        """Return the last outcome of each case."""
        return {report.case: report.outcome for report in self.reports()}


@pytest.fixture
def bench(hub: FakeHub, own_sandbox: Box, tmp_path: Path) -> Bench:
    """A submission that is right, with its prepared tree, and a suite."""
    add_package(hub, tmp_path / "package")
    frozen = write(tmp_path / "frozen", {"app.py": "right"})
    digest = hub.add_archive(tree_bytes(frozen))
    prepared = hub.add_archive(tree_bytes(write(tmp_path / "prepared", {"app.py": "right", "deps/x": "x"})))
    submission = {"digest": digest, "prepared": prepared, "gatePassed": True, "endReason": "gatePassed"}
    made = Bench(hub, own_sandbox, tmp_path, frozen, submission, ["quick"])
    made.use_suite(textwrap.dedent(SUITE))
    return made


def test_a_shard_reports_its_cases_and_its_digests(bench: Bench) -> None:
    """Plan, cases with evidence, digests before and after, and the outcome, in that order."""
    code, outcome = bench.evaluate()
    assert code == 0
    assert outcome == {
        "outcome": "evaluated",
        "shard": 0,
        "submission": bench.submission["digest"],
        "unresolved": 1,
    }
    kinds = [entry.kind for entry in bench.hub.rows.values()]
    assert kinds == ["canaries", "suitePlanned", "caseReported", "caseReported", "submissionChecked"]
    (plan,) = bench.hub.of_kind("suitePlanned")
    assert isinstance(plan, SuitePlanned)
    assert {case.id: case.selected for case in plan.cases} == {"A-01": True, "B-01": True, "C-01": False}
    assert bench.outcomes() == {"A-01": CaseOutcome.PASSED, "B-01": CaseOutcome.UNRESOLVED}
    passed, stumbled = bench.reports()
    assert "contract, archives left: []" in stumbled.message
    picture = next(item for item in passed.evidence if item.media_type == "image/png")
    assert picture.archive is not None
    assert bench.hub.archives[picture.archive] == b"PNG"
    (checked,) = bench.hub.of_kind("submissionChecked")
    assert isinstance(checked, SubmissionChecked)
    assert checked.submission_before == checked.submission_after == bench.submission["digest"]
    assert checked.prepared == bench.submission["prepared"]


def test_a_further_round_runs_only_what_has_no_outcome(bench: Bench) -> None:
    """A settled case keeps its first report."""
    bench.evaluate(attempt=1)
    bench.evaluate(attempt=2)
    assert [(report.case, report.attempt) for report in bench.reports()] == [("A-01", 1), ("B-01", 1), ("B-01", 2)]


def test_a_killed_evaluator_loses_nothing_that_was_reported(bench: Bench) -> None:
    """The next one goes on where it ended, on the same sut."""
    bench.tags = []
    with bench.start() as process:
        await_that(lambda: "B-01" in bench.outcomes())
        process.kill()
    bench.tags = ["quick"]
    code, _ = bench.evaluate()
    assert code == 0
    assert [report.case for report in bench.reports()] == ["A-01", "B-01"]


def test_cases_of_a_submission_that_was_not_built_fail(bench: Bench) -> None:
    """Each of them, with that reason; the sut is not touched."""
    bench.submission["prepared"] = None
    code, outcome = bench.evaluate()
    assert (code, outcome["unresolved"]) == (0, 0)
    assert bench.outcomes() == {"A-01": CaseOutcome.FAILED, "B-01": CaseOutcome.FAILED}
    assert "could not be installed and built" in bench.reports()[0].message
    assert not list(bench.box.workspace.iterdir())


def test_cases_without_an_outcome_fail_after_suts_have_died_of_their_limits(bench: Bench) -> None:
    """What was reported stays; the rest is not run, and no sut is asked."""
    bench.evaluate(attempt=1)
    bench.box.stop()
    code, outcome = bench.evaluate(attempt=4, sut_death="SutOutOfMemory", first_seconds=1)
    assert (code, outcome["unresolved"]) == (0, 0)
    assert bench.outcomes() == {"A-01": CaseOutcome.PASSED, "B-01": CaseOutcome.FAILED}
    last = bench.reports()[-1]
    assert (last.case, last.attempt) == ("B-01", 4)
    assert "memory or disk limit" in last.message
    assert "SutOutOfMemory" in last.message


def test_a_submission_with_another_digest_is_not_graded(bench: Bench) -> None:
    """One changed byte in the sut, and no case is run."""
    (bench.frozen / "app.py").write_text("rigHt")
    code, outcome = bench.evaluate()
    assert (code, outcome["reason"]) == (75, "DigestMismatch")
    assert not bench.reports()


def test_a_submission_that_changes_meanwhile_is_not_graded(bench: Bench) -> None:
    """The digest after the cases disagrees: the hub then leaves this shard's reports out."""
    change = f"    Path({str(bench.frozen / 'app.py')!r}).write_text('x')\n"
    bench.use_suite(textwrap.dedent(SUITE).replace("    process.wait(10)\n", f"    process.wait(10)\n{change}"))
    code, outcome = bench.evaluate()
    assert (code, outcome["reason"]) == (75, "DigestMismatch")
    (checked,) = bench.hub.of_kind("submissionChecked")
    assert isinstance(checked, SubmissionChecked)
    assert checked.submission_after != checked.submission_before


def test_a_suite_that_does_not_collect_is_the_tasks_fault(bench: Bench) -> None:
    """Exit 64 and one clear message."""
    bench.use_suite("def broken(:\n")
    code, outcome = bench.evaluate()
    assert (code, outcome["reason"]) == (64, "SuiteCannotStart")
    assert "SyntaxError" in str(outcome["message"])


def test_a_lost_sut_is_not_held_against_the_submission(bench: Bench) -> None:
    """Before the first case it ends the shard; the operator tries again with fresh pods."""
    bench.box.stop()
    code, outcome = bench.evaluate(first_seconds=1)
    assert (code, outcome["reason"]) == (75, "SandboxLost")
    assert not bench.reports()


def await_that(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
