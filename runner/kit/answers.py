"""Answers of the submission, read as what they are: hostile bytes with a promise attached.

An `Answer` never raises anything but `SubmissionFailed` when it is not what a case asks of it, so that a malformed
answer is the submission's failure and not an error of the suite.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.kit.casefile import cut
from runner.kit.faults import SubmissionFailed


class Fields(dict[str, Any]):
    """A JSON object whose missing member is the submission's failure."""

    def __missing__(self, key: str) -> Any:
        raise SubmissionFailed(f"an answer lacks the member {key!r}; it has {sorted(self)[:30]}")


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    request: str
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        """Return the body as JSON, objects as `Fields`."""
        try:
            return json.loads(self.body, object_hook=Fields)
        except (ValueError, RecursionError) as error:
            raise SubmissionFailed(f"{self} is not JSON: {error}") from error

    @property
    def fields(self) -> Fields:
        """Return the body as a JSON object."""
        found = self.json
        if not isinstance(found, Fields):
            raise SubmissionFailed(f"{self} is not a JSON object")
        return found

    def expect(self, *statuses: int) -> "Answer":
        """Return this answer, whose status must be one of these."""
        if self.status not in statuses:
            wanted = " or ".join(map(str, statuses))
            raise SubmissionFailed(f"{self}, expected {wanted}: {cut(self.body.decode(errors='replace'), 600)}")
        return self

    def without(self, name: str) -> "Answer":
        """Return this answer with one member of its object missing."""
        left = {key: value for key, value in self.fields.items() if key != name}
        return replace(self, body=json.dumps(left).encode())

    def __str__(self) -> str:
        return f"the answer {self.status} to {self.request}"
