"""Trial → bodies of its pods, Job, Secret and NetworkPolicies. Pure: the same trial gives the same bodies.

Local mode runs these very manifests. Fields a kubelet must honour: `containers` and `initContainers` with `command`,
`env` (`value`; `fieldRef` to `metadata.name` and `status.podIP`), `volumeMounts` (`mountPath`, `readOnly`),
`securityContext.runAsUser/runAsGroup/capabilities`, `resources.limits.memory`; `volumes` of kind `emptyDir` (also
`medium: Memory`) and `secret` (`secretName`, `items`, `defaultMode`); the pod's `securityContext.fsGroup` (group of
secret files); `restartPolicy: Never`, `terminationGracePeriodSeconds`, `activeDeadlineSeconds`; termination messages
at the default path; Indexed Jobs. Everything else matters to a cluster alone.
"""

import json
from base64 import b64encode
from typing import Any, Final

from controller.cluster import Object
from controller.failures import DEATHS_LIMIT, sandbox_deaths, sut_verdict
from controller.settings import Settings
from controller.views import TrialView
from wire.names import (
    AGENT_UID,
    API_VERSION,
    DAEMON_PORT,
    GATEWAY_PORT,
    HUB_PORT,
    LABEL_ARM,
    LABEL_ATTEMPT,
    LABEL_ROLE,
    LABEL_RUN,
    LABEL_SHARD,
    LABEL_TASK,
    LABEL_TIER,
    LABEL_TRIAL,
    MANAGED_BY,
    SUBMISSION,
    TIER_DRIVER,
    TIER_UNTRUSTED,
    label_value,
    pod_name,
)
from wire.outcome import TERMINATION_LOG
from wire.token import Role, Token, daemon_bearer, mint
from wire.trial import EndReason

SECRETS: Final = "/run/secrets/proctor"
METADATA_ADDRESS: Final = "169.254.169.254:80"
GATE_SECONDS: Final = 3600
# One archive of the largest size, and room to work: less, and an agent's big workspace would evict its own graders.
DRIVER_DISK: Final = "6Gi"
ROOT_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETUID", "SETGID")
KEEP: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


def sandbox_pod(trial: TrialView, settings: Settings) -> Object:
    """Return the untrusted pod of development."""
    name = trial.sandbox
    volumes, mounts = _secrets(trial, "secrets", {"token-sandbox": "token", "daemon-sandbox": "daemon"}, 0o400)
    box = _daemon(trial, settings, "sandbox", [*mounts, _SHM_MOUNT])
    return _untrusted(trial, name, "sandbox") | {"spec": _untrusted_spec(settings, [box], [*volumes, _SHM])}


def session_pod(trial: TrialView, settings: Settings, address: str) -> Object:
    """Return the driver of one conversation: the agent and the simulated user."""
    told = {
        "SANDBOX_ATTEMPT": str(trial.status.sandbox),
        "CONVERSATION": str(trial.status.conversation),
        "GATEWAY_URL": f"http://{settings.gateway_address}",
    }
    if sandbox_deaths(trial.status.attempts) >= DEATHS_LIMIT:
        told["END_REASON"] = EndReason.RESOURCE_LIMIT
    keys = {"token-agent": "token", "daemon-sandbox": "daemon"}
    agent_volumes, agent_mounts = _secrets(trial, "secrets-agent", keys, 0o440)
    user_volumes, user_mounts = _secrets(trial, "secrets-user", {"token-user": "token"}, 0o440)
    agent = _driver(trial, settings, "agent", told | {"DAEMON_URL": _daemon_url(address)}, agent_mounts)
    user = _driver(trial, settings, "user", told, user_mounts)
    spec = _driver_spec(settings, [agent, user], [*agent_volumes, *user_volumes])
    # Twice the limit and an hour: the user ends a conversation by the net time; this ends one that hangs.
    spec["activeDeadlineSeconds"] = trial.spec.limits.development_minutes * 120 + 3600
    return _head("Pod", trial, trial.session, _labels(trial, "session", TIER_DRIVER)) | {"spec": spec}


def sut_pod(trial: TrialView, settings: Settings, shard: int | None = None) -> Object:
    """Return the untrusted pod of a gate, or of one evaluator shard."""
    number = f"e{shard}" if shard is not None else str(trial.status.conversation)
    name = trial.child(f"sut-{number}")
    volumes, mounts = _secrets(trial, "secrets", {f"daemon-sut-{number}": "daemon"}, 0o400)
    given = trial.status.submission.digest if trial.status.submission else trial.status.candidate
    receive = _daemon(trial, settings, "receive", [*mounts, {"name": "submission", "mountPath": SUBMISSION}])
    receive["env"].append({"name": "PROCTOR_SUBMISSION_DIGEST", "value": given})
    frozen = {"name": "submission", "mountPath": SUBMISSION, "readOnly": True}
    box = _daemon(trial, settings, "sandbox", [*mounts, _SHM_MOUNT, frozen])
    submission = {"name": "submission", "emptyDir": {"sizeLimit": settings.untrusted_disk}}
    spec = _untrusted_spec(settings, [box], [*volumes, _SHM, submission])
    body = _untrusted(trial, name, "sut") | {"spec": spec | {"initContainers": [receive]}}
    if shard is not None:
        body["metadata"]["labels"][LABEL_SHARD] = str(shard)
    return body


def gate_pod(trial: TrialView, settings: Settings, address: str) -> Object:
    """Return the driver that checks a candidate."""
    told = {
        "DAEMON_URL": _daemon_url(address),
        "CONVERSATION": str(trial.status.conversation),
        "CANDIDATE": str(trial.status.candidate),
        "IMAGE": trial.spec.image or settings.sandbox_image,
    } | _sut_death(trial)
    keys = {"token-gate": "token", f"daemon-sut-{trial.status.conversation}": "daemon"}
    volumes, mounts = _secrets(trial, "secrets", keys, 0o440)
    spec = _driver_spec(settings, [_driver(trial, settings, "gate", told, mounts)], volumes)
    spec["activeDeadlineSeconds"] = GATE_SECONDS
    return _head("Pod", trial, trial.gate, _labels(trial, "gate", TIER_DRIVER)) | {"spec": spec}


def evaluate_job(trial: TrialView, settings: Settings, addresses: tuple[str, ...]) -> Object:
    """Return the Indexed Job of one evaluation round: one index per shard."""
    submission, shards = trial.status.submission, trial.spec.evaluation.shards
    told = {
        "SUTS": json.dumps([_daemon_url(address) for address in addresses]),
        "SUBMISSION": json.dumps(submission.dump() if submission else None),
        "ROUND": str(trial.status.rounds),
    } | _sut_death(trial)
    keys = {"token-evaluator": "token"} | {f"daemon-sut-e{shard}": f"daemon-{shard}" for shard in range(shards)}
    volumes, mounts = _secrets(trial, "secrets", keys, 0o440)
    box = _driver(trial, settings, "evaluate", told, [*mounts, _SHM_MOUNT], name="evaluator", memory="2Gi")
    labels = _labels(trial, "evaluate", TIER_DRIVER)
    template = {
        "metadata": {"labels": labels, "annotations": dict(KEEP)},
        "spec": _driver_spec(settings, [box], [*volumes, _SHM]),
    }
    return _head("Job", trial, trial.job, labels) | {
        "spec": {
            "completionMode": "Indexed",
            "completions": shards,
            "parallelism": shards,
            # A lost shard is our decision, on fresh pods under a new attempt; the Job never makes a second pod.
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": shards,
            "podReplacementPolicy": "Failed",
            "activeDeadlineSeconds": trial.spec.evaluation.timeout_minutes * 60,
            "ttlSecondsAfterFinished": 3600,
            "template": template,
        }
    }


def secret(trial: TrialView, key: bytes) -> Object:
    """Return the attempt's Secret: every token and daemon bearer, by key; minting is repeatable."""
    uid, attempt = trial.meta.uid, trial.status.attempt
    values = {
        f"token-{role}": mint(key, Token(trial=uid, attempt=attempt, role=role))
        for role in Role
        if role != Role.OPERATOR
    }
    values["daemon-sandbox"] = daemon_bearer(key, uid, trial.sandbox)
    numbers = [str(k) for k in range(1, trial.spec.limits.gate_attempts + 1)]
    numbers += [f"e{shard}" for shard in range(trial.spec.evaluation.shards)]
    for number in numbers:
        values[f"daemon-sut-{number}"] = daemon_bearer(key, uid, trial.child(f"sut-{number}"))
    coded = {name: b64encode(text.encode()).decode() for name, text in values.items()}
    head = _head("Secret", trial, trial.secrets, _labels(trial, "secrets", None))
    return head | {"type": "Opaque", "immutable": True, "data": coded}


def pair_policy(trial: TrialView, settings: Settings) -> Object:
    """Return the policy that joins a trial's untrusted pods to its own drivers and the gateway, nothing else."""
    mine = {LABEL_TRIAL: trial.name}
    drivers = {"podSelector": {"matchLabels": mine | {LABEL_TIER: TIER_DRIVER}}}
    spec = {
        "podSelector": {"matchLabels": mine | {LABEL_TIER: TIER_UNTRUSTED}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [drivers]}],
        "egress": [{"to": [drivers]}, _to_service(settings, "gateway", GATEWAY_PORT)],
    }
    return _head("NetworkPolicy", trial, trial.policy, _labels(trial, "policy", None)) | {"spec": spec}


def namespace_policies(settings: Settings, namespace: str) -> tuple[Object, ...]:
    """Return the policies of a run namespace: nothing goes in or out; drivers reach hub, gateway, DNS and suts."""
    untrusted = {"podSelector": {"matchLabels": {LABEL_TIER: TIER_UNTRUSTED}}}
    dns = {"ports": [{"protocol": p, "port": 53} for p in ("UDP", "TCP")], "to": [{"namespaceSelector": {}}]}
    drivers = {
        "podSelector": {"matchLabels": {LABEL_TIER: TIER_DRIVER}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [untrusted]}],
        "egress": [
            {"to": [untrusted]},
            _to_service(settings, "hub", HUB_PORT),
            _to_service(settings, "gateway", GATEWAY_PORT),
            dns,
        ],
    }
    bodies = {"proctor-deny-all": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, "proctor-drivers": drivers}
    return tuple(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace, "labels": dict([MANAGED_BY])},
            "spec": spec,
        }
        for name, spec in bodies.items()
    )


_SHM: Final[Object] = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}
_SHM_MOUNT: Final[Object] = {"name": "shm", "mountPath": "/dev/shm"}


def _to_service(settings: Settings, component: str, port: int) -> Object:
    """Allow a component of the installation: by its pods, since policies see addresses behind the Service."""
    pods = {"app.kubernetes.io/name": "proctor", "app.kubernetes.io/component": component}
    there = {"kubernetes.io/metadata.name": settings.install_namespace}
    peer = {"namespaceSelector": {"matchLabels": there}, "podSelector": {"matchLabels": pods}}
    return {"to": [peer], "ports": [{"protocol": "TCP", "port": port}]}


def _labels(trial: TrialView, role: str, tier: str | None) -> dict[str, str]:
    labels = {
        MANAGED_BY[0]: MANAGED_BY[1],
        LABEL_RUN: label_value(trial.spec.run_ref.name),
        LABEL_TRIAL: trial.name,
        LABEL_ATTEMPT: str(trial.status.attempt),
        LABEL_ROLE: role,
        LABEL_TASK: trial.spec.task,
        LABEL_ARM: trial.spec.arm.name,
    }
    return labels if tier is None else labels | {LABEL_TIER: tier}


_API_VERSIONS: Final = {"Job": "batch/v1", "NetworkPolicy": "networking.k8s.io/v1"}


def _head(kind: str, trial: TrialView, name: str, labels: dict[str, str]) -> Object:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Trial",
        "name": trial.name,
        "uid": trial.meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta: Object = {"name": name, "namespace": trial.meta.namespace, "labels": labels, "ownerReferences": [owner]}
    if kind == "Pod":
        meta["annotations"] = dict(KEEP)
    return {"apiVersion": _API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": meta}


def _untrusted(trial: TrialView, name: str, role: str) -> Object:
    return _head("Pod", trial, name, _labels(trial, role, TIER_UNTRUSTED))


def _daemon(trial: TrialView, settings: Settings, role: str, mounts: list[Object]) -> Object:
    """Return a container of an untrusted pod: root with six capabilities, told nothing but whom it must not reach."""
    refused = {"hub": settings.hub_address, "metadata": METADATA_ADDRESS}
    if settings.api_address:
        refused["api"] = settings.api_address
    told = {
        "CANARIES": json.dumps({"refused": refused, "gateway": settings.gateway_address}),
        "GATEWAY_URL": f"http://{settings.gateway_address}",
    }
    limits = {
        "cpu": settings.untrusted_cpu,
        "memory": f"{trial.spec.memory_mb}Mi",
        "ephemeral-storage": settings.untrusted_disk,
    }
    requests = {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "256Mi"}
    return _container(trial, settings, role, told) | {
        "volumeMounts": mounts,
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(ROOT_CAPABILITIES)},
        },
        "resources": {"limits": limits, "requests": dict(limits) if trial.spec.formal else requests},
    }


def _driver(  # noqa: PLR0913 - the last two differ for the evaluator alone
    trial: TrialView,
    settings: Settings,
    role: str,
    told: dict[str, str],
    mounts: list[Object],
    *,
    name: str = "",
    memory: str = "768Mi",
) -> Object:
    """Return a container of a trusted pod: uid 1000 with no capability."""
    told = {"HUB_URL": f"http://{settings.hub_address}", "SPEC": json.dumps(trial.spec.dump()), **told}
    return _container(trial, settings, role, told) | {
        "name": name or role,
        "volumeMounts": mounts,
        "securityContext": {
            "runAsUser": AGENT_UID,
            "runAsGroup": AGENT_UID,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {
            "limits": {"cpu": "2", "memory": memory, "ephemeral-storage": DRIVER_DISK},
            "requests": {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
        },
    }


def _container(trial: TrialView, settings: Settings, role: str, told: dict[str, str]) -> Object:
    told = {
        "TRIAL_UID": trial.meta.uid,
        "TRIAL_NAME": trial.name,
        "ATTEMPT": str(trial.status.attempt),
        **told,
    }
    env: list[dict[str, Any]] = [{"name": f"PROCTOR_{name}", "value": value} for name, value in told.items()]
    for name, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP")):
        env.append({"name": f"PROCTOR_{name}", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return {
        "name": role,
        "image": trial.spec.image or settings.sandbox_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["tini", "-s", "--", "python3", "-m", "runner", role],
        "env": env,
        "terminationMessagePath": TERMINATION_LOG,
    }


def _untrusted_spec(settings: Settings, containers: list[Object], volumes: list[Object]) -> Object:
    # A name server is demanded with policy None; nobody listens on this one.
    resolver = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
    spec = _pod_spec(settings, containers, volumes) | resolver
    return spec | {"runtimeClassName": settings.runtime_class} if settings.runtime_class else spec


def _driver_spec(settings: Settings, containers: list[Object], volumes: list[Object]) -> Object:
    spec = _pod_spec(settings, containers, volumes)
    secured = {"runAsNonRoot": True, "fsGroup": AGENT_UID, **spec["securityContext"]}
    return spec | {"securityContext": secured, "terminationGracePeriodSeconds": 10}


def _pod_spec(settings: Settings, containers: list[Object], volumes: list[Object]) -> Object:
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": containers,
        "volumes": volumes,
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return spec


def _secrets(trial: TrialView, volume: str, keys: dict[str, str], mode: int) -> tuple[list[Object], list[Object]]:
    """Return a volume with these keys of the attempt's Secret under other names, and its mount."""
    items = [{"key": key, "path": path} for key, path in keys.items()]
    name = pod_name(trial.name, trial.status.attempt, "secrets")
    source = {"secretName": name, "items": items, "defaultMode": mode}
    mount = {"name": volume, "mountPath": SECRETS, "readOnly": True}
    return [{"name": volume, "secret": source}], [mount]


def _sut_death(trial: TrialView) -> dict[str, str]:
    """Tell a sut's driver not to try another one."""
    reason = sut_verdict(trial.status)
    return {"SUT_DEATH": reason} if reason else {}


def _daemon_url(address: str) -> str:
    return f"http://{address}:{DAEMON_PORT}"
