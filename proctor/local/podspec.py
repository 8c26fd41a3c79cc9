"""Pod manifests as local mode reads them: the fields it honours, as frozen values; the rest is left to clusters.

Ignored on purpose: images (one root for all), CPU and disk limits, probes, seccomp, DNS and affinity. What would
change a pod's meaning and is not known here is refused, so that a manifest never runs as something else.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from controller.cluster import Object
from wire.errors import InvalidInput
from wire.names import LABEL_TIER, LABEL_TRIAL, TIER_UNTRUSTED

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
SECRET_MODE: Final = 0o644


@dataclass(frozen=True, kw_only=True)
class Mount:
    """Where a container sees a volume."""

    volume: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Volume:
    """An empty folder, or the files of a Secret: file name → (key, mode)."""

    name: str
    secret: str | None = None
    files: Mapping[str, tuple[str, int]] | None = None
    """None = every key under its own name."""
    mode: int = SECRET_MODE


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container, ready to start."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    uid: int
    memory_bytes: int | None
    cwd: str | None


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """A pod, ready to start."""

    name: str
    namespace: str
    untrusted: bool
    inits: tuple[Container, ...]
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...]
    group: int
    grace_seconds: int


def is_untrusted(pod: Object) -> bool:
    """Tell whether a pod runs code of agents or submissions."""
    return bool((pod["metadata"].get("labels") or {}).get(LABEL_TIER) == TIER_UNTRUSTED)


def trial_of(pod: Object) -> str | None:
    """Return the trial a pod belongs to."""
    name: str | None = (pod["metadata"].get("labels") or {}).get(LABEL_TRIAL)
    return name


def peer_address(pod: Object) -> str | None:
    """Return the address of the untrusted pod that a driver is told to drive."""
    env: dict[str, str] = {}
    for box in pod["spec"]["containers"]:
        env |= {item["name"]: item["value"] for item in box.get("env") or () if "value" in item}
    if url := env.get("PROCTOR_DAEMON_URL"):
        return urlsplit(url).hostname
    if suts := env.get("PROCTOR_SUTS"):
        own: str = json.loads(suts)[int(env.get("JOB_COMPLETION_INDEX", "0"))]
        return urlsplit(own).hostname
    return None


def read_pod(pod: Object, address: str, image_env: Mapping[str, str]) -> PodPlan:
    """Read a manifest.

    Raises:
        InvalidInput: it asks for something local mode has no equal of.
    """
    spec = pod["spec"]
    if spec.get("restartPolicy") != "Never":
        raise InvalidInput("spec.restartPolicy: local pods only know Never")
    context = spec.get("securityContext") or {}
    inits = tuple(_container(box, pod, address, image_env) for box in spec.get("initContainers") or ())
    return PodPlan(
        name=pod["metadata"]["name"],
        namespace=pod["metadata"]["namespace"],
        untrusted=is_untrusted(pod),
        inits=inits,
        containers=tuple(_container(box, pod, address, image_env) for box in spec["containers"]),
        volumes=tuple(_volume(volume) for volume in spec.get("volumes") or ()),
        group=int(context.get("fsGroup", 0)),
        grace_seconds=int(spec.get("terminationGracePeriodSeconds", 30)),
    )


def _container(box: Object, pod: Object, address: str, image_env: Mapping[str, str]) -> Container:
    context = {**(pod["spec"].get("securityContext") or {}), **(box.get("securityContext") or {})}
    uid = context.get("runAsUser")
    if uid not in (0, 1000):
        raise InvalidInput(
            f"containers[{box['name']}].securityContext.runAsUser: local pods know 0 and 1000, not {uid}"
        )
    if not box.get("command"):
        raise InvalidInput(f"containers[{box['name']}].command: needed, local pods do not read an image's own")
    told = {item["name"]: _value(item, pod, address) for item in box.get("env") or ()}
    home = "/home/dev" if uid else "/root"
    return Container(
        name=box["name"],
        argv=(*box["command"], *(box.get("args") or ())),
        env={**image_env, "HOME": home, "HOSTNAME": pod["metadata"]["name"], **told},
        mounts=tuple(_mount(mount) for mount in box.get("volumeMounts") or ()),
        uid=uid,
        memory_bytes=_bytes(((box.get("resources") or {}).get("limits") or {}).get("memory")),
        cwd=box.get("workingDir"),
    )


def _mount(mount: Object) -> Mount:
    if mount.get("subPath"):
        raise InvalidInput(f"volumeMounts[{mount['name']}].subPath: local pods do not know it")
    return Mount(volume=mount["name"], path=mount["mountPath"], read_only=bool(mount.get("readOnly")))


def _value(item: Object, pod: Object, address: str) -> str:
    if "valueFrom" not in item:
        return str(item.get("value", ""))
    path = (item["valueFrom"].get("fieldRef") or {}).get("fieldPath")
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"].get("uid", ""),
        "status.podIP": address,
    }
    if path not in known:
        raise InvalidInput(f"env[{item['name']}].valueFrom: local pods know {', '.join(known)}")
    return str(known[path])


def _volume(volume: Object) -> Volume:
    if "emptyDir" in volume:
        return Volume(name=volume["name"])
    if "secret" not in volume:
        raise InvalidInput(f"volumes[{volume['name']}]: local pods know emptyDir and secret")
    secret = volume["secret"]
    mode = int(secret.get("defaultMode", SECRET_MODE))
    items = secret.get("items")
    files = None if items is None else {i["path"]: (i["key"], int(i.get("mode", mode))) for i in items}
    return Volume(name=volume["name"], secret=secret["secretName"], files=files, mode=mode)


def _bytes(quantity: str | int | None) -> int | None:
    """Read a Kubernetes quantity of bytes."""
    if quantity is None:
        return None
    found = re.fullmatch(r"(\d+)(|k|M|G|Ki|Mi|Gi)", str(quantity))
    if found is None:
        raise InvalidInput(f"resources.limits.memory: {quantity!r} is not a quantity local pods know")
    return int(found[1]) * UNITS[found[2]]
