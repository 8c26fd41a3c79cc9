"""Check traffic against the OpenAPI 3.1 document that the submission itself serves.

The document is hostile: references may only stay inside it, and whatever breaks while reading it is its own fault.
"""

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT202012

from runner.kit.answers import Answer
from runner.kit.faults import SubmissionFailed

METHODS: Final = ("get", "put", "post", "delete", "patch")
ROOT: Final = "urn:served"


def _refuse(uri: str) -> Resource[Any]:
    raise NoSuchResource(ref=uri)  # type: ignore[call-arg]  # attrs, hidden from mypy


class OpenApi:
    """A served document."""

    def __init__(self, document: object) -> None:
        if not isinstance(document, dict) or not isinstance(document.get("paths"), dict):
            raise SubmissionFailed("the OpenAPI document is not an object with `paths`")
        if not str(document.get("openapi", "")).startswith("3.1"):
            raise SubmissionFailed(f"the OpenAPI document says `openapi: {document.get('openapi')!r}`, not 3.1")
        self.document: dict[str, Any] = document
        resource: Resource[Any] = DRAFT202012.create_resource(document)
        self._registry: Registry[Any] = Registry(retrieve=_refuse).with_resource(ROOT, resource)  # type: ignore[call-arg]  # attrs, hidden from mypy

    def operations(self) -> set[tuple[str, str]]:
        """Return every operation as (METHOD, path template), parameter names blanked."""
        return {(method.upper(), path) for path, method, _, _ in self.walk()}

    def walk(self) -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
        """Yield every operation: its path with blanked parameters, method, itself, its path's shared parameters."""
        for path, method, operation in self._walk():
            shared = self.document["paths"][path].get("parameters", [])
            yield _blank(path), method, operation, shared if isinstance(shared, list) else []

    def resolve(self, value: object) -> dict[str, Any]:
        """Return an object, or what its reference names."""
        target = value.get("$ref") if isinstance(value, dict) else None
        if isinstance(target, str) and target.startswith("#/"):
            return self._at(self._follow(target[1:]))
        if not isinstance(value, dict):
            raise SubmissionFailed("the OpenAPI document has something else where an object belongs")
        return value

    def check(self, answer: Answer) -> None:
        """Check one answer: operation, status, media type and body must be as documented.

        Raises:
            SubmissionFailed: they are not.
        """
        method, _, target = answer.request.partition(" ")
        pointer = self._response(method.lower(), urlsplit(target).path, answer)
        content = self._at(pointer).get("content")
        if not content:
            if answer.body:
                raise SubmissionFailed(f"{answer} has a body, its document says none")
            return
        media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in content:
            raise SubmissionFailed(f"{answer} is {media!r}, its document says {sorted(content)}")
        if media == "application/json" and "schema" in content[media]:
            self._validate(f"{pointer}/content/{_escape(media)}/schema", answer)

    def _validate(self, pointer: str, answer: Answer) -> None:
        validator = Draft202012Validator({"$ref": f"{ROOT}#{pointer}"}, registry=self._registry)
        try:
            validator.validate(answer.json)
        except ValidationError as error:
            where = "/".join(map(str, error.absolute_path))
            raise SubmissionFailed(
                f"{answer} breaks its document at {where or 'the root'}: {error.message[:400]}"
            ) from error
        except (Unresolvable, SchemaError, RecursionError, re.error, TypeError, AttributeError, ValueError) as error:
            raise SubmissionFailed(f"the schema of {answer} cannot be used: {type(error).__name__} {error}") from error

    def _response(self, method: str, path: str, answer: Answer) -> str:
        templates = sorted(self._matching(method, path), key=lambda template: template.count("{"))
        if not templates:
            raise SubmissionFailed(f"{answer}: the operation is not in the OpenAPI document")
        base = f"/paths/{_escape(templates[0])}/{method}/responses"
        responses = self._at(base)
        for key in (str(answer.status), f"{answer.status // 100}XX", "default"):
            if key in responses:
                return self._follow(f"{base}/{key}")
        raise SubmissionFailed(f"{answer}: the document knows the statuses {sorted(responses)}")

    def _matching(self, method: str, path: str) -> Iterator[str]:
        for template, known, _ in self._walk():
            if known == method and re.fullmatch(re.sub(r"\\{[^/]*?\\}", "[^/]+", re.escape(template)), path):
                yield template

    def _walk(self) -> Iterator[tuple[str, str, Any]]:
        for path, item in self.document["paths"].items():
            if isinstance(item, dict):
                yield from ((path, method, item[method]) for method in METHODS if isinstance(item.get(method), dict))

    def _follow(self, pointer: str) -> str:
        for _ in range(8):
            target = self._at(pointer).get("$ref")
            if not isinstance(target, str) or not target.startswith("#/"):
                return pointer
            pointer = target[1:]
        raise SubmissionFailed(f"the OpenAPI document's references at {pointer} go round in a circle")

    def _at(self, pointer: str) -> dict[str, Any]:
        found: Any = self.document
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise SubmissionFailed(f"the OpenAPI document has nothing at {pointer}")
            found = found[key]
        if not isinstance(found, dict):
            raise SubmissionFailed(f"the OpenAPI document has no object at {pointer}")
        return found


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def _blank(path: str) -> str:
    return re.sub(r"\{[^/]*?\}", "{}", path)
