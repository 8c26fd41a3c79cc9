"""From pydantic's JSON schema to a structural one, the only kind a CRD may have. Pure; knows nothing of our models."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

_KEPT: Final = (
    "type", "description", "default", "enum", "format", "pattern", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip


def structural(document: Schema) -> Schema:
    """Return a structural schema for what pydantic generated."""
    return _convert(document, document.get("$defs", {}))


def _convert(node: Schema, defs: Mapping[str, Schema]) -> Schema:
    """Return one node without references, nulls, constants and titles."""
    node = _resolve(node, defs)
    kept: Schema = {key: node[key] for key in _KEPT if node.get(key) is not None}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    if "const" in node:
        kept["enum"] = [node["const"]]
    if kept.get("type") == "integer":
        kept["format"] = "int64"
    if "properties" in node and "default" in kept:
        kept["default"] = {}  # the fields bring their own
    return {**kept, **_children(node, defs)}


def _children(node: Schema, defs: Mapping[str, Schema]) -> Schema:
    """Return what a node says about the nodes below it."""
    found: Schema = {}
    if "properties" in node:
        found["properties"] = {name: _convert(child, defs) for name, child in node["properties"].items()}
    if required := node.get("required"):
        found["required"] = sorted(required)
    for key in ("items", "additionalProperties"):
        # `additionalProperties: false` goes: the API server refuses or prunes unknown fields by itself.
        if isinstance(node.get(key), dict):
            found[key] = _convert(node[key], defs)
    return found


def _resolve(node: Schema, defs: Mapping[str, Schema]) -> Schema:
    """Replace a reference or an optional by what it stands for; what is said here outranks what is said there."""
    if "anyOf" in node:
        (only,) = (choice for choice in node["anyOf"] if choice.get("type") != "null")
        return _resolve({**only, **{key: value for key, value in node.items() if key != "anyOf"}}, defs)
    if "$ref" in node:
        there = defs[node["$ref"].removeprefix("#/$defs/")]
        return _resolve({**there, **{key: value for key, value in node.items() if key != "$ref"}}, defs)
    return node
