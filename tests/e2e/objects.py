"""Builders of the objects that the cluster tests apply."""

from typing import Any

from tests.e2e.kubectl import Object
from wire.names import API_VERSION

DIGEST = "sha256:" + "a" * 64


def run(name: str, arms: tuple[str, ...] = ("nop",), **spec: Any) -> Object:
    """Return a BenchmarkRun of the bundled task, quick cases only; an arm is a kind, or `mutant:<id>`."""
    return {
        "apiVersion": API_VERSION,
        "kind": "BenchmarkRun",
        "metadata": {"name": name},
        "spec": {
            "suite": "engram-transfer",
            "tasks": ["capacity-lease"],
            "arms": [arm(kind) for kind in arms],
            "limits": {"gateAttempts": 1},
            "evaluation": {"shards": 1, "tags": ["quick"]},
            **spec,
        },
    }


def arm(kind: str) -> Object:
    """Return an arm named after its agent."""
    kind, _, mutant = kind.partition(":")
    return {"name": kind, "agent": {"kind": kind, **({"mutant": mutant} if mutant else {})}}


def trial(name: str, **spec: Any) -> Object:
    """Return a Trial such as the operator makes; nobody runs it, since it belongs to no run."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Trial",
        "metadata": {"name": name},
        "spec": {
            "runRef": {"name": "none", "uid": "none"},
            "index": 0,
            "task": "capacity-lease",
            "package": DIGEST,
            "arm": arm("nop"),
            "repetition": 1,
            "user": {},
            "limits": {},
            "evaluation": {},
            "formal": False,
            **spec,
        },
    }


def suite(name: str, *tasks: Object) -> Object:
    """Return a TaskSuite."""
    return {"apiVersion": API_VERSION, "kind": "TaskSuite", "metadata": {"name": name}, "spec": {"tasks": list(tasks)}}


RESULT = {
    "applicable": 16,
    "passed": 16,
    "failed": 0,
    "blocked": 0,
    "unresolved": 0,
    "scheduled": 46,
    "digest": DIGEST,
}
