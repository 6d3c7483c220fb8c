"""Players that send experience: pieces of samples, of which the trainer learns."""

from __future__ import annotations

from fastdqn.execution.crew import Crew, CrewPlan
from fastdqn.execution.player import PlayerWeights
from fastdqn.types import Piece


class Experience(Crew):
    """Players that act with the trainer's own weights, and send what they have learnt of the game.

    One piece of each player may wait, so that as many wait as there are players, and no player is more than two pieces
    ahead of the weights.

    Args:
        plan: what the players do.
        weights: that they act with.
        begun: env steps that others have played before.
    """

    def __init__(self, plan: CrewPlan, weights: PlayerWeights, begun: int = 0) -> None:
        super().__init__(plan, weights, begun, capacity=1)

    def take(self, count: int) -> list[Piece]:
        """Return the next `count` pieces; fewer only if a signal asks this process to stop.

        Raises:
            RunError: a player died, failed (its traceback is part of the message) or has hung.
        """
        return [self.placed(piece, player) for player, piece in self.messages(count)]
