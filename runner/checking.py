"""The public checker, run from the gate's own pod against a submission that is hostile.

The checker is the package's, never the submission's copy; it speaks HTTP only. Exit code 0: all checks passed, 1: some
failed, anything else: the checker itself is broken.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from runner.text import storable
from wire.errors import Broken
from wire.journal import GateStep

CHECKER_SECONDS: Final = 300.0
OUTPUT_LIMIT_BYTES: Final = 4 << 20
STEP_CHARACTERS: Final = 4096
STEPS_LIMIT: Final = 200


def run_checker(public: Path, path: str, url: str, admin_token: str) -> list[GateStep]:
    """Run the checker with this PATH and return its checks as steps.

    Raises:
        Broken: the checker neither passed nor failed; no reason to blame the submission.
    """
    argv = ["node", str(public / "checker" / "check.mjs"), "--url", url, "--admin-token", admin_token, "--json"]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                argv,
                cwd=public,
                env={"PATH": path},
                check=False,
                stdout=output,
                stderr=errors,
                timeout=CHECKER_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            # Each of its requests is bounded, so a submission that drags every answer out is what takes this long.
            return [GateStep(name="checker", passed=False, seconds=CHECKER_SECONDS, output="not done in time")]
        output.seek(0)
        errors.seek(0)
        return read_checks(code, output.read(OUTPUT_LIMIT_BYTES), errors.read(2000))


def read_checks(code: int, output: bytes, errors: bytes) -> list[GateStep]:
    """Turn the checker's answer into steps, which must agree with its exit code."""
    try:
        steps = [_step(check) for check in json.loads(output)][:STEPS_LIMIT]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        words = errors.decode(errors="replace")
        raise Broken(f"the public checker exited with {code} and printed no list of checks: {words}") from error
    if code not in {0, 1} or (code == 0) != all(step.passed for step in steps) or not steps:
        raise Broken(f"the public checker exited with {code}, which does not fit its {len(steps)} checks")
    return steps


def _step(check: dict[str, object]) -> GateStep:
    return GateStep(
        name=storable(str(check["name"]))[:512],
        passed=check["passed"] is True,
        seconds=float(str(check.get("seconds", 0))),
        output=storable(str(check.get("output", "")))[:STEP_CHARACTERS],
    )
