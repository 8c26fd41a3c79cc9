"""Digest rules against fixed vectors: a change of rule would orphan every stored digest."""

import json
from pathlib import Path

import pytest

from wire.digest import canonical, of_bytes, of_json, of_manifest

VECTORS = json.loads((Path(__file__).parent / "digests.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["json"], ids=lambda vector: vector["id"])
def test_json_digests_are_stable(vector: dict[str, object]) -> None:
    """The canonical form and its digest are what they were."""
    assert canonical(vector["value"]).decode() == vector["canonical"]
    assert of_json(vector["value"]) == vector["digest"]


def test_bytes_digest_is_sha256() -> None:
    """The empty input has SHA-256's well-known digest."""
    assert of_bytes(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_manifest_digest_depends_on_names_and_parts() -> None:
    """Exchanging two parts changes the manifest's digest."""
    assert of_manifest({"a": "x", "b": "y"}) != of_manifest({"a": "y", "b": "x"})


def test_nan_is_not_json() -> None:
    """NaN has no canonical form."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(float("nan"))
