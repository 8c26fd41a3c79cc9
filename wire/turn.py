"""What the `user` and the `agent` container of a session pod say to each other, on 127.0.0.1:AGENT_PORT.

PUT  /v1/turns/{turn}           TurnRequest   begins the turn, or joins the one that runs; idempotent
GET  /v1/turns/{turn}?wait=S                  TurnStatus
POST /v1/interrupt                            ends the agent's processes: a turn that runs is soon done
POST /v1/checkpoint                           Stored: workspace and home as one archive in the hub
POST /v1/candidate                            Stored: agent's processes stopped, workspace pulled and stored
POST /v1/finish                               the agent container exits 0, its journal accepted by the hub
"""

from typing import Annotated

from pydantic import Field, StringConstraints

from wire.digest import DigestField
from wire.model import Wire


class TurnRequest(Wire):
    """One user message."""

    turn: Annotated[int, Field(ge=1)]
    conversation: Annotated[int, Field(ge=1)]
    message: Annotated[str, StringConstraints(max_length=65536)]


class TurnStatus(Wire):
    """How the agent's turn stands."""

    turn: int
    done: bool
    reply: Annotated[str, StringConstraints(max_length=65536)] = ""
    started_at: Annotated[str, StringConstraints(max_length=32)]
    ended_at: Annotated[str, StringConstraints(max_length=32)] | None = None
    resource_deaths: int = 0


class Stored(Wire):
    """An archive that the hub has accepted."""

    digest: DigestField
    rolled_back: bool = False
    """The sandbox held more than an archive may, so this is its last sealed state, and the sandbox is back in it."""
