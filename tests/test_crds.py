"""The generated CRDs: up to date, and bounded so that the API server can price their rules."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.crds import CRDS, REPOSITORY, build, files

GENERATED = [pytest.param(path, body, id=str(path)) for path, body in files()]
SCHEMAS = [pytest.param(build(crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"], id=crd.kind) for crd in CRDS]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every node of a schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


@pytest.mark.parametrize(("path", "body"), GENERATED)
def test_generated_files_are_up_to_date(path: Path, body: str) -> None:
    """`make crds` would change nothing."""
    assert (REPOSITORY / path).read_text(encoding="utf-8") == body


@pytest.mark.parametrize("schema", SCHEMAS)
def test_everything_is_bounded(schema: dict[str, Any]) -> None:
    """Every list, string and map has a limit, so a hostile object stays small and a rule's cost is known."""
    unbounded = [
        path
        for path, node in nodes(schema)
        if (node["type"] == "string" and "maxLength" not in node and "enum" not in node)
        or (node["type"] == "array" and "maxItems" not in node)
        or ("additionalProperties" in node and "maxProperties" not in node)
    ]
    assert unbounded == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_are_structural(schema: dict[str, Any]) -> None:
    """What the API server refuses never gets into a file: references, choices, nulls, nodes without a type."""
    allowed = {"object", "array", "string", "integer", "boolean", "number"}
    for path, node in nodes(schema):
        assert node["type"] in allowed, path
        assert not {"$ref", "anyOf", "const", "title"} & node.keys(), path
        assert node.get("default", "") is not None, path


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_field_of_a_spec_is_documented(schema: dict[str, Any]) -> None:
    """`kubectl explain` has a sentence for what people write."""
    bare = [
        path
        for path, node in nodes(schema["properties"]["spec"])
        if not path.endswith("[]") and not node.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("kind", "mutable"),
    [
        pytest.param(
            "BenchmarkRun",
            {"parallelism", "suspend", "suspendedArms", "cancel", "ttlSecondsAfterFinished", "repetitions"},
            id="BenchmarkRun",
        ),
        pytest.param("Trial", {"suspend", "cancel", "retries"}, id="Trial"),
    ],
)
def test_every_field_is_fixed_or_known_to_change(kind: str, mutable: set[str]) -> None:
    """A field added to a spec is either fixed or named here as one that may change."""
    body = build(next(crd for crd in CRDS if crd.kind == kind))
    spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fixed = {rule["fieldPath"][1:] for rule in spec["x-kubernetes-validations"] if "is immutable" in rule["message"]}
    assert fixed | mutable == set(spec["properties"])
    assert not fixed & mutable
