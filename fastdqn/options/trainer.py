"""A trainer beside the games, in a thread of its own or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastdqn.options.agents import Changes


@dataclass(frozen=True)
class TrainerOptions:
    """A trainer beside the games."""

    algorithm: Literal["sac", "ppo"] = "sac"
    """What is learnt: soft actor-critic, or proximal policy optimisation, which has options of its own."""
    trainer_thread: bool = True
    """The trainer has a thread of its own. It pays where environments take long; without it the loop that plays
    learns, too, and a run repeats itself."""

    def describe(self) -> str:
        """Return a few words about who learns."""
        return "learns in a thread of its own" if self.trainer_thread else "learns between two steps of the games"


QUICK = ("Pendulum-v1", "CartPole-v1")
"""Environments so quick that a thread does not pay."""


def trainer_changes(name: str) -> Changes:
    """Return what the environment's id implies."""
    return {"trainer": {"trainer_thread": name not in QUICK}}
