"""The evaluation that ends a run of Atari-100k, and which weights it is of."""

from __future__ import annotations

from dataclasses import dataclass

from fastdqn.errors import counted
from fastdqn.options.fields import above_zero, at_least, beside, between


@dataclass(frozen=True)
class EvaluationOptions:
    """What the final weights play once a run has made all its env steps."""

    evaluation_games: int = beside(100)
    """Whole games that the final weights play, by the protocol atari-100k (docs/protocols.md); 0 for none."""
    evaluation_envs: int = beside(25)
    """Of the --evaluation-games, those that are played at once."""

    final_average: float | None = None
    """An average of the weights plays the --evaluation-games, and is what the run saves as its weights: at every tenth
    update it moves by this share towards the weights of then (Polyak & Juditsky 1992). None: the newest weights
    play."""

    def describe(self) -> str:
        """Return one line about what the end of a run plays."""
        share = self.final_average
        weights = (
            "the newest weights"
            if share is None
            else f"an average of the weights, moved by {share:g} at each tenth update"
        )
        games = counted(self.evaluation_games, "game") if self.evaluation_games else "no game"
        return f"after the last env step plays {games}, and leaves {weights}"

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.evaluation_games, 0, "--evaluation-games")
        at_least(self.evaluation_envs, 1, "--evaluation-envs")
        above_zero(self.final_average, "--final-average")
        between(self.final_average, 0.0, 1.0, "--final-average")
