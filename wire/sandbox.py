"""What a driver and a sandbox daemon say to each other over HTTP. Every request carries the daemon's own bearer.

GET  /healthz                                  no bearer; 200 once it listens
GET  /v1/canaries                              Canaries; 503 until settled; commands wait for it
PUT  /v1/commands/{id}          CommandSpec    starts once however often it is sent; 409 for another spec
GET  /v1/commands/{id}?wait=S                  CommandStatus; waits up to S seconds for the end
GET  /v1/commands/{id}/output?offset=N&wait=S  bytes from N on; waits up to S seconds for the first one;
                                               header `Proctor-End: true` when there will be no more
POST /v1/commands/{id}/signal   SignalRequest  to its process group
POST /v1/stop                                  ends every process of the agent's user
GET  /v1/tree?root=R&root=…&exclude=P          deterministic tar; several roots are stored under their full paths
PUT  /v1/tree?root=R[&clean=true]              unpacks a tar as the agent's user
GET  /v1/digest?root=R&exclude=P               {"digest": …}: of the tar that GET /v1/tree would give
PUT  /v1/submission                            a sut's init step only: takes the archive whose digest it was told
"""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from wire.model import Wire

END_HEADER: Final = "Proctor-End"
CommandId = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$")]


class CommandSpec(Wire):
    """A command, run as the agent's user in a new session with a clean environment."""

    argv: Annotated[list[Annotated[str, StringConstraints(max_length=131072)]], Field(min_length=1, max_length=1024)]
    cwd: Annotated[str, StringConstraints(max_length=4096)] = "/workspace"
    env: dict[str, str] = {}
    """Added to the image's defaults."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Then the whole process group is killed; the status says `timedOut`."""


class CommandState(StrEnum):
    RUNNING = "running"
    EXITED = "exited"


class CommandStatus(Wire):
    """How a command stands."""

    id: CommandId
    state: CommandState
    exit_code: int | None = None
    """As a shell counts: 128 + signal when a signal ended it."""
    signal: int | None = None
    timed_out: bool = False
    memory: bool = False
    """It died of the memory limit."""
    output_bytes: int = 0
    started_at: float
    """Unix seconds, by the sandbox's clock."""
    ended_at: float | None = None


class SignalRequest(Wire):
    signal: Annotated[str, StringConstraints(pattern=r"^SIG[A-Z0-9]+$")]
