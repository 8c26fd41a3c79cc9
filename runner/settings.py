"""What each role reads from its environment and its secrets: once, at start; passed on as an argument.

The names are those of `docs/architecture.md` with the prefix `PROCTOR_`; bearers are files in the secrets folder.
"""

import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from runner.account import Account
from wire.digest import DigestField
from wire.errors import InvalidInput
from wire.names import AGENT_PORT, AGENT_UID, DAEMON_PORT, SUBMISSION, WORKSPACE
from wire.outcome import TERMINATION_LOG
from wire.trial import EndReason, Submission, TrialSpec


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


class Npm(BaseSettings):
    """The image's npm settings, the only part of its environment that commands see."""

    model_config = SettingsConfigDict(env_prefix="NPM_CONFIG_", frozen=True)

    cache: str | None = None
    offline: str | None = None
    logs_max: str | None = None
    update_notifier: str | None = None

    def variables(self) -> dict[str, str]:
        """Return them as they are written in an environment."""
        return {f"NPM_CONFIG_{name.upper()}": value for name, value in self.model_dump(exclude_none=True).items()}


class SandboxSettings(PodSettings):
    """Roles `sandbox` and `receive`."""

    canaries: Canary | None = None
    """None: nothing is checked, and the answer says so by naming no target."""
    settle_seconds: float = 60.0
    """How long network policies may take to bite."""
    submission_digest: DigestField | None = None
    """What `receive` must be given."""
    submission_folder: str = SUBMISSION
    """Where `receive` unpacks it."""
    listen_host: str = "0.0.0.0"
    listen_port: int = DAEMON_PORT
    spool: Path = Path("/var/lib/proctor/spool")
    """Folder for the output of commands, for root alone."""
    agent_uid: int = AGENT_UID
    """Whom commands run as."""
    own_user: bool = False
    """Commands run as the daemon's own user instead: it is not root and cannot become another. Isolates nothing."""
    command_path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH of the commands."""
    python: str = sys.executable
    """Interpreter of the processes that read and write trees; the agent's user must be able to start it."""
    stall_seconds: float = 120.0
    """How long a process that reads a tree may give nothing before it is ended."""
    npm: Npm = Field(default_factory=Npm)

    @property
    def uid(self) -> int | None:
        """Return whom commands run as; None: the daemon's own user."""
        return None if self.own_user else self.agent_uid

    def account(self, data_limit_bytes: int | None) -> Account:
        """Return whom commands run as, and with what."""
        environment = {"PATH": self.command_path, "HOME": self.agent_home, "USER": "dev", "LANG": "C.UTF-8"}
        return Account(uid=self.uid, environment=environment | self.npm.variables(), data_limit_bytes=data_limit_bytes)


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
    end_reason: EndReason | None = None
    """Set: development is over by the operator's count, so the state as it is becomes the candidate."""
    agent_port: int = AGENT_PORT
    silence_seconds: float = 120.0
    """How long the agent hears nothing of its user before it takes it for dead."""


class AgentSettings(SessionSettings):
    """Role `agent`."""

    daemon_url: str
    lost_seconds: float = 60.0
    """How long a silent daemon is waited for before its sandbox counts as lost."""
    first_seconds: float = 600.0
    """The same for its first answer: its image may still be pulled."""


class GateSettings(DriverSettings):
    """Role `gate`."""

    daemon_url: str
    conversation: int
    candidate: DigestField
    sut_death: str | None = None
    """Set: by the operator's count too many suts died, the last of this; the candidate fails without another one."""
    submission_folder: str = SUBMISSION
    """Where the candidate lies in the sut, read-only."""
    api_host: str = "0.0.0.0"
    """Where the submission's API listens in the sut."""
    api_port: int = 3000
    path: str = Field(default="/usr/local/bin:/usr/bin:/bin", validation_alias="PATH")
    """Where the checker finds Node."""


class EvaluateSettings(DriverSettings):
    """Role `evaluate`."""

    suts: list[str]
    """Daemons by shard."""
    submission: Submission
    sut_death: str | None = None
    """Set: by the operator's count too many suts died, the last of this; what has no outcome fails without another."""
    submission_folder: str = SUBMISSION
    """Where the submission lies in the sut, read-only."""
    lost_seconds: float = 60.0
    """How long a silent daemon is waited for before its sandbox counts as lost."""
    first_seconds: float = 600.0
    """The same for its first answer: its image may still be pulled."""
    round: int = 1
    shard: int = Field(validation_alias="JOB_COMPLETION_INDEX")
