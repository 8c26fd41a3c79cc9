"""Agent kinds behind one small interface: a turn is begun, or joined where it runs already, and answered."""

from typing import Final, Protocol

from runner.agents.nop import Nop
from runner.agents.oracle import Oracle
from runner.agents.scene import Reply, Scene
from wire.run import AgentKind
from wire.turn import TurnRequest


class Agent(Protocol):
    """A coding agent."""

    def turn(self, request: TurnRequest, scene: Scene) -> Reply:
        """Do a turn. Called again for the same turn, by a new container, it joins what runs."""
        ...


KINDS: Final[dict[AgentKind, Agent]] = {
    AgentKind.NOP: Nop(),
    AgentKind.ORACLE: Oracle(),
    AgentKind.MUTANT: Oracle(),
}
