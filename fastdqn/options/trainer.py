"""A trainer beside the games, in a thread of its own or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastdqn.options.agents import Changes

MAY_PAY = "a step of an environment that is none of Gymnasium's may take long"


@dataclass(frozen=True)
class TrainerOptions:
    """A trainer beside the games."""

    algorithm: Literal["sac", "ppo"] = "sac"
    """What is learnt: soft actor-critic, or proximal policy optimisation, which has options of its own."""
    trainer_thread: bool = False
    """The trainer has a thread of its own. It pays where a step of the environment takes long outside Python, so it is
    on for soft actor-critic where Gymnasium itself has not registered the environment; without it the loop that plays
    learns, too, and a run repeats itself."""

    def describe(self, name: str) -> str:
        """Return a few words about who learns beside the environment `name`, and why."""
        why_not = _why_not(name, self.algorithm == "ppo")
        if self.trainer_thread:
            return f"learns in a thread of its own: {'--trainer-thread asks for it' if why_not else MAY_PAY}"
        return f"learns between two steps of the games: {why_not or '--no-trainer-thread asks for it'}"


def trainer_changes(name: str, ppo: bool) -> Changes:
    """Return what the environment's id and the algorithm imply."""
    return {"trainer": {"trainer_thread": _why_not(name, ppo) is None}}


def _why_not(name: str, ppo: bool) -> str | None:
    """Return why a thread is not known to pay, None where it may."""
    if ppo:
        return "PPO has gained nothing from a thread"
    if _is_gymnasiums(name):
        return "Gymnasium's own environments are quick, and a thread pays where a step takes long"
    return None


def _is_gymnasiums(name: str) -> bool:
    """Tell whether Gymnasium itself has registered the environment with this id, in any case."""
    import gymnasium  # not above: who reads a run's options may have no environment to make

    made_by = {key.lower(): spec.entry_point for key, spec in gymnasium.registry.items()}.get(name.strip().lower(), "")
    module = made_by if isinstance(made_by, str) else getattr(made_by, "__module__", "")
    return module.startswith("gymnasium.")
