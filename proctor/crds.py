"""The CRDs, generated from the models in `wire/`: `python -m proctor.crds` (`make crds`) writes them.

Pydantic's JSON schema becomes a structural one (references inlined, no nulls, no titles); what a schema cannot say
is added from the tables below: list types, rules in CEL, printer columns. Nobody edits the YAML.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from proctor.structural import Schema, structural
from wire.model import Wire
from wire.names import GROUP, VERSION
from wire.run import BenchmarkRunSpec, BenchmarkRunStatus
from wire.suite import TaskSuiteSpec, TaskSuiteStatus
from wire.trial import TrialSpec, TrialStatus

Path_: TypeAlias = str
"""Where in an object: `spec.arms[].agent`."""

REPOSITORY: Final = Path(__file__).resolve().parent.parent
# Helm installs the second folder before anything else; the first one is for `kubectl apply --server-side -f crds/`.
FOLDERS: Final = (Path("crds"), Path("charts/proctor/crds"))
COPY: Final = "copy the run under a new name"
NAME_LIMIT: Final = 35  # a run's name, its UID's five characters, index, attempt, role and shard fit into 63

_RESERVED: Final = frozenset({"package"})  # words of CEL's own among our field names


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One CEL rule. `field` is the path that the refusal names."""

    rule: str
    message: str
    field: str | None = None

    def dump(self) -> Schema:
        """Return the rule as `x-kubernetes-validations` wants it."""
        where = {"fieldPath": self.field} if self.field else {}
        return {"rule": self.rule, "message": self.message, "reason": "FieldValueInvalid", **where}


@dataclass(frozen=True, kw_only=True)
class Crd:
    """One kind: its models and everything that a model cannot say."""

    kind: str
    plural: str
    short: str
    description: str
    spec: type[Wire]
    status: type[Wire]
    lists: Mapping[Path_, str]
    """List → the key that makes it a map, or `` for a set."""
    rules: Mapping[Path_, tuple[Rule, ...]]
    columns: tuple[tuple[str, str, str], ...]
    """Name, type, JSON path; the age is added."""
    selectable: tuple[str, ...] = field(default=())


def fixed(name: str, *, optional: bool = False, message: str = COPY) -> Rule:
    """Return the rule that a field keeps its first value."""
    cel = f"__{name}__" if name in _RESERVED else name
    same = f"self.{cel} == oldSelf.{cel}"
    if optional:
        same = f"has(self.{cel}) == has(oldSelf.{cel}) && (!has(self.{cel}) || {same})"
    return Rule(rule=same, message=f"{name} is immutable: {message}", field=f".{name}")


def one_way(name: str) -> Rule:
    """Return the rule that a switch, once on, stays on."""
    return Rule(
        rule=f"!oldSelf.{name} || self.{name}", message=f"{name} cannot be taken back: {COPY}", field=f".{name}"
    )


def growing(name: str, message: str) -> Rule:
    """Return the rule that a number never falls."""
    return Rule(rule=f"self.{name} >= oldSelf.{name}", message=f"{name} may only grow: {message}", field=f".{name}")


def write_once(name: str) -> Rule:
    """Return the rule that an optional field, once set, stays as it is."""
    rule = f"!has(oldSelf.{name}) || (has(self.{name}) && self.{name} == oldSelf.{name})"
    return Rule(rule=rule, message=f"{name} is written once", field=f".{name}")


_MUTANT: Final = Rule(
    rule="(self.kind == 'mutant') == has(self.mutant)",
    message="mutant names the mutant to apply when kind is mutant, and is left out otherwise",
    field=".mutant",
)
_CONDITIONS: Final = {"status.conditions": "type"}
_RUN_FIXED: Final = ("suite", "tasks", "arms", "seed", "user", "limits", "evaluation", "formal")
_TRIAL_FIXED: Final = (
    "runRef", "index", "task", "package", "memoryMb", "arm", "repetition", "user", "limits", "evaluation", "formal",
)  # fmt: skip
_RUN_SETS: Final = dict.fromkeys(("spec.tasks", "spec.suspendedArms", "spec.evaluation.tags"), "")
_OURS: Final = "the operator made this trial; change its run instead"

CRDS: Final = (
    Crd(
        kind="BenchmarkRun",
        plural="benchmarkruns",
        short="bmr",
        description="A BenchmarkRun measures every arm on every task, `repetitions` times.",
        spec=BenchmarkRunSpec,
        status=BenchmarkRunStatus,
        lists={"spec.arms": "name", **_RUN_SETS, **_CONDITIONS},
        rules={
            "": (
                Rule(
                    rule=f"size(self.metadata.name) <= {NAME_LIMIT} && "
                    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                    message=f"metadata.name becomes part of host names: at most {NAME_LIMIT} of a-z, 0-9 and -, "
                    "starting with a letter and not ending with -",
                ),
            ),
            "spec": (
                *(fixed(name) for name in _RUN_FIXED),
                growing("repetitions", COPY),
                one_way("cancel"),
                Rule(
                    rule="self.suspendedArms.all(name, self.arms.exists(arm, arm.name == name))",
                    message="suspendedArms names an arm that is not in arms",
                    field=".suspendedArms",
                ),
            ),
            "spec.arms[].agent": (_MUTANT,),
        },
        columns=(
            ("Phase", "string", ".status.phase"),
            ("Total", "integer", ".status.trials.total"),
            ("Active", "integer", ".status.trials.active"),
            ("Graded", "integer", ".status.trials.graded"),
            ("Errored", "integer", ".status.trials.errored"),
        ),
        selectable=(".spec.suite", ".status.phase"),
    ),
    Crd(
        kind="Trial",
        plural="trials",
        short="bmt",
        description="A Trial is one cell of a run: one arm on one task, once. The operator makes it.",
        spec=TrialSpec,
        status=TrialStatus,
        lists={"spec.evaluation.tags": "", **_CONDITIONS},
        rules={
            "spec": (
                *(
                    fixed(name, message=_OURS)
                    for name in _TRIAL_FIXED
                ),
                fixed("image", optional=True, message=_OURS),
                one_way("cancel"),
                growing("retries", "`proctor retry` adds to it"),
            ),
            "spec.arm.agent": (_MUTANT,),
            "status": (write_once("result"), growing("attempt", "an attempt is never taken back")),
        },
        columns=(
            ("Run", "string", ".spec.runRef.name"),
            ("Task", "string", ".spec.task"),
            ("Arm", "string", ".spec.arm.name"),
            ("Phase", "string", ".status.phase"),
            ("Attempt", "integer", ".status.attempt"),
        ),
        selectable=(".spec.runRef.name", ".spec.task", ".status.phase"),
    ),
    Crd(
        kind="TaskSuite",
        plural="tasksuites",
        short="bts",
        description="A TaskSuite names tasks by the digests of their packages. No hidden content is in it.",
        spec=TaskSuiteSpec,
        status=TaskSuiteStatus,
        lists={"spec.tasks": "name", **_CONDITIONS},
        rules={},
        columns=(("Verified", "string", '.status.conditions[?(@.type=="Verified")].status'),),
    ),
)  # fmt: skip


def build(crd: Crd) -> Schema:
    """Return a CustomResourceDefinition."""
    root = {
        "type": "object",
        "description": crd.description,
        "required": ["spec"],
        "properties": {
            # The API server allows rules over metadata only where the schema mentions it.
            "metadata": {"type": "object"},
            "spec": structural(crd.spec.model_json_schema(by_alias=True)),
            "status": structural(crd.status.model_json_schema(by_alias=True)),
        },
    }
    for path, key in crd.lists.items():
        at(root, path).update(list_type(key))
    for path, rules in crd.rules.items():
        at(root, path)["x-kubernetes-validations"] = [rule.dump() for rule in rules]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{crd.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": crd.kind,
                "listKind": f"{crd.kind}List",
                "plural": crd.plural,
                "singular": crd.kind.lower(),
                "shortNames": [crd.short],
                "categories": ["proctor"],
            },
            "versions": [version(crd, root)],
        },
    }


def version(crd: Crd, root: Schema) -> Schema:
    """Return the one served version."""
    columns = (*crd.columns, ("Age", "date", ".metadata.creationTimestamp"))
    selectable = [{"jsonPath": path} for path in crd.selectable]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns],
        **({"selectableFields": selectable} if selectable else {}),
        "schema": {"openAPIV3Schema": root},
    }


def list_type(key: str) -> Schema:
    """Return how list items are told apart: by a key, or by value."""
    if not key:
        return {"x-kubernetes-list-type": "set"}
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


def at(root: Schema, path: Path_) -> Schema:
    """Return the schema at a path such as `spec.arms[].agent`; the empty path is the root."""
    here = root
    for step in path.split(".") if path else []:
        here = here["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            here = here["items"]
    return here


def files() -> Iterator[tuple[Path, str]]:
    """Yield every generated file, by its path in the repository."""
    for crd in CRDS:
        body = "# Generated from wire/ by `make crds`; do not edit.\n" + yaml.safe_dump(
            build(crd), sort_keys=False, width=118, allow_unicode=True
        )
        for folder in FOLDERS:
            yield folder / f"{crd.plural}.yaml", body


def main() -> int:
    """Write the files."""
    for path, body in files():
        target = REPOSITORY / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
