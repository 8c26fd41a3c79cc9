"""The cluster port over a real API server: raw JSON through the official client's asyncio transport.

Models are left out on purpose: they cost a second per thousand pods. Every call has time-outs; a lost connection, a
timeout and any 5xx are NotReady, so that the caller asks again. Streams are resumed, relisted on 410, never fatal.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import structlog
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTClientObject

from controller.cluster import AlreadyExists, Change, Conflict, Kind, Object, Rejected, Removed, Replaced, Updated
from controller.limiter import Limiter, patience
from controller.metrics import Metrics
from wire.errors import NotReady, ProctorError
from wire.names import MANAGED_BY

LOG = structlog.get_logger()
PAGE: Final = 500
CALL_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=5)
# A bookmark comes about once a minute; a stream that is silent for longer is dead.
STREAM_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=5, sock_read=90)
STREAM_SECONDS: Final = (240, 300)
LONGEST_BACKOFF_SECONDS: Final = 30.0
RESUME_SECONDS: Final = 0.2
MERGE_PATCH: Final = "application/merge-patch+json"
LOST: Final = (aiohttp.ClientError, TimeoutError, OSError)
OURS: Final = (Kind.Pod, Kind.Job)


class Expired(ProctorError):
    """The version to resume from is too old (410): list again."""


class KubeCluster:
    """Implements `controller.cluster.Cluster`. In a pod its service account counts, elsewhere KUBECONFIG."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self._limiter = Limiter()
        self._rest: RESTClientObject | None = None
        self._configuration = Configuration()
        self._loading = asyncio.Lock()
        self.beats: dict[tuple[Kind, str], float] = {}
        """Stream → when it last said something; only streams that claim to be connected."""

    async def close(self) -> None:
        """Close all connections."""
        if self._rest is not None:
            await self._rest.close()
            self._rest = None

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the object as the API server has it now; None = it does not exist."""
        status, answer = await self._call("get", kind, "GET", _path(kind, namespace, name))
        return None if status == 404 else _checked(status, answer)

    async def create(self, kind: Kind, body: Object) -> Object:
        """Create an object. Raises AlreadyExists, Rejected, NotReady."""
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        path = _path(kind, body["metadata"]["namespace"])
        status, answer = await self._call("create", kind, "POST", path, whole)
        if status == 409 and answer.get("reason") == "AlreadyExists":
            raise AlreadyExists(_said(answer))
        return _checked(status, answer)

    async def patch(self, kind: Kind, known: Object, patch: Object, *, status: bool = False) -> Object:
        """Merge-patch an object or its status if it is still as `known`. Raises Conflict, Rejected, NotReady."""
        meta = known["metadata"]
        still = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        whole = {**patch, "metadata": {**(patch.get("metadata") or {}), **still}}
        path = _path(kind, meta["namespace"], meta["name"]) + ("/status" if status else "")
        code, answer = await self._call("patch", kind, "PATCH", path, whole)
        if code in (404, 409):
            raise Conflict(f"{kind.plural} {meta['name']} has changed since it was read: {_said(answer)}")
        return _checked(code, answer)

    async def delete(self, kind: Kind, known: Object, *, grace_seconds: int | None = None) -> None:
        """Delete the object with `known`'s UID; already gone is success."""
        meta = known["metadata"]
        # Background by name: the server's own default for Jobs leaves their pods behind.
        options: Object = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = _path(kind, meta["namespace"], meta["name"])
        status, answer = await self._call("delete", kind, "DELETE", path, options)
        if status not in (404, 409):
            _checked(status, answer)

    async def watch(self, kind: Kind, namespace: str) -> AsyncIterator[Change]:
        """Yield `Replaced` first and after every relist, then single changes, for ever."""
        version, failures = "", 0
        while True:
            try:
                if not version:
                    version, objects = await self._list(kind, namespace)
                    yield Replaced(objects=objects)
                async for change, seen in self._stream(kind, namespace, version):
                    version, failures = seen, 0
                    if change is not None:
                        yield change
                await asyncio.sleep(RESUME_SECONDS)
            except Expired:
                version = ""
            except (*LOST, NotReady, Rejected, ValueError) as error:
                # ValueError: a line that was cut off, or is longer than any object.
                failures += 1
                LOG.warning("watch broken", kind=kind.name, namespace=namespace, error=str(error) or repr(error))
                self.beats.pop((kind, namespace), None)
                await asyncio.sleep(min(LONGEST_BACKOFF_SECONDS, 0.5 * 2 ** min(failures, 6)) * random.uniform(0.5, 1))

    async def _list(self, kind: Kind, namespace: str) -> tuple[str, tuple[Object, ...]]:
        """List page by page; return the version to watch from and the objects."""
        objects: list[Object] = []
        page: dict[str, str] = {}
        while True:
            query = _selected(kind) | {"limit": str(PAGE)} | page
            status, answer = await self._call("list", kind, "GET", f"{_path(kind, namespace)}?{urlencode(query)}")
            if status == 410:
                objects, page = [], {}
                continue
            _checked(status, answer)
            for item in answer.get("items") or ():
                item["metadata"].pop("managedFields", None)
                # Items of a list come without these two.
                objects.append({"apiVersion": kind.api_version, "kind": kind.name, **item})
            if not (more := answer["metadata"].get("continue")):
                return answer["metadata"]["resourceVersion"], tuple(objects)
            page = {"continue": more}

    async def _stream(self, kind: Kind, namespace: str, version: str) -> AsyncIterator[tuple[Change | None, str]]:
        """Yield changes after a version, each with the version to resume from; ends when the server ends it."""
        query = _selected(kind) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(*STREAM_SECONDS)),
        }
        rest, address = await self._ready()
        url = f"{address}{_path(kind, namespace)}?{urlencode(query)}"
        answer = (
            await rest.request("GET", url, headers=await self._headers(), _request_timeout=STREAM_TIMEOUT)
        ).response
        self._count("watch", kind, answer.status)
        try:
            if answer.status == 410:
                raise Expired("the watch's version is too old")
            if answer.status != 200:
                raise NotReady(f"watch of {kind.plural}: {answer.status} {(await answer.text())[:300]}")
            self.beats[(kind, namespace)] = monotonic()
            async for line in answer.content:
                self.beats[(kind, namespace)] = monotonic()
                yield _change(json.loads(line))
        finally:
            answer.close()

    async def _call(
        self, verb: str, kind: Kind, method: str, path: str, body: Object | None = None
    ) -> tuple[int, Object]:
        """Make one call; returns its status and JSON. Raises NotReady when there is no usable answer."""
        rest, address = await self._ready()
        if kind is not Kind.Lease:
            await self._limiter.slot()
        headers = await self._headers() | ({"Content-Type": MERGE_PATCH} if method == "PATCH" else {})
        try:
            raw = await rest.request(method, address + path, headers=headers, body=body, _request_timeout=CALL_TIMEOUT)
            text, status = await raw.read(), raw.status
        except LOST as error:
            self._count(verb, kind, 0)
            raise NotReady(f"the API server does not answer: {error!r}") from error
        self._count(verb, kind, status)
        if status == 429:
            wait = patience(raw.getheader("Retry-After"))
            self._limiter.throttled(wait)
            raise NotReady("the API server asks for patience (429)", retry_seconds=wait)
        self._limiter.answered()
        if status >= 500 or status == 401:
            raise NotReady(f"the API server answered {status}: {text[:300]!r}")
        return status, _json(text)

    async def _ready(self) -> tuple[RESTClientObject, str]:
        """Load the configuration once, on first use: this needs a running loop."""
        async with self._loading:
            if self._rest is None:
                await _load(self._configuration)
                self._rest = ApiClient(self._configuration).rest_client
        return self._rest, str(self._configuration.host)

    async def _headers(self) -> dict[str, str]:
        token = await self._configuration.get_api_key_with_prefix("BearerToken")
        headers = {"Accept": "application/json", "User-Agent": "proctor-operator"}
        return headers | {"Authorization": token} if token else headers

    def _count(self, verb: str, kind: Kind, status: int) -> None:
        self._metrics.api_calls.labels(verb, kind.name, str(status)).inc()


async def _load(configuration: Configuration) -> None:
    """Read the service account of the pod we are in; where there is none, KUBECONFIG."""
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    root = "/api" if kind.api_version == "v1" else "/apis"
    path = f"{root}/{kind.api_version}/namespaces/{quote(namespace)}/{kind.plural}"
    return f"{path}/{quote(name)}" if name else path


def _selected(kind: Kind) -> dict[str, str]:
    return {"labelSelector": f"{MANAGED_BY[0]}={MANAGED_BY[1]}"} if kind in OURS else {}


def _checked(status: int, answer: Object) -> Object:
    """Return a good answer; raise for what the server will refuse again."""
    if 200 <= status < 300:
        return answer
    if status == 409:
        # Not of our object: a quota that is being updated, a namespace that is just being made.
        raise NotReady(_said(answer))
    raise Rejected(_said(answer))


def _json(text: bytes) -> Object:
    """Read an answer; what answers in plain text (an unknown path, a proxy) is taken as a message."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"message": text.decode(errors="replace")}


def _said(answer: Mapping[str, Any]) -> str:
    return str(answer.get("message") or answer.get("reason") or answer)[:1000]


def _change(event: Mapping[str, Any]) -> tuple[Change | None, str]:
    """Read one line of a stream."""
    kind, found = event["type"], event["object"]
    if kind == "ERROR":
        if found.get("code") == 410:
            raise Expired(_said(found))
        raise NotReady(f"watch: {_said(found)}")
    version = str(found["metadata"]["resourceVersion"])
    if kind == "BOOKMARK":
        return None, version
    found["metadata"].pop("managedFields", None)
    return (Removed(object=found) if kind == "DELETED" else Updated(object=found)), version
