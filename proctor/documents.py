"""From a YAML file to validated documents: what `proctor run` accepts, refused with the place and the fix."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from controller.cluster import Kind, Object, Rejected
from proctor.local.admission import admit
from wire.errors import InvalidInput
from wire.names import API_VERSION

ACCEPTED: Final = {kind.name: kind for kind in (Kind.BenchmarkRun, Kind.TaskSuite)}
NAMESPACE: Final = "proctor-runs"
BYTES_LIMIT: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Document:
    """One object of a file."""

    kind: Kind
    body: Object

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Return the object's namespace."""
        return str(self.body["metadata"]["namespace"])


def read_documents(file: Path) -> list[Document]:
    """Read every document of a file, TaskSuites first.

    Raises:
        InvalidInput: naming the document and the field; all that is wrong, not only the first.
    """
    try:
        if file.stat().st_size > BYTES_LIMIT:
            raise InvalidInput(f"{file}: is larger than {BYTES_LIMIT} bytes")
        found = [body for body in yaml.safe_load_all(file.read_text()) if body is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file}: is not YAML: {' '.join(str(error).split())}") from error
    if not found:
        raise InvalidInput(f"{file}: holds no document")
    documents, problems = [], []
    for number, body in enumerate(found, start=1):
        try:
            documents.append(_document(body))
        except (InvalidInput, Rejected) as error:
            problems.append(f"{file}: document {number}: {error}")
    if problems:
        raise InvalidInput("\n".join(problems))
    return sorted(documents, key=lambda document: document.kind is not Kind.TaskSuite)


def _document(body: object) -> Document:
    if not isinstance(body, dict):
        raise InvalidInput("is not an object with apiVersion, kind, metadata and spec")
    kind = ACCEPTED.get(str(body.get("kind")))
    if kind is None:
        raise InvalidInput(f"kind: {body.get('kind')!r} is not one of {', '.join(ACCEPTED)}")
    if body.get("apiVersion") != API_VERSION:
        raise InvalidInput(f"apiVersion: {body.get('apiVersion')!r} is not {API_VERSION!r}")
    if unknown := sorted(set(map(str, body)) - {"apiVersion", "kind", "metadata", "spec"}):
        raise InvalidInput(f"{unknown[0]}: is not a field of a {kind.name}")
    meta = body.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise InvalidInput("metadata.name: is required")
    made = {**body, "metadata": {"namespace": NAMESPACE, **meta}}
    admit(kind, None, made)
    return Document(kind=kind, body=made)
