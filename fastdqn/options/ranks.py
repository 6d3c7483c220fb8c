"""Ranks: processes that learn together, each from games of its own, by the mean of their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastdqn.errors import UserError
from fastdqn.options.agents import Changes
from fastdqn.options.fields import at_least, beside, between

MOST = 1024
"""Processes at most."""


@dataclass(frozen=True)
class RanksOptions:
    """Several processes that learn together, each from games of its own, by the mean of their gradients."""

    processes: int = 1
    """Processes, this one among them. Batches, games at once, rollouts, replays, how many env steps there are for each
    update and how many before the first are those of each process; env steps are counted over all. Under torchrun it is
    as many as that has started, and need not be given."""
    engine: Literal["ray", "spark", "spark-local"] | None = beside(None)
    """Who starts the processes: Ray, Spark on its cluster, or Spark on this machine; by default this process does, on
    this machine, unless torchrun has."""
    engine_address: str | None = beside(None)
    """Address of Ray's cluster (head:6379, or auto on one of its machines) or of Spark's master (spark://head:7077,
    yarn); by default what RAY_ADDRESS or SPARK_MASTER says, or else this machine."""
    published: bool = False
    """Take the settings of the published runs over ranks, which scale with --processes W. PPO on CartPole-v1: a
    learning rate of 1e-3 W that stays, 32768 // W env steps a rollout, batches of 4096, 100,000 env steps a process.
    SAC on Pendulum-v1: a learning rate of 1e-3 W, a replay of 32768 // W, batches of 2048, the first after 2048 // W
    env steps, 10,000 env steps a process. PPO on Pong, whatever W: 8 games of 128 steps a process, 4 epochs of 4
    batches, a clip of 0.1, and a learning rate of 2.5e-4 that falls to 0."""
    rank_timeout: float = beside(60.0)
    """Seconds for which the others wait for a living process that does not come, before it counts as hung."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.processes, 1, MOST, "--processes")
        at_least(self.rank_timeout, 1.0, "--rank-timeout")
        between(self.rank_timeout, 1.0, 1e9, "--rank-timeout")
        if self.engine_address is not None and self.engine not in ("ray", "spark"):
            raise UserError("--engine-address goes with --engine ray or --engine spark, whose cluster it names.")

    def describe(self, on_one_machine: bool) -> tuple[str, ...]:
        """Return a line about who learns together; nothing for one process.

        Args:
            on_one_machine: whether they exchange in one machine's memory.
        """
        if self.processes == 1:
            return ()
        way = "in this machine's memory" if on_one_machine else "by Gloo"
        return (f"{self.processes} processes learn together, by the mean of their gradients, exchanged {way}",)


_SAMPLES = 32_768
"""Env steps of a rollout of all processes together, and of their replays."""


def _ppo_on_cart_pole(world: int) -> Changes:
    # What is not named is Stable-Baselines3's.
    return {
        "run": {"max_env_steps": 100_000 * world, "stop_score": None},
        "vector": {"num_envs": 1},
        "ppo": {
            "learning_rate": 1e-3 * world,
            "learning_rate_decay": 0,
            "gamma": 0.99,
            "trace_decay": 0.95,
            "rollout_steps": _SAMPLES // world,
            "epochs": 10,
            "batch_size": 4096,
            "clip": 0.2,
            "entropy_weight": 0.0,
            "orthogonal": True,
        },
    }


def _ppo_on_pong(world: int) -> Changes:  # noqa: ARG001
    # Schulman et al. 2017, table 5, but for a clip that stays, 4 epochs, and the value's weight; the rest is 41's own.
    return {
        "vector": {"num_envs": 8},
        "ppo": {
            "learning_rate": 2.5e-4,
            "learning_rate_decay": None,
            "rollout_steps": 128,
            "epochs": 4,
            "batch_size": 256,
            "clip": 0.1,
            "center_frames": False,
            "frame_scale": 256.0,
            "orthogonal": True,  # as in the authors' code
        },
    }


def _sac_on_pendulum(world: int) -> Changes:
    return {
        "run": {"max_env_steps": 10_000 * world, "stop_score": None},
        "sac": {
            "learning_rate": 1e-3 * world,
            "batch_size": 2048,
            "replay_size": _SAMPLES // world,
            "replay_initial": 2048 // world,
        },
    }


def published_changes(name: str, world: int, continuous: bool) -> Changes:
    """Return what --published implies for a game, by its ROM or Gymnasium's id, on so many processes.

    Raises:
        UserError: nothing was published for it, or not on so many processes.
    """
    of_ppo: Mapping[str, Any] = {"CartPole-v1": _ppo_on_cart_pole, "pong": _ppo_on_pong}
    known: Mapping[str, Any] = {"Pendulum-v1": _sac_on_pendulum} if continuous else of_ppo
    if name not in known:
        raise UserError(f"--published is for {' or '.join(known)}; nothing was published for {name}.")
    if world > MOST:
        raise UserError(f"--processes must be between 1 and {MOST}, not {world}.")
    return known[name](world)
