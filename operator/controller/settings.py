"""Everything the operator reads from its environment (prefix `CONTROLLER_`). Local mode builds one by hand.

Addresses that pods are told are `ip:port`: pods look no names up. `__main__` resolves names before it starts.
"""

from pathlib import Path

from pydantic import Field, SecretBytes, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The operator's settings; frozen after start."""

    model_config = SettingsConfigDict(env_prefix="CONTROLLER_", frozen=True, use_attribute_docstrings=True)

    namespaces: list[str] = ["proctor-runs"]
    """Namespaces whose runs are executed, as a JSON list."""
    install_namespace: str = "proctor-system"
    """Where the operator, hub and gateway live; holds the Lease."""
    identity: str = "operator"
    """Who holds the Lease: the pod's name."""
    installation_key_file: Path | None = None
    """File with the key that signs tokens."""
    installation_key: SecretBytes = SecretBytes(b"")
    """The key itself; `__main__` reads it from the file when that is set."""

    hub_url: str = "http://127.0.0.1:8080"
    """The hub as the operator reaches it."""
    hub_address: str = "127.0.0.1:8080"
    """The hub as drivers reach it; untrusted pods must be refused there."""
    gateway_address: str = "127.0.0.1:8081"
    """The gateway as all pods reach it."""
    api_address: str = ""
    """The API server; untrusted pods must be refused there. Empty = there is none."""

    sandbox_image: str = "proctor/sandbox:latest"
    """Image of every pod of a trial, unless its task names another."""
    image_pull_policy: str = "IfNotPresent"
    """For every pod of a trial."""
    image_pull_secrets: list[str] = []
    """Names of pull secrets in the run namespaces."""
    runtime_class: str = ""
    """RuntimeClass of untrusted pods, such as `gvisor`; empty = the cluster's default."""
    untrusted_cpu: str = "2"
    """CPU limit of sandbox and sut; also their request in formal runs."""
    untrusted_disk: str = "8Gi"
    """Ephemeral storage limit of sandbox and sut."""

    max_running: int = Field(default=200, gt=0)
    """Trials that may hold pods at once, over all runs."""
    infrastructure_retries: int = Field(default=5, ge=0)
    """Failed attempts a trial survives; one more makes it Errored."""
    retry_seconds: float = Field(default=2.0, ge=0)
    """Wait before the second attempt; triples with every further failure, up to five minutes."""
    blocked_retry_seconds: float = Field(default=30.0, gt=0)
    """Wait before a refused create is tried again."""
    evaluation_rounds: int = Field(default=3, ge=1)
    """Evaluation rounds at most: reruns of unresolved cases on fresh pods."""
    settle_patience_seconds: float = Field(default=60.0, ge=0)
    """How long the deletion of an unfinished trial waits for the hub."""
    status_interval_seconds: float = Field(default=2.0, ge=0)
    """A run's status is written at most this often."""
    workers: int = Field(default=8, gt=0)
    """Objects reconciled at the same time."""
    probe_port: int = 8082
    """Port of `/livez`, `/readyz` and `/metrics`."""

    @field_validator("hub_address", "gateway_address", "api_address")
    @classmethod
    def _has_port(cls, address: str) -> str:
        host, _, port = address.rpartition(":")
        if address and not (host and port.isdigit()):
            raise ValueError("write it as host:port")
        return address

    def key(self) -> bytes:
        """Return the installation key."""
        return self.installation_key.get_secret_value()

    def read_key(self) -> SecretBytes:
        """Return the key from its file, where one is named. Raises ValueError when there is none worth the name."""
        file = self.installation_key_file
        key = self.key() if file is None else file.read_bytes().strip()
        if len(key) < 16:
            raise ValueError(f"the installation key {file or ''} is shorter than 16 bytes")
        return SecretBytes(key)
