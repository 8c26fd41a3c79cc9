"""Everything the command line reads from its environment (prefix `PROCTOR_`), once, at start."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The settings of `proctor`; with none at all it works on this machine alone."""

    model_config = SettingsConfigDict(env_prefix="PROCTOR_", frozen=True, use_attribute_docstrings=True)

    home: Path = Field(default_factory=lambda: Path.home() / ".local" / "share" / "proctor")
    """Local mode's state: database, archives, logs."""
    hub_url: str = ""
    """The hub of a cluster; empty = local mode's own."""
    token: SecretStr = SecretStr("")
    """A bearer of scope admin for that hub."""
    installation_key_file: Path | None = None
    """Instead of a token: the installation's key."""
    namespace: str = "proctor-runs"
    """Namespace of runs in a cluster."""
    kubeconfig: Path | None = Field(default_factory=lambda: _kubeconfig(), validation_alias="KUBECONFIG")
    """The cluster, as for kubectl."""


def _kubeconfig() -> Path | None:
    default = Path.home() / ".kube" / "config"
    return default if default.exists() else None
