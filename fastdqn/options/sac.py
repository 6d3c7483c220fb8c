"""Soft actor-critic: hyper-parameters, and what an environment's id implies for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fastdqn.errors import UserError
from fastdqn.options.actor_critic import ActorCriticPreset
from fastdqn.options.agents import Changes
from fastdqn.options.fields import above_zero, at_least, beside, between


@dataclass(frozen=True)
class SACOptions:
    """Soft actor-critic. The defaults are Haarnoja et al.'s (2018b, table 1), with the first updates after 100 env
    steps, as in Stable-Baselines3."""

    learning_rate: float = 3e-4
    """Learning rate of Adam, the same for actor, critics and temperature."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon, added to the root of its second moment."""
    gamma: float = 0.99
    """Discount of future rewards for each env step."""
    batch_size: int = 256
    """Transitions of an update."""
    steps_per_update: float = 1
    """Env steps for each update, those of all games of a process together. Below 1 (in 33 alone): several updates for
    each env step."""
    replay_size: int = 1_000_000
    """Env steps that the replay holds."""
    replay_initial: int = 100
    """Env steps with random actions before the first update."""
    newest_in_batch: bool = False
    """The newest transition is part of every batch (Zhang & Sutton 2017)."""
    target_average: float = 0.005
    """Share by which the target critics move towards the critics at each update (Lillicrap et al. 2016)."""
    target_entropy: float | None = None
    """Entropy that the temperature aims at, in nats. None: -1 for each number of an action."""
    initial_temperature: float = 1.0
    """Weight of the entropy at the start; from then on it is learnt."""
    temperature: float | None = None
    """Weight of the entropy that stays (Haarnoja et al. 2018a). None: it is learnt (2018b)."""
    max_norm: float | None = None
    """Gradients of actor and critics are clipped to this norm, each. None: not at all."""
    hidden: int = 256
    """Units of each of the two hidden layers of actor and critics (Haarnoja et al. 2018b)."""
    orthogonal: bool = False
    """Initial weights are orthogonal and biases 0 (Saxe et al. 2014) instead of PyTorch's defaults."""

    def check(self) -> None:
        """Raise UserError for a value out of range, or for values that contradict each other."""
        above_zero(self.learning_rate, "--learning-rate")
        above_zero(self.adam_epsilon, "--adam-epsilon")
        between(self.gamma, 0.0, 1.0, "--gamma")
        between(self.batch_size, 1, 2**31 - 1, "--batch-size")
        between(self.steps_per_update, 1e-3, 1e9, "--steps-per-update")
        at_least(self.replay_size, 1, "--replay-size")
        at_least(self.replay_initial, 1, "--replay-initial")
        if not 0.0 < self.target_average <= 1.0:
            raise UserError(f"--target-average must be above 0 and at most 1, not {self.target_average:g}.")
        between(self.target_entropy, -1e9, 1e9, "--target-entropy")
        above_zero(self.initial_temperature, "--initial-temperature")
        above_zero(self.temperature, "--temperature")
        above_zero(self.max_norm, "--max-norm")
        between(self.hidden, 1, 65_536, "--hidden")
        if self.replay_initial > self.replay_size:
            raise UserError(
                f"--replay-initial {self.replay_initial} cannot be more than --replay-size {self.replay_size}; "
                "lower the first or raise the second."
            )

    def describe(self) -> str:
        """Return one line that says what is learnt from."""
        every = "after each env step" if self.steps_per_update == 1 else f"every {self.steps_per_update:g} env steps"
        clip = "" if self.max_norm is None else f" clipped to {self.max_norm:g}"
        aim = "-1 a number" if self.target_entropy is None else f"{self.target_entropy:g}"
        entropy = f"an entropy of {aim} aimed at" if self.temperature is None else f"temperature {self.temperature:g}"
        return (
            f"learns by soft actor-critic: Adam {self.learning_rate:g}{clip}, batch {self.batch_size} {every}"
            f"{', the newest transition in each' if self.newest_in_batch else ''}, gamma {self.gamma:g}, targets moved "
            f"by {self.target_average:g} of the way at each update, {entropy}, "
            f"{self.replay_initial:,} random env steps first"
        )


@dataclass(frozen=True)
class SessionOptions:
    """Several sessions, each in a process of its own with --num-envs games and a replay of its own."""

    sessions: int | None = None
    """Session processes. None: 4, and no more than there are cores. --max-env-steps are divided among them."""
    distributed: Literal["none", "shared", "synced"] = "shared"
    """What sessions share: shared, they step the same weights, without a lock (Recht et al. 2011); synced, each
    computes gradients at a copy of its own, steps the shared weights by them, and copies these; none, nothing."""
    sync_every: int = 1
    """With --distributed synced: updates between two copies of the shared weights."""
    session_timeout: float = beside(60.0)
    """Seconds without a word after which a living session counts as hung."""

    def check(self) -> None:
        """Raise UserError for a value out of range, or for values that contradict each other."""
        between(self.sessions, 1, 256, "--sessions")
        at_least(self.sync_every, 1, "--sync-every")
        at_least(self.session_timeout, 1.0, "--session-timeout")
        if self.sync_every > 1 and self.distributed != "synced":
            raise UserError(f"--sync-every {self.sync_every} goes with --distributed synced, not {self.distributed}.")

    def with_number(self, cores: int) -> int:
        """Return the number of sessions on so many cores."""
        return self.sessions or max(1, min(4, cores))

    def describe(self) -> str:
        """Return a few words about who shares what."""
        how = {
            "none": "sharing nothing",
            "shared": "stepping shared weights without a lock",
            "synced": "stepping shared weights without a lock, with gradients at copies of their own",
        }[self.distributed]
        return f"{self.sessions} session{'s' if self.sessions != 1 else ''}, {how}"


ONE: Changes = {"vector": {"num_envs": 1}}
"""One game at a time, as in the papers."""
_MUJOCO: Mapping[str, int] = {"replay_initial": 10_000}

SAC_PRESETS: Mapping[str, ActorCriticPreset] = {
    "Pendulum-v1": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/sac.yml, for the learning rate; the score is this project's",
        {"run": {"max_env_steps": 50_000, "stop_score": -200.0}, "sac": {"learning_rate": 1e-3}},
    ),
    "MountainCarContinuous-v0": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/sac.yml, but for its exploration that depends on the state (gSDE), whose "
        "deviations begin at exp(-3.67), its updates, which come 32 at a time (train_freq, gradient_steps), where "
        "there is one after each env step here, and its start without random env steps",
        {
            "run": {"max_env_steps": 50_000, "stop_score": 90.0},
            "sac": {
                "replay_size": 50_000,
                "batch_size": 512,
                "hidden": 64,
                "temperature": 0.1,
                "gamma": 0.9999,
                "target_average": 0.01,
                "replay_initial": 32,
            },
        },
    ),
    "BipedalWalker-v3": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/sac.yml, but for its exploration that depends on the state (gSDE), whose "
        "deviations begin at exp(-3), its updates, which come 64 at a time (train_freq, gradient_steps), where there "
        "is one after each env step here, and its networks of 400 and 300 units",
        {
            "run": {"max_env_steps": 500_000, "stop_score": 300.0},
            "sac": {
                "learning_rate": 7.3e-4,
                "replay_size": 300_000,
                "gamma": 0.98,
                "target_average": 0.02,
                "replay_initial": 10_000,
            },
        },
    ),
    "HalfCheetah-v5": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/sac.yml, HalfCheetah-v4",
        {"run": {"max_env_steps": 1_000_000, "stop_score": None}, "sac": _MUJOCO},
    ),
    "Humanoid-v5": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/sac.yml, Humanoid-v4",
        {"run": {"max_env_steps": 2_000_000, "stop_score": None}, "sac": _MUJOCO},
    ),
}
"""By Gymnasium's id."""
OTHERS: Changes = {"run": {"max_env_steps": 1_000_000, "stop_score": None}}
"""For all other environments."""


PUBLISHED_SESSIONS: Mapping[str, ActorCriticPreset] = {
    "Humanoid-v5": ActorCriticPreset(
        "kengz/SLM-Lab, slm_lab/spec/benchmark/async_sac/async_sac_mujoco.json, async_sac_humanoid",
        {
            "run": {"max_env_steps": 50_000_000, "stop_score": None, "checkpoint_replay": False},  # 0.3 GB each
            "vector": {"num_envs": 8},
            "sessions": {"sessions": 16, "distributed": "shared"},
            "sac": {
                "learning_rate": 5e-5,
                "replay_size": 200_000,
                "replay_initial": 256,
                "newest_in_batch": True,
                "max_norm": 0.5,
                "orthogonal": True,
            },
        },
    ),
}
"""What an id implies where several sessions learn."""
_ONE_THREAD: Changes = {"run": {"threads": 1}}


_BESIDE: Changes = {"sac": {"steps_per_update": 10}}
"""As in ML-Agents."""


def sac_changes(name: str, elsewhere: bool = False, beside: bool = False) -> tuple[Changes, ...]:
    """Return what the environment's id implies, one after the other.

    Args:
        name: the id.
        elsewhere: whether others play and learn, in processes that have a core each.
        beside: whether a trainer learns beside the games.
    """
    presets = {**SAC_PRESETS, **PUBLISHED_SESSIONS} if elsewhere else SAC_PRESETS
    implied = presets[name].settings if name in presets else OTHERS
    if beside:
        return ONE, implied, _BESIDE
    return (ONE, implied, _ONE_THREAD) if elsewhere else (ONE, implied)
