"""The port to the hub and its adapter over HTTP. An unreachable hub is NotReady, never an error."""

from typing import Protocol, TypeVar

import httpx2
from pydantic import ValidationError

from wire.errors import Broken, NotReady, ProctorError
from wire.journal import RunRecord, Settled, Settlement, TrialRecord
from wire.model import Wire
from wire.package import PackageManifest
from wire.token import operator_token

FIX = "check the hub's Deployment; everything goes on by itself when it answers"
TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
Answer = TypeVar("Answer", bound=Wire)


class HubUnreachable(NotReady):
    """The hub did not answer, or said that it cannot for now."""

    reason = "HubUnreachable"


class HubRefused(ProctorError):
    """The hub will not do this however often it is asked; its words say why."""

    reason = "HubRefused"


class Hub(Protocol):
    """What the operator tells the hub and asks of it. Every call is idempotent."""

    async def put_run(self, record: RunRecord) -> None:
        """Register a run."""
        ...

    async def put_trial(self, record: TrialRecord) -> None:
        """Say which attempt of a trial is alive."""
        ...

    async def settle(self, uid: str, settlement: Settlement) -> Settled:
        """End a trial, or learn how it has ended."""
        ...

    async def manifest(self, digest: str) -> PackageManifest | None:
        """Return a package's manifest; None = the hub has no such package."""
        ...


class HttpHub:
    """The hub over HTTP; the client brings address or Unix socket."""

    def __init__(self, client: httpx2.AsyncClient, key: bytes) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {operator_token(key)}"}

    async def put_run(self, record: RunRecord) -> None:
        """Register a run."""
        await self._call("PUT", f"/v1/runs/{record.uid}", record)

    async def put_trial(self, record: TrialRecord) -> None:
        """Say which attempt of a trial is alive."""
        await self._call("PUT", f"/v1/trials/{record.uid}", record)

    async def settle(self, uid: str, settlement: Settlement) -> Settled:
        """End a trial, or learn how it has ended."""
        return _read(Settled, await self._call("POST", f"/v1/trials/{uid}/settle", settlement))

    async def manifest(self, digest: str) -> PackageManifest | None:
        """Return a package's manifest; None = the hub has no such package."""
        answer = await self._call("GET", f"/v1/packages/{digest}", None)
        return None if answer.status_code == 404 else _read(PackageManifest, answer)

    async def _call(self, method: str, path: str, body: Wire | None) -> httpx2.Response:
        json = None if body is None else body.dump()
        try:
            answer = await self._client.request(method, path, json=json, headers=self._headers, timeout=TIMEOUT)
        except httpx2.TransportError as error:
            raise HubUnreachable(f"the hub does not answer: {error!r}; {FIX}", retry_seconds=5.0) from error
        if answer.status_code >= 500 or answer.status_code == 429:
            raise HubUnreachable(f"the hub answered {answer.status_code}: {_said(answer)}; {FIX}", retry_seconds=5.0)
        if answer.is_success or (method == "GET" and answer.status_code == 404):
            return answer
        raise HubRefused(f"the hub refused {method} {path.rsplit('/', 1)[0]}/…: {answer.status_code} {_said(answer)}")


def _read(model: type[Answer], answer: httpx2.Response) -> Answer:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        raise Broken(f"the hub's answer is no {model.__name__}: {error}") from error


def _said(answer: httpx2.Response) -> str:
    return answer.text[:300]
