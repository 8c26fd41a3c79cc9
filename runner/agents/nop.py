"""The agent that does nothing: what the untouched scaffold is worth."""

from runner.agents.scene import Reply, Scene
from runner.clock import now
from wire.turn import TurnRequest


class Nop:
    """Answers and leaves the workspace alone."""

    def turn(self, request: TurnRequest, scene: Scene) -> Reply:
        """Answer."""
        moment = now()
        return Reply(text="I changed nothing.", started_at=moment, ended_at=moment)
