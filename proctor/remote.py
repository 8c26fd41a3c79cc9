"""A cluster's objects as the command line needs them: apply, find, change, watch. Uses the caller's own rights."""

import json
import time
from collections.abc import Iterator
from typing import Any

import kubernetes
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from controller.cluster import Kind, Object
from proctor.documents import Document
from proctor.settings import Settings
from wire.errors import InvalidInput, NotReady, ProctorError, Refused
from wire.names import GROUP, VERSION

FIELD_MANAGER = "proctor"
POLL_SECONDS = 2.0
OVER = ("Graded", "Errored", "Cancelled")


class Remote:
    """The custom objects of one namespace."""

    def __init__(self, settings: Settings) -> None:
        self.namespace = settings.namespace
        try:
            # The client's type stubs leave this one out.
            load: Any = kubernetes.config.load_kube_config
            load(str(settings.kubeconfig) if settings.kubeconfig else None)
        except ConfigException as error:
            raise InvalidInput(f"KUBECONFIG: {error}; set it, or use --local") from error
        self._api = kubernetes.client.CustomObjectsApi()
        self.core = kubernetes.client.CoreV1Api()

    def apply(self, document: Document) -> None:
        """Create or update an object, as `kubectl apply --server-side` does."""
        self._call(
            self._api.patch_namespaced_custom_object,
            *self._at(document.kind, document.namespace, document.name),
            body={**document.body, "apiVersion": f"{GROUP}/{VERSION}", "kind": document.kind.name},
            field_manager=FIELD_MANAGER,
            force=True,
            _content_type="application/apply-patch+yaml",
        )

    def get(self, kind: Kind, name: str) -> Object | None:
        """Return an object; None = it does not exist."""
        try:
            found: Object = self._call(self._api.get_namespaced_custom_object, *self._at(kind, self.namespace, name))
        except InvalidInput:
            return None
        return found

    def patch(self, kind: Kind, name: str, body: Object, *, status: bool = False) -> None:
        """Merge-patch an object or its status."""
        verb = "patch_namespaced_custom_object" + ("_status" if status else "")
        at = self._at(kind, self.namespace, name)
        self._call(getattr(self._api, verb), *at, body=body, _content_type="application/merge-patch+json")

    def trials_of(self, run_uid: str) -> list[Object]:
        """Return the Trials of a run."""
        found = self._call(self._api.list_namespaced_custom_object, GROUP, VERSION, self.namespace, Kind.Trial.plural)
        trials: list[Object] = found["items"]
        return [trial for trial in trials if trial["spec"]["runRef"]["uid"] == run_uid]

    def follow(self, run: str) -> Iterator[tuple[Object, list[Object]]]:
        """Yield a run and its Trials again and again, for as long as the run exists."""
        while (found := self.get(Kind.BenchmarkRun, run)) is not None:
            yield found, self.trials_of(found["metadata"]["uid"])
            time.sleep(POLL_SECONDS)

    def pod_logs(self, selector: str) -> dict[str, str]:
        """Return what the containers of the chosen pods have printed, by pod and container."""
        texts: dict[str, str] = {}
        found = self._call(self.core.list_namespaced_pod, self.namespace, label_selector=selector)
        for pod in found.items:
            for box in pod.spec.containers:
                name = pod.metadata.name
                text = self._call(self.core.read_namespaced_pod_log, name, self.namespace, container=box.name)
                texts[f"{name}/{box.name}"] = text
        return texts

    def served(self) -> list[Object]:
        """Return the resources of our group that the cluster serves."""
        try:
            found = self._call(self._api.get_api_resources, GROUP, VERSION)
        except InvalidInput:
            return []
        return [{"name": resource.name} for resource in found.resources if "/" not in resource.name]

    def orphans(self, selector: str) -> list[str]:
        """Return pods, Jobs, Secrets and policies of ours whose Trial is over or gone."""
        trials = self._call(self._api.list_namespaced_custom_object, GROUP, VERSION, self.namespace, Kind.Trial.plural)
        open_trials = {
            trial["metadata"]["uid"]
            for trial in trials["items"]
            if (trial.get("status") or {}).get("phase") not in OVER
        }
        lists = {
            "pod": self.core.list_namespaced_pod,
            "secret": self.core.list_namespaced_secret,
            "job": kubernetes.client.BatchV1Api().list_namespaced_job,
            "networkpolicy": kubernetes.client.NetworkingV1Api().list_namespaced_network_policy,
        }
        left = []
        for kind, listed in lists.items():
            for found in self._call(listed, self.namespace, label_selector=selector).items:
                owners = {owner.uid for owner in found.metadata.owner_references or () if owner.kind == "Trial"}
                if owners and not owners & open_trials:
                    left.append(f"{kind}/{found.metadata.name}")
        return left

    def _at(self, kind: Kind, namespace: str, name: str) -> tuple[str, str, str, str, str]:
        return GROUP, VERSION, namespace, kind.plural, name

    def _call(self, verb: Any, *arguments: object, **options: object) -> Any:
        try:
            return verb(*arguments, **options, _request_timeout=30)
        except ApiException as error:
            raise _error_of(error) from error
        except HTTPError as error:
            raise NotReady(f"the cluster cannot be reached: {error}") from error


def _error_of(error: ApiException) -> ProctorError:
    try:
        said = str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        said = f"{error.status} {error.reason}"
    match error.status:
        case 401 | 403:
            return Refused(f"the cluster refused: {said}")
        case 404 | 409 | 422 | 400:
            return InvalidInput(said)
        case _:
            return NotReady(f"the cluster said: {said}")
