"""The main job, end to end on this machine: the shipped example gives the verdicts that its arms stand for."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from proctor.codes import Code
from wire.journal import CaseOutcome
from wire.report import RunReport, TrialLine

pytestmark = pytest.mark.local
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "quickstart.yaml"
MUTANTS = ROOT / "tasks" / "transfer" / "capacity-lease" / "private" / "mutants.toml"
LIMIT_SECONDS = 1500


def proctor(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with a home of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PROCTOR_CACHE") if name in os.environ}  # noqa: TID251 - handed on
    return subprocess.run(
        [sys.executable, "-m", "proctor", *words],
        env={**kept, "PROCTOR_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=LIMIT_SECONDS,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def report(home: Path) -> RunReport:
    """The report of the example's run."""
    done = proctor(home, "run", "--local", str(EXAMPLE), "--wait", "--json")
    assert done.returncode == Code.OK, done.stderr
    (found,) = json.loads(done.stdout)
    return RunReport.model_validate(found)


def trial(report: RunReport, arm: str) -> TrialLine:
    (found,) = [line for line in report.trials if line.arm == arm]
    return found


def with_outcome(line: TrialLine, outcome: CaseOutcome) -> set[str]:
    return {case.id for case in line.cases if case.selected and case.outcome == outcome}


def test_every_trial_is_graded_at_its_first_attempt(report: RunReport) -> None:
    """Nothing of this machine's doing got in the way, and nobody claims more than was measured."""
    assert [(line.standing, line.failures) for line in report.trials] == 3 * [("Graded", 0)]
    assert not report.formal
    assert {line.coverage for line in report.cells} == {"18 of 46 cases, not formal"}


def test_the_reference_solution_passes_everything(report: RunReport) -> None:
    """Its gate too."""
    line = trial(report, "oracle")
    assert line.gate_passed
    assert len(with_outcome(line, CaseOutcome.PASSED)) == 18


def test_doing_nothing_passes_nothing(report: RunReport) -> None:
    """The untouched scaffold is graded as it is, and every case asks for work."""
    line = trial(report, "nop")
    assert line.gate_passed is False
    assert with_outcome(line, CaseOutcome.PASSED) == set()
    assert with_outcome(line, CaseOutcome.UNRESOLVED) == set()


def test_a_mutant_fails_exactly_what_it_declares(report: RunReport) -> None:
    """The planted mistake is found, and nothing else is blamed for it."""
    arms = yaml.safe_load(EXAMPLE.read_text())["spec"]["arms"]
    (mutant,) = [arm for arm in arms if arm["agent"]["kind"] == "mutant"]
    declared = {m["id"]: set(m["fails"]) for m in tomllib.loads(MUTANTS.read_text())["mutants"]}
    line = trial(report, mutant["name"])
    assert line.gate_passed
    assert with_outcome(line, CaseOutcome.FAILED) == declared[mutant["agent"]["mutant"]]
    assert with_outcome(line, CaseOutcome.UNRESOLVED) == set()


def test_what_a_run_left_can_be_read_afterwards(report: RunReport, home: Path) -> None:
    """Lists, a trial with its cases, its journal, its pods' words, the same report; and no pod is left."""
    assert report.name in proctor(home, "ls").stdout
    name = trial(report, "oracle").name
    assert "B-06" in proctor(home, "show", name).stdout
    assert "turnSealed" in proctor(home, "logs", name).stdout
    assert proctor(home, "logs", name, "--role", "sandbox").returncode == Code.OK
    again = json.loads(proctor(home, "report", report.name, "--json").stdout)
    assert RunReport.model_validate(again) == report
    assert proctor(home, "doctor").returncode in (Code.OK, Code.INCOMPLETE)
    assert list((home / "pods").glob("*")) == []
