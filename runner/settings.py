"""What each role reads from its environment and its secrets: once, at start; passed on as an argument.

The names are those of `docs/architecture.md` with the prefix `PROCTOR_`; bearers are files in the secrets folder.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic_settings import BaseSettings, SettingsConfigDict

from wire.digest import DigestField
from wire.errors import InvalidInput
from wire.names import AGENT_PORT, AGENT_UID, DAEMON_PORT, SUBMISSION, WORKSPACE
from wire.outcome import TERMINATION_LOG
from wire.trial import TrialSpec


class PodSettings(BaseSettings):
    """What every pod of a trial is told."""

    model_config = SettingsConfigDict(env_prefix="PROCTOR_", frozen=True, use_attribute_docstrings=True)

    trial_uid: str = "-"
    trial_name: str = "-"
    attempt: int = 0
    pod_name: str = "-"
    pod_ip: str = "127.0.0.1"
    secrets: Path = Path("/run/secrets/proctor")
    """Folder with one file per bearer."""
    workspace: str = WORKSPACE
    """Where the agent and the submission work, in the untrusted pod."""
    agent_home: str = "/home/dev"
    """Home of the agent's user, in the untrusted pod."""

    def secret(self, name: str) -> str:
        """Return a bearer from the secrets folder.

        Raises:
            InvalidInput: there is no such file.
        """
        path = self.secrets / name
        try:
            return path.read_text().strip()
        except OSError as error:
            raise InvalidInput(f"the secret {path} cannot be read: {error.strerror}") from error


class Canary(BaseModel):
    """`PROCTOR_CANARIES`: what an untrusted pod must not reach, and the one thing it must."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    refused: dict[str, str] = {}
    """Name → `ip:port`."""
    gateway: str | None = None


class SandboxSettings(PodSettings):
    """Roles `sandbox` and `receive`."""

    canaries: Canary | None = None
    """None: nothing is checked, and the answer says so by naming no target."""
    submission_digest: DigestField | None = None
    """What `receive` must be given."""
    submission: str = SUBMISSION
    listen_host: str = "0.0.0.0"
    listen_port: int = DAEMON_PORT
    spool: Path = Path("/var/lib/proctor/spool")
    """Folder for the output of commands, for root alone."""
    user: int | None = AGENT_UID
    """Uid of the commands; `null`: the daemon's own, where it is not root and cannot become another."""


class DriverSettings(PodSettings):
    """What every trusted pod is told."""

    hub_url: str
    spec: TrialSpec
    termination_log: Path = Path(TERMINATION_LOG)
    spool: Path = Path("/tmp/proctor-journal")
    """Folder for journal entries that the hub has not accepted yet."""
    image: str = ""
    gateway_url: str | None = None


class SessionSettings(DriverSettings):
    """Roles `agent` and `user`."""

    sandbox_attempt: int
    conversation: int
    agent_port: int = AGENT_PORT
    silence_seconds: float = 600.0
    """How long the agent waits for its user, and the user for its agent, before it takes the other for dead."""


class AgentSettings(SessionSettings):
    """Role `agent`."""

    daemon_url: str


class GateSettings(DriverSettings):
    """Role `gate`."""

    daemon_url: str
    conversation: int
    candidate: DigestField
