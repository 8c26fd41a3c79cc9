"""What is graded is what passed the gate: one flipped byte in the stored submission, and nothing is graded."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e import objects
from tests.e2e.faults import Trial, without
from tests.e2e.installation import Installation
from tests.e2e.kubectl import until

pytestmark = pytest.mark.cluster
# Flips the lowest bit of the byte in the middle of the stored file; twice is as never.
FLIP = """
import sys
with open(sys.argv[1], "r+b") as file:
    middle = file.seek(0, 2) // 2
    file.seek(middle); byte = file.read(1)[0]
    file.seek(middle); file.write(bytes([byte ^ 1]))
"""


@contextmanager
def flipped(proctor: Installation, digest: str) -> Iterator[None]:
    """Spoil an archive in the hub's store, and mend it afterwards: other trials may hold the same one."""
    name = digest.removeprefix("sha256:")
    argv = ("exec", "deploy/proctor-hub", "--", "python3", "-c", FLIP, f"/var/lib/proctor/store/{name[:2]}/{name}")
    proctor.system(*argv)
    try:
        yield
    finally:
        proctor.system(*argv)


def test_a_flipped_byte_in_the_stored_submission_is_refused(proctor: Installation) -> None:
    """The hub does not give it out, no case runs on it, and the trial is Errored for a reason that names the digest."""
    proctor.apply_run(objects.run("flipped"))
    trial = Trial(proctor=proctor, run="flipped")
    trial.await_pod("gate")
    with without(proctor, "operator"):
        # The gate has had its copy; the evaluator is to get the spoilt one.
        gate = f"--selector=proctor.dev/trial={trial.name},proctor.dev/role=gate"
        until(
            "the gate is over", lambda: "Succeeded" in proctor.runs("get", "pods", gate, "--output=yaml") or None, 240
        )
        digest = trial.status["candidate"]
        with flipped(proctor, digest), proctor.hub() as hub:
            refused = hub.get(f"/v1/archives/{digest}")
            assert refused.status_code >= 400
            assert digest in refused.text
    with flipped(proctor, digest):
        proctor.wait("flipped", minutes=8)
    assert trial.status["phase"] == "Errored"
    assert "result" not in trial.status
    last = trial.status["attempts"][-1]
    assert (last["failureClass"], last["reason"]) == ("harness", "DigestMismatch")
    assert "verdict" not in proctor.record(trial.object)
    proctor.delete("flipped")
