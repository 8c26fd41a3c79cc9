"""What the command line asks of a hub: lists, facts, journals, reports, and packages to store.

One client for a hub on a socket (local mode) and at an address (a cluster). Failures are told as our errors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx2
from pydantic import TypeAdapter, ValidationError

from wire.digest import Digest
from wire.errors import Broken, InvalidInput, NotReady, Refused
from wire.package import PackageManifest
from wire.packing import Packed
from wire.report import JournalRow, RunReport, RunSummary, TrialFacts, TrialSummary

_RUNS = TypeAdapter(list[RunSummary])
_TRIALS = TypeAdapter(list[TrialSummary])
_JOURNAL = TypeAdapter(list[JournalRow])
TIMEOUT_SECONDS = 60.0


class HubClient:
    """A hub's admin side."""

    def __init__(self, url: str, token: str, socket: Path | None = None) -> None:
        self._url = url
        transport = httpx2.HTTPTransport(uds=str(socket)) if socket else None
        self._client = httpx2.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, transport=transport, timeout=TIMEOUT_SECONDS
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def runs(self) -> list[RunSummary]:
        """Return every run, youngest first."""
        return _RUNS.validate_json(self._get("/v1/runs"))

    def trials(self, run_uid: str) -> list[TrialSummary]:
        """Return a run's trials by index."""
        return _TRIALS.validate_json(self._get(f"/v1/runs/{run_uid}/trials"))

    def trial(self, uid: str) -> TrialFacts:
        """Return everything about one trial but its journal."""
        return TrialFacts.model_validate_json(self._get(f"/v1/trials/{uid}"))

    def report(self, run_uid: str) -> RunReport:
        """Return a run's report."""
        return RunReport.model_validate_json(self._get(f"/v1/runs/{run_uid}/report"))

    def journal(self, uid: str) -> Iterator[JournalRow]:
        """Yield a trial's journal in the order it came in."""
        after = 0
        while rows := _JOURNAL.validate_json(self._get(f"/v1/trials/{uid}/journal?after={after}")):
            yield from rows
            after = rows[-1].sequence

    def find_run(self, name: str) -> RunSummary:
        """Return the run of this name or UID; of several the latest."""
        found = [run for run in self.runs() if name in (run.name, run.uid)]
        if not found:
            raise InvalidInput(f"no run is named {name!r}; `proctor ls` lists them")
        return found[0]

    def find_trial(self, name: str) -> TrialSummary | None:
        """Return the trial of this name or UID; of several the latest."""
        for run in self.runs():
            for trial in self.trials(run.uid):
                if name in (trial.name, trial.uid):
                    return trial
        return None

    def push(self, packed: Packed) -> Digest:
        """Store a package: its parts first, then what pins them; what is there already is not sent."""
        for name, digest in packed.manifest.parts.items():
            if self._send("HEAD", f"/v1/archives/{digest}").status_code == 404:
                self._done(self._send("PUT", f"/v1/archives/{digest}", packed.parts[name]))
        body = packed.manifest.model_dump_json(by_alias=True, exclude_none=True).encode()
        answer = self._done(self._send("PUT", f"/v1/packages/{packed.digest}", body))
        return PackageManifest.model_validate_json(answer.content).digest()

    def is_ready(self) -> bool:
        """Tell whether the hub can work."""
        return self._send("GET", "/readyz").status_code == 200

    def _get(self, path: str) -> bytes:
        return self._done(self._send("GET", path)).content

    def _send(self, method: str, path: str, content: bytes | None = None) -> httpx2.Response:
        try:
            return self._client.request(method, path, content=content)
        except httpx2.HTTPError as error:
            raise NotReady(f"the hub at {self._url} cannot be reached: {error}") from error

    def _done(self, answer: httpx2.Response) -> httpx2.Response:
        if answer.is_success:
            return answer
        said = _message(answer)
        if answer.status_code in (401, 403):
            raise Refused(f"the hub refused: {said}; check PROCTOR_TOKEN or PROCTOR_INSTALLATION_KEY_FILE")
        if answer.status_code == 503:
            raise NotReady(f"the hub is not ready: {said}")
        if answer.status_code < 500:
            raise InvalidInput(f"the hub said: {said}")
        raise Broken(f"the hub failed: {said}")


def _message(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return f"{answer.status_code} {answer.text[:200]}"
