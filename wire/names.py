"""Deterministic names, labels, ports and paths: the exactly-once mechanism and the pods' common ground."""

import re
from typing import Final

from wire.digest import of_bytes

GROUP: Final = "proctor.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Labels. `tier` decides what a pod may reach; `trial` (the Trial's name) joins an untrusted pod to its own drivers.
LABEL_RUN: Final = f"{GROUP}/run"
LABEL_TRIAL: Final = f"{GROUP}/trial"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_TIER: Final = f"{GROUP}/tier"
LABEL_SHARD: Final = f"{GROUP}/shard"
LABEL_TASK: Final = f"{GROUP}/task"
LABEL_ARM: Final = f"{GROUP}/arm"
MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "proctor-operator")
TIER_UNTRUSTED: Final = "untrusted"
TIER_DRIVER: Final = "driver"
FINALIZER: Final = f"{GROUP}/teardown"

# Ports.
DAEMON_PORT: Final = 7070
"""The daemon in sandbox and sut; during a sut's init step the receiver of archives."""
AGENT_PORT: Final = 7071
"""The agent container, for the user container of the same session pod, on 127.0.0.1."""
HUB_PORT: Final = 8080
GATEWAY_PORT: Final = 8081

# Paths inside the sandbox image.
WORKSPACE: Final = "/workspace"
SUBMISSION: Final = "/submission"
AGENT_UID: Final = 1000


def trial_name(run: str, run_uid: str, index: int) -> str:
    """Return the name of a run's trial: the run's, five characters of its UID, the index."""
    return f"{run}-{re.sub('[^a-z0-9]', '', run_uid)[:5]}-{index:05d}"


def pod_name(trial: str, attempt: int, role: str, number: int | None = None) -> str:
    """Return the only name a pod of this attempt and role can have; `number` is a conversation or a shard."""
    return f"{trial}-{attempt}-{role}" + ("" if number is None else f"-{number}")


def label_value(text: str) -> str:
    """Return a text as a label value; what does not fit into 63 characters is shortened with a hash."""
    return text if len(text) <= 63 else f"{text[:50]}-{of_bytes(text.encode())[7:19]}"
