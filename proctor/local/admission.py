"""What the API server would refuse: our schemas and the rules that `proctor.crds` writes in CEL, for local mode.

Used twice: on files before a run starts, and on every write to the cluster in memory. A refusal names the field.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel, ValidationError

from controller.cluster import Kind, Object, Rejected
from wire.run import AgentKind, BenchmarkRunSpec, BenchmarkRunStatus
from wire.suite import TaskSuiteSpec, TaskSuiteStatus
from wire.trial import TrialSpec, TrialStatus

NAME_LIMIT: Final = 35
MODELS: Final[dict[Kind, tuple[type[BaseModel], type[BaseModel]]]] = {
    Kind.BenchmarkRun: (BenchmarkRunSpec, BenchmarkRunStatus),
    Kind.Trial: (TrialSpec, TrialStatus),
    Kind.TaskSuite: (TaskSuiteSpec, TaskSuiteStatus),
}
FREE: Final = {
    Kind.BenchmarkRun: {
        "parallelism", "suspend", "suspendedArms", "cancel", "ttlSecondsAfterFinished", "repetitions"
    },
    Kind.Trial: {"suspend", "cancel", "retries"},
}  # fmt: skip
GROWING: Final = {Kind.BenchmarkRun: ("repetitions",), Kind.Trial: ("retries",)}


def admit(kind: Kind, old: Object | None, new: Object) -> None:
    """Raise Rejected when the API server would; `old` is None for a create."""
    if kind not in MODELS:
        return
    spec, status = MODELS[kind]
    problems = [*_invalid(spec, new.get("spec"), "spec"), *_invalid(status, new.get("status") or {}, "status")]
    if not problems:
        problems += _rules(kind, new)
    if not problems and old is not None:
        problems += _changes(kind, old, new)
    if problems:
        raise Rejected(f"{kind.name} {new['metadata']['name']!r}: " + "; ".join(problems))


def _invalid(model: type[BaseModel], value: object, at: str) -> Iterator[str]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            yield f"{_field(at, problem['loc'])}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _field(at: str, location: tuple[int | str, ...]) -> str:
    return at + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _rules(kind: Kind, new: Object) -> Iterator[str]:
    if kind is Kind.BenchmarkRun:
        yield from _run_rules(new["metadata"]["name"], BenchmarkRunSpec.model_validate(new["spec"]))
    elif kind is Kind.TaskSuite:
        yield from _twice("spec.tasks", [task.name for task in TaskSuiteSpec.model_validate(new["spec"]).tasks])


def _run_rules(name: str, spec: BenchmarkRunSpec) -> Iterator[str]:
    if len(name) > NAME_LIMIT or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield f"metadata.name: at most {NAME_LIMIT} of a-z, 0-9 and -, beginning with a letter"
    yield from _twice("spec.arms", [arm.name for arm in spec.arms])
    for place, arm in enumerate(spec.arms):
        if (arm.agent.kind is AgentKind.MUTANT) != (arm.agent.mutant is not None):
            yield f"spec.arms[{place}].agent.mutant: given exactly when kind is mutant"
    for unknown in sorted(set(spec.suspended_arms) - {arm.name for arm in spec.arms}):
        yield f"spec.suspendedArms: {unknown!r} is not in arms"


def _twice(at: str, names: list[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{at}: the name {name!r} is there {times} times"


def _changes(kind: Kind, old: Object, new: Object) -> Iterator[str]:
    before, after = _whole(kind, old), _whole(kind, new)
    for name in sorted({*before, *after} if kind in FREE else ()):
        if name not in FREE[kind] and before.get(name) != after.get(name):
            yield f"spec.{name}: is immutable: copy the run under a new name"
    for name in GROWING.get(kind, ()):
        if after[name] < before[name]:
            yield f"spec.{name}: may only grow"
    if before.get("cancel") and not after.get("cancel"):
        yield "spec.cancel: cannot be taken back: copy the run under a new name"
    if kind is Kind.Trial:
        yield from _status_changes(old.get("status") or {}, new.get("status") or {})


def _status_changes(old: Object, new: Object) -> Iterator[str]:
    if old.get("result") is not None and old["result"] != new.get("result"):
        yield "status.result: is written once"
    if new.get("attempt", 0) < old.get("attempt", 0):
        yield "status.attempt: may only grow"


def _whole(kind: Kind, found: Object) -> Object:
    """Return a spec with its defaults, as the API server compares it."""
    return MODELS[kind][0].model_validate(found["spec"]).model_dump(mode="json", by_alias=True)
