"""In an untrusted pod: as the agent (through the daemon, as uid 1000) and as root of its container (kubectl exec)."""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from runner.daemon import Daemon
from tests.e2e.installation import Installation, forwarded
from tests.e2e.kubectl import Object
from wire.names import DAEMON_PORT, LABEL_ROLE, LABEL_TRIAL
from wire.sandbox import CommandSpec

PROBE = Path(__file__).with_name("probe.py")


def pods(proctor: Installation, trial: str, role: str) -> list[Object]:
    """Return a trial's pods of a role."""
    return proctor.runs.items("pods", f"--selector={LABEL_TRIAL}={trial},{LABEL_ROLE}={role}")


def is_ready(pod: Object) -> bool:
    """Tell whether a pod's main container runs, its init steps being over."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def daemon(proctor: Installation, pod: Object) -> Iterator[Daemon]:
    """Give the daemon of an untrusted pod, with the bearer that only its driver has."""
    name, trial = pod["metadata"]["name"], pod["metadata"]["labels"][LABEL_TRIAL]
    attempt, _, rest = name.removeprefix(f"{trial}-").partition("-")
    data = proctor.runs.get("secret", f"{trial}-{attempt}-secrets")["data"]
    with forwarded(proctor.runs, f"pod/{name}", DAEMON_PORT) as url:
        client = Daemon(url, b64decode(data[f"daemon-{rest}"]).decode(), first_seconds=30, silence_seconds=30)
        try:
            yield client
        finally:
            client.close()


def probe(proctor: Installation, pod: Object, targets: Mapping[str, str]) -> dict[str, Any]:
    """Run the probe as the agent; what it reached, by target."""
    with daemon(proctor, pod) as inside:
        argv = ["python3", "-c", PROBE.read_text(encoding="utf-8"), json.dumps(dict(targets))]
        done = inside.run(f"probe-{uuid4().hex[:8]}", CommandSpec(argv=argv, cwd="/", timeout_seconds=120))
    assert done.passed, done.tail
    found: dict[str, Any] = json.loads(done.tail)
    return found


def as_root(proctor: Installation, pod: Object, *argv: str) -> str:
    """Run a command as root of the pod's container."""
    return proctor.runs("exec", pod["metadata"]["name"], "--container=sandbox", "--", *argv)
