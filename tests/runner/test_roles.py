"""The program as a whole: its help, and settings that are missing or wrong."""

from pathlib import Path

import pytest

from runner.__main__ import ROLES
from runner.ending import failure_of, write_outcome
from runner.errors import CanaryAnswered, PackageMalformed, SandboxLost, SuiteCannotStart
from tests.runner.processes import start_role
from wire.errors import Broken, DigestMismatch
from wire.outcome import MESSAGE_LIMIT_BYTES, OUTCOME, DriverFailure, Failed


def test_help_names_every_role(tmp_path: Path) -> None:
    """With what it is."""
    running = start_role("--help", tmp_path, {})
    assert running.wait() == 0
    assert all(role in running.output() and what in running.output() for role, (_, what) in ROLES.items())


def test_missing_settings_are_named(tmp_path: Path) -> None:
    """As they are written in the environment."""
    running = start_role("gate", tmp_path, {"candidate": "no digest"})
    assert running.wait() == 2
    assert {"PROCTOR_HUB_URL: ", "PROCTOR_CANDIDATE: ", "PROCTOR_DAEMON_URL: "} <= {
        line.partition(" ")[0] + " " for line in running.output().splitlines()
    }


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    """By its path."""
    running = start_role("sandbox", tmp_path, {"secrets": tmp_path, "own_user": "true", "spool": tmp_path / "s"})
    assert running.wait() == 2
    assert f"{tmp_path}/daemon" in running.output()


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        pytest.param(SandboxLost("x"), DriverFailure.SANDBOX_LOST, 75, id="sandbox"),
        pytest.param(CanaryAnswered("x"), DriverFailure.CANARY_ANSWERED, 75, id="canary"),
        pytest.param(DigestMismatch("x"), DriverFailure.DIGEST_MISMATCH, 75, id="digest"),
        pytest.param(PackageMalformed("x"), DriverFailure.PACKAGE_MALFORMED, 64, id="package"),
        pytest.param(SuiteCannotStart("x"), DriverFailure.SUITE_CANNOT_START, 64, id="suite"),
        pytest.param(Broken("x"), DriverFailure.UNEXPECTED, 75, id="ours"),
        pytest.param(ZeroDivisionError("x"), DriverFailure.UNEXPECTED, 75, id="a mistake in our code"),
    ],
)
def test_every_error_ends_in_one_outcome(error: Exception, reason: DriverFailure, code: int) -> None:
    """What the table does not know is tried again, and never graded."""
    failed, exit_code = failure_of(error)
    assert (failed.reason, exit_code) == (reason, code)


def test_a_termination_message_fits(tmp_path: Path) -> None:
    """The kubelet cuts longer ones, and half a message says nothing."""
    failed, _ = failure_of(Broken("\N{SNOWMAN}" * 100_000))
    write_outcome(tmp_path / "log", failed)
    content = (tmp_path / "log").read_bytes()
    assert len(content) <= MESSAGE_LIMIT_BYTES
    assert isinstance(OUTCOME.validate_json(content), Failed)
