"""What pods are made of: who may see what, and what an untrusted pod can never hold."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from controller import manifests
from controller.cluster import Object
from tests.controller.builders import SUBMISSION, status, trial
from tests.controller.fakes import CANDIDATE, NAMESPACE, settings
from wire.archive import BYTES_LIMIT
from wire.names import LABEL_TIER, TIER_DRIVER, TIER_UNTRUSTED
from wire.token import Role, daemon_bearer, verify
from wire.trial import Phase

KEY = b"key"
SETTINGS = settings(api_address="10.96.0.1:443", image_pull_secrets=["pull"], runtime_class="gvisor")
TRIAL = trial(status(Phase.CHECKING, candidate=CANDIDATE), evaluation={"shards": 2})
FROZEN = trial(status(Phase.FROZEN, submission=SUBMISSION, rounds=1), evaluation={"shards": 2})
BODIES = {
    "sandbox": manifests.sandbox_pod(TRIAL, SETTINGS),
    "session": manifests.session_pod(TRIAL, SETTINGS, "10.0.0.9"),
    "sut": manifests.sut_pod(TRIAL, SETTINGS),
    "gate": manifests.gate_pod(TRIAL, SETTINGS, "10.0.0.9"),
    "shard sut": manifests.sut_pod(FROZEN, SETTINGS, 1),
    "job": manifests.evaluate_job(FROZEN, SETTINGS, ("10.0.0.1", "10.0.0.2")),
    "secret": manifests.secret(TRIAL, KEY),
    "pair policy": manifests.pair_policy(TRIAL, SETTINGS),
    **{body["metadata"]["name"]: body for body in manifests.namespace_policies(SETTINGS, NAMESPACE)},
}
UNTRUSTED = ("sandbox", "sut", "shard sut")
DRIVERS = ("session", "gate", "job")


def spec_of(name: str) -> dict[str, Any]:
    body = BODIES[name]
    found: dict[str, Any] = body["spec"]["template"]["spec"] if body["kind"] == "Job" else body["spec"]
    return found


def containers(name: str) -> Iterator[dict[str, Any]]:
    spec = spec_of(name)
    yield from (*spec.get("initContainers", ()), *spec["containers"])


def mounted_keys(name: str) -> set[str]:
    volumes = spec_of(name)["volumes"]
    return {item["key"] for volume in volumes for item in volume.get("secret", {}).get("items", ())}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_what_the_api_server_expects(name: str) -> None:
    """Checked against the published schemas, unknown fields included."""
    kubernetes_validate.validate(BODIES[name], "1.36", strict=True)


@pytest.mark.parametrize("name", UNTRUSTED)
def test_untrusted_pods_know_nothing_and_reach_nothing(name: str) -> None:
    """No account token, no DNS, no service links, no spec, no hub; six capabilities and no more."""
    spec = spec_of(name)
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"], spec["dnsPolicy"]) == (
        False,
        False,
        "None",
    )
    assert BODIES[name]["metadata"]["labels"][LABEL_TIER] == TIER_UNTRUSTED
    assert spec["runtimeClassName"] == "gvisor"
    for box in containers(name):
        told = {entry["name"] for entry in box["env"]}
        assert not told & {"PROCTOR_SPEC", "PROCTOR_HUB_URL"}
        security = box["securityContext"]
        assert security["capabilities"]["drop"] == ["ALL"]
        assert set(security["capabilities"]["add"]) == set(manifests.ROOT_CAPABILITIES)
        assert security["allowPrivilegeEscalation"] is False
        canaries = json.loads(next(e["value"] for e in box["env"] if e["name"] == "PROCTOR_CANARIES"))
        assert set(canaries["refused"]) == {"hub", "metadata", "api"}


@pytest.mark.parametrize("name", DRIVERS)
def test_drivers_are_an_ordinary_user(name: str) -> None:
    """uid 1000, no capability, no account token."""
    spec = spec_of(name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    for box in containers(name):
        assert box["securityContext"]["runAsUser"] == 1000
        assert box["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        pytest.param("sandbox", {"token-sandbox", "daemon-sandbox"}, id="sandbox"),
        pytest.param("session", {"token-agent", "token-user", "daemon-sandbox"}, id="session"),
        pytest.param("sut", {"daemon-sut-1"}, id="sut"),
        pytest.param("shard sut", {"daemon-sut-e1"}, id="shard sut"),
        pytest.param("gate", {"token-gate", "daemon-sut-1"}, id="gate"),
        pytest.param("job", {"token-evaluator", "daemon-sut-e0", "daemon-sut-e1"}, id="evaluator"),
    ],
)
def test_a_pod_mounts_its_own_keys_alone(name: str, keys: set[str]) -> None:
    """One Secret per attempt, mounted by key."""
    assert mounted_keys(name) == keys


def test_the_simulated_user_holds_no_daemon_bearer() -> None:
    """Only the agent drives the sandbox."""
    user = next(box for box in containers("session") if box["name"] == "user")
    assert [mount["name"] for mount in user["volumeMounts"]] == ["secrets-user"]


def test_the_secret_holds_what_every_service_can_verify() -> None:
    """Tokens of this trial, attempt and role; bearers bound to the pods' names."""
    values = {name: b64decode(text).decode() for name, text in BODIES["secret"]["data"].items()}
    assert BODIES["secret"]["immutable"] is True
    for role in set(Role) - {Role.OPERATOR}:
        token = verify(KEY, values[f"token-{role}"])
        assert (token.trial, token.attempt, token.role) == ("t-uid", 1, role)
    assert values["daemon-sut-e1"] == daemon_bearer(KEY, "t-uid", "t-1-sut-e1")
    assert set().union(*(mounted_keys(name) for name in (*UNTRUSTED, *DRIVERS))) <= set(values)


def test_the_frozen_submission_is_read_only_where_it_is_used() -> None:
    """The trusted init step writes it; the daemon's container cannot."""
    receive, box = containers("shard sut")
    assert receive["name"] == "receive"
    assert {e["name"]: e.get("value") for e in receive["env"]}["PROCTOR_SUBMISSION_DIGEST"] == CANDIDATE
    assert [m.get("readOnly", False) for m in box["volumeMounts"] if m["mountPath"] == "/submission"] == [True]
    assert [m.get("readOnly", False) for m in receive["volumeMounts"] if m["mountPath"] == "/submission"] == [False]


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_has_room_for_an_archive_of_any_size(name: str) -> None:
    """Else an agent with a big workspace would have its own graders evicted, and never a verdict."""
    for box in containers(name):
        limit = box["resources"]["limits"]["ephemeral-storage"]
        assert int(limit.removesuffix("Gi")) << 30 >= BYTES_LIMIT + (1 << 30)


def test_the_pair_policy_joins_one_trial_and_the_gateway() -> None:
    """Its untrusted pods talk to its own drivers; nobody else talks to them."""
    spec = BODIES["pair policy"]["spec"]
    mine = {"matchLabels": {"proctor.dev/trial": "t", LABEL_TIER: TIER_DRIVER}}
    assert spec["ingress"] == [{"from": [{"podSelector": mine}]}]
    assert spec["egress"][0] == {"to": [{"podSelector": mine}]}
    assert [rule["ports"][0]["port"] for rule in spec["egress"][1:]] == [8081]


def test_every_child_is_owned_by_its_trial() -> None:
    """Deleting the trial deletes them, and a namesake is told apart by the owner's UID."""
    owned = [body for body in BODIES.values() if body["metadata"].get("ownerReferences")]
    assert len(owned) == 8
    owners: list[Object] = [body["metadata"]["ownerReferences"][0] for body in owned]
    assert all(owner["uid"] == "t-uid" and owner["controller"] and owner["blockOwnerDeletion"] for owner in owners)


def test_a_formal_trial_asks_for_all_it_may_use() -> None:
    """Requests equal limits, so that a neighbour cannot slow it down."""
    box = manifests.sandbox_pod(trial(status(), formal=True), SETTINGS)["spec"]["containers"][0]
    assert box["resources"]["requests"] == box["resources"]["limits"]
