"""Faults on a real cluster: each waits for its moment in a trial's life, strikes, and says what must be recorded."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import sleep
from typing import Any

from tests.e2e import inside
from tests.e2e.installation import Installation
from tests.e2e.kubectl import Failed, Object, run, until

MOMENT_SECONDS = 240


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The trial that suffers."""

    proctor: Installation
    run: str

    @property
    def object(self) -> Object:
        """The trial as it is now; an empty one before it is made."""
        return next(iter(self.proctor.trials(self.run)), {})

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])

    @property
    def status(self) -> Object:
        """Its status; empty before the first one is written."""
        found: Object = self.object.get("status", {})
        return found

    def pod(self, role: str) -> Object | None:
        """Return its living pod of a role."""
        found = inside.pods(self.proctor, self.name, role) if self.object else []
        return next((pod for pod in found if inside.is_ready(pod)), None)

    def await_pod(self, role: str) -> Object:
        """Wait for its pod of a role."""
        return until(f"a {role} pod runs", lambda: self.pod(role), MOMENT_SECONDS, 0.2)

    def kill(self, pod: Object) -> None:
        """Delete a pod without grace."""
        self.proctor.runs("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: on which arm's trial, what is done, and which failed attempts may be recorded for it."""

    strike: Callable[[Trial], None]
    arm: str = "nop"
    failures: tuple[int, int] = (0, 0)
    """Fewest and most failed attempts afterwards."""


def sandbox_deleted(trial: Trial) -> None:
    """Take the sandbox away while a session uses it."""
    trial.await_pod("session")
    trial.kill(trial.await_pod("sandbox"))


def session_killed_in_a_turn(trial: Trial) -> None:
    """Kill the session pod while the turn's command runs in the sandbox."""
    trial.await_pod("session")
    sandbox = trial.await_pod("sandbox")
    until("the turn's command runs", lambda: "npm" in processes(trial.proctor, sandbox) or None, MOMENT_SECONDS, 0.2)
    session = trial.pod("session")
    assert session, "the session ended before its moment came"
    trial.kill(session)


def processes(proctor: Installation, pod: Object) -> str:
    """Return the command lines of the agent's processes; empty while the container starts."""
    try:
        return inside.as_root(proctor, pod, "ps", "-U", "1000", "-o", "args=")
    except Failed:
        return ""


def sut_deleted(trial: Trial) -> None:
    """Take the sut away while the gate uses it."""
    trial.await_pod("gate")
    trial.kill(trial.await_pod("sut"))


def evaluator_deleted(trial: Trial) -> None:
    """Take the evaluator away in the middle of its cases."""
    evaluator = trial.await_pod("evaluate")
    sleep(5)
    trial.kill(evaluator)


def api_server_killed(trial: Trial) -> None:
    """Kill the API server for 30 s while a session runs."""
    trial.await_pod("session")
    node("kill", "kube-apiserver")
    sleep(30)
    node("start", "kube-apiserver")
    until("the API server answers", lambda: answers(trial.proctor), 60, 1)


def answers(proctor: Installation) -> bool:
    """Tell whether the API server answers."""
    try:
        return proctor.runs("get", "--raw=/readyz") == "ok"
    except Failed:
        return False


def node(verb: str, component: str) -> None:
    """Ask the test node for a fault of one of its processes."""
    run([sys.executable, "-m", "tests.cluster", verb, component])


def killed_for_a_minute(component: str, stage: str) -> Callable[[Trial], None]:
    """Return the fault that a part of the installation is gone for 60 s from a stage on."""

    def strike(trial: Trial) -> None:
        trial.await_pod(stage)
        with without(trial.proctor, component):
            sleep(60)

    return strike


@contextmanager
def without(proctor: Installation, component: str) -> Iterator[None]:
    """Take a component away without grace, and bring it back."""
    proctor.system("scale", f"deployment/proctor-{component}", "--replicas=0")
    selector = f"--selector=app.kubernetes.io/component={component}"
    proctor.system("delete", "pod", selector, "--grace-period=0", "--force", "--ignore-not-found")
    try:
        yield
    finally:
        proctor.system("scale", f"deployment/proctor-{component}", "--replicas=1")
        proctor.system("rollout", "status", f"deployment/proctor-{component}", "--timeout=120s")


def has(path: str, *values: Any) -> Callable[[Trial], bool]:
    """Return the predicate that a field of the status is set, or has one of these values."""

    def check(trial: Trial) -> bool:
        found = trial.status.get(path)
        return found in values if values else bool(found)

    return check


def exists(role: str) -> Callable[[Trial], bool]:
    """Return the predicate that a pod of a role exists, running or not."""
    return lambda trial: bool(trial.object) and bool(inside.pods(trial.proctor, trial.name, role))


MOMENTS: dict[str, Callable[[Trial], bool]] = {
    "trial made": lambda trial: bool(trial.object),
    "admitted": has("admitted"),
    "attempt recorded": has("attempt"),
    "sandbox made": exists("sandbox"),
    "session made": exists("session"),
    "candidate recorded": has("candidate"),
    "sut made": exists("sut"),
    "gate made": exists("gate"),
    "submission recorded": has("submission"),
    "evaluator made": exists("evaluate"),
}


def operator_killed_ten_times(trial: Trial) -> None:
    """SIGKILL the operator at ten moments of one trial."""
    for moment, is_there in MOMENTS.items():
        until(moment, lambda check=is_there: check(trial) or None, MOMENT_SECONDS, 0.2)  # type: ignore[misc]
        kill_operator(trial.proctor)


def kill_operator(proctor: Installation) -> None:
    """SIGKILL the operator's process; its pod is replaced, so that no back-off of the kubelet delays the next one."""
    script = (
        "import os,glob\nfor p in glob.glob('/proc/[0-9]*/cmdline'):\n b=open(p,'rb').read()\n i=int(p.split('/')[2])\n"
    )
    script += " if b'controller' in b and b'tini' not in b and i!=os.getpid(): os.kill(i,9)"
    names = proctor.system("get", "pods", "--selector=app.kubernetes.io/component=operator", "--output=name").split()
    for name in names:
        with suppress(Failed):  # it is starting, or ends with its main process: deleted below in any case
            proctor.system("exec", name, "--", "python3", "-c", script)
        proctor.system("delete", name, "--grace-period=0", "--force", "--wait=false", "--ignore-not-found")


FAULTS: dict[str, Fault] = {
    "session killed in a turn": Fault(strike=session_killed_in_a_turn, arm="oracle", failures=(1, 1)),
    "hub killed for 60 s": Fault(strike=killed_for_a_minute("hub", "session")),
    "operator killed at ten moments": Fault(strike=operator_killed_ten_times),
    "sandbox deleted": Fault(strike=sandbox_deleted, failures=(1, 1)),
    "sut deleted": Fault(strike=sut_deleted, failures=(1, 1)),
    "evaluator deleted": Fault(strike=evaluator_deleted, failures=(1, 1)),
    "API server killed for 30 s": Fault(strike=api_server_killed, failures=(0, 1)),
    "PostgreSQL killed for 60 s": Fault(strike=killed_for_a_minute("postgresql", "session")),
    "hub killed while the gate works": Fault(strike=killed_for_a_minute("hub", "gate")),
    "PostgreSQL killed while cases run": Fault(strike=killed_for_a_minute("postgresql", "evaluate")),
}
IN_CI = ("session killed in a turn", "hub killed for 60 s", "operator killed at ten moments")
