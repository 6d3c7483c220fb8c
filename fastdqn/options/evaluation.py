"""The evaluation that ends a run of Atari-100k."""

from __future__ import annotations

from dataclasses import dataclass

from fastdqn.options.fields import at_least, beside


@dataclass(frozen=True)
class EvaluationOptions:
    """What the final weights play once a run has made all its env steps."""

    evaluation_games: int = beside(100)
    """Whole games that the final weights play, by the protocol atari-100k (docs/protocols.md); 0 for none."""
    evaluation_envs: int = beside(25)
    """Of these, games played at once."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.evaluation_games, 0, "--evaluation-games")
        at_least(self.evaluation_envs, 1, "--evaluation-envs")
