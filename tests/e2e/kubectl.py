"""kubectl and helm as the user has them: the tests speak to the cluster through the same front door."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from time import monotonic, sleep
from typing import Any, TypeAlias, TypeVar

from proctor.crds import REPOSITORY

Object: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Failed(AssertionError):
    """A command ended with an error; the message is what it said."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """kubectl, bound to one cluster and namespace."""

    kubeconfig: str
    namespace: str = "default"

    def __call__(self, *argv: str, given: object = None, timeout_seconds: float = 120) -> str:
        """Run kubectl, feed it an object (or a list of them) if there is one, and return what it printed."""
        text = None if given is None else json.dumps(given)
        return self.feed(text, *argv, timeout_seconds=timeout_seconds)

    def feed(self, text: str | None, *argv: str, timeout_seconds: float = 120) -> str:
        """Run kubectl with a text as its input."""
        program = (fetched("kubectl"), f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}")
        return run((*program, *argv), given=text, timeout_seconds=timeout_seconds)

    def apply(self, *objects: Object) -> str:
        """Apply objects as a user would."""
        return self("apply", "-f", "-", given=listed(objects))

    def get(self, *argv: str) -> Object:
        """Return an object or a list."""
        found: Object = json.loads(self("get", "--output=json", *argv))
        return found

    def items(self, *argv: str) -> list[Object]:
        """Return the items of a list."""
        found: list[Object] = self.get(*argv)["items"]
        return found

    def refusal(self, *argv: str, given: object = None) -> str:
        """Return why the server refused; fail if it did not."""
        try:
            said = self(*argv, given=given)
        except Failed as refused:
            return str(refused)
        raise AssertionError(f"was accepted: {said}")


@cache
def fetched(name: str) -> str:
    """Return kubectl or helm as `make tools` installs them."""
    return run([sys.executable, str(REPOSITORY / "tools" / "fetch.py"), name]).strip()


def listed(objects: Sequence[Object]) -> Object:
    """Return objects as one document."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def run(argv: Sequence[str], *, given: str | None = None, timeout_seconds: float = 120) -> str:
    """Run a command; its standard output, or Failed with everything it said."""
    done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(argv[:6])}: exit {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def until(what: str, check: Callable[[], T | None], seconds: float = 60, pause_seconds: float = 0.5) -> T:
    """Return the first true answer of a check, asked again and again; fail with `what` when time is up."""
    end = monotonic() + seconds
    while not (answer := check()):
        assert monotonic() < end, f"after {seconds:.0f} s not yet: {what}"
        sleep(pause_seconds)
    return answer
