"""The plugin as a suite meets it: pytest in a process of its own, on suites written here."""

import textwrap
from pathlib import Path

import pytest

from runner.errors import SuiteCannotStart
from runner.evaluate_suite import SuiteRun
from runner.kit.reporting import KitConfig, Planned, Ran
from wire.journal import CaseOutcome
from wire.package import Operations

OPERATIONS = Operations.model_validate(
    {name: ["true"] for name in ("install", "build", "migrate", "api", "worker", "test")}
)
HEAD = """
    import os, signal, time
    import pytest
    from runner.kit import SubmissionFailed, case, eventually, require

    def quick(id, **more):
        return case(id, dimension=id[0], title=id, clauses=["1"], **more)
"""


def run(tmp_path: Path, body: str, **settings: object) -> list[Planned | Ran]:
    """Run a suite and return its reports."""
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_suite.py").write_text(textwrap.dedent(HEAD) + textwrap.dedent(body))
    config = KitConfig.model_validate(
        {
            "daemon_url": "http://127.0.0.1:9",
            "daemon_bearer": "b",
            "sut_host": "127.0.0.1",
            "own_host": "127.0.0.1",
            "operations": OPERATIONS,
            "reports": "",
            "scratch": str(tmp_path / "scratch"),
            "public": str(tmp_path),
            **settings,
        }
    )
    reports: list[Planned | Ran] = []
    SuiteRun(suite, config).run(reports.append)
    return reports


def outcomes(reports: list[Planned | Ran]) -> dict[str, CaseOutcome]:
    """Return what became of each case."""
    return {report.case: report.outcome for report in reports if isinstance(report, Ran)}


FOUR = """
    @quick("A-02", tags=["quick"])
    def test_fails(case_file):
        case_file.line("GET / → 500")
        require(False, "it answered 500")

    @quick("A-01", tags=["quick"])
    def test_passes():
        pass

    @quick("B-01")
    def test_asserts():
        assert 1 == 2, "no"

    @quick("C-01", tags=["quick"], timed=True)
    def test_stumbles():
        raise KeyError("a mistake in the suite")
"""


def test_the_plan_comes_first_and_every_case_is_reported(tmp_path: Path) -> None:
    """In the order in which the shard runs them, with message and evidence."""
    reports = run(tmp_path, FOUR)
    plan = reports[0]
    assert isinstance(plan, Planned)
    assert [case.id for case in plan.cases] == ["A-01", "A-02", "B-01", "C-01"]
    assert plan.mine == ["A-01", "A-02", "B-01", "C-01"]
    found = outcomes(reports)
    assert list(found) == plan.mine
    assert list(found.values()) == ["passed", "failed", "failed", "unresolved"]
    failed = reports[2]
    assert isinstance(failed, Ran)
    assert failed.message == "[call] SubmissionFailed: it answered 500"
    assert failed.evidence[0].text == "GET / → 500"


def test_a_shard_runs_its_share_of_what_is_selected_and_not_settled(tmp_path: Path) -> None:
    """The plan holds the whole suite all the same."""
    reports = run(tmp_path, FOUR, tags=["quick"], shard=0, shards=2, settled=["A-01"])
    plan = reports[0]
    assert isinstance(plan, Planned)
    assert {case.id: case.selected for case in plan.cases} == {"A-01": True, "A-02": True, "B-01": False, "C-01": True}
    assert plan.mine == ["A-01", "C-01"]
    assert outcomes(reports) == {"C-01": CaseOutcome.UNRESOLVED}


def test_a_plan_can_be_had_without_running_anything(tmp_path: Path) -> None:
    """For a submission that was never built."""
    assert len(run(tmp_path, FOUR, plan_only=True)) == 1


def test_a_case_that_outlives_its_deadline_is_unresolved(tmp_path: Path) -> None:
    """And the next one is run."""
    body = """
        @quick("A-01", deadline_seconds=0.3)
        def test_sleeps():
            time.sleep(30)

        @quick("A-02")
        def test_next():
            pass
    """
    assert outcomes(run(tmp_path, body)) == {"A-01": CaseOutcome.UNRESOLVED, "A-02": CaseOutcome.PASSED}


def test_a_wait_for_the_submission_is_its_failure(tmp_path: Path) -> None:
    """Waiting has its own limit, below the case's."""
    body = """
        @quick("A-01")
        def test_waits():
            eventually(lambda: False, "the lease should expire", seconds=0.1)
    """
    assert outcomes(run(tmp_path, body)) == {"A-01": CaseOutcome.FAILED}


def test_what_was_reported_survives_the_death_of_the_process(tmp_path: Path) -> None:
    """The cases after it are simply not reported."""
    body = """
        @quick("A-01")
        def test_passes():
            pass

        @quick("A-02")
        def test_dies():
            os.kill(os.getpid(), signal.SIGKILL)

        @quick("A-03")
        def test_never():
            pass
    """
    assert outcomes(run(tmp_path, body)) == {"A-01": CaseOutcome.PASSED}


def test_the_process_ends_at_its_limit(tmp_path: Path) -> None:
    """However many cases are left."""
    body = """
        @quick("A-01")
        def test_sleeps():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            time.sleep(600)
    """
    assert outcomes(run(tmp_path, body, limit_seconds=12)) == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param("def broken(:\n", "SyntaxError", id="a syntax error"),
        pytest.param("def test_bare():\n    pass\n", "not a case", id="a test that is no case"),
        pytest.param("", "no case", id="nothing"),
        pytest.param(
            '@quick("A-01")\ndef test_a():\n    pass\n\n@quick("A-01")\ndef test_b():\n    pass\n',
            "twice",
            id="one id twice",
        ),
        pytest.param(
            '@case("A-01", dimension="A", title="t", clauses=[])\ndef test_a():\n    pass\n', "clauses", id="no clause"
        ),
    ],
)
def test_a_malformed_suite_cannot_start(tmp_path: Path, body: str, words: str) -> None:
    """It is the task's fault, said in one error."""
    with pytest.raises(SuiteCannotStart, match=words):
        run(tmp_path, body)
