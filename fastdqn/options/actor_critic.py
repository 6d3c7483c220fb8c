"""Actor-critics: hyper-parameters, what an update is made of, who plays; and what a game's name implies for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastdqn.errors import UserError, counted
from fastdqn.options.agents import Changes
from fastdqn.options.fields import FRAME_SCALES, above_zero, at_least, between


@dataclass(frozen=True)
class FrameOptions:
    """How frames enter the network."""

    center_frames: bool = False
    """Subtract from every frame the mean frame of a little random play before the run, so that what moves stands out
    (LeCun et al. 1998, "Efficient BackProp", 4.3: inputs near zero learn faster)."""
    frame_scale: float = 256.0
    """Pixels are divided by this before they enter the network (Lapan 2020, chapter 13)."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.frame_scale, *FRAME_SCALES, "--frame-scale")

    @property
    def described(self) -> str:
        """A few words about it, with a comma before; none where nothing is done."""
        return f", centred frames over {self.frame_scale:g}" if self.center_frames else ""


@dataclass(frozen=True)
class A2COptions(FrameOptions):
    """Advantage actor-critic. The defaults are Lapan's for Pong (2020, chapter 13)."""

    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    adam_epsilon: float = 1e-3
    """Adam's epsilon, added to the root of its second moment."""
    gamma: float = 0.99
    """Discount of future rewards for each env step."""
    n_step: int = 4
    """Rewards summed before bootstrapping from the value (Mnih et al. 2016 sum up to 5)."""
    entropy_weight: float = 0.01
    """Weight of the entropy of the policy in the loss (Mnih et al. 2016)."""
    value_weight: float = 1.0
    """Weight of the squared error of the value in the loss (0.5 in OpenAI's baselines)."""
    max_norm: float = 0.1
    """Gradients are clipped to this norm."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        super().check()
        above_zero(self.learning_rate, "--learning-rate")
        above_zero(self.adam_epsilon, "--adam-epsilon")
        between(self.gamma, 0.0, 1.0, "--gamma")
        at_least(self.n_step, 1, "--n-step")
        at_least(self.entropy_weight, 0.0, "--entropy-weight")
        at_least(self.value_weight, 0.0, "--value-weight")
        above_zero(self.max_norm, "--max-norm")

    def describe(self, update: str) -> str:
        """Return one line that says what is learnt from; `update` says what an update is made of."""
        return (
            f"learns by advantage actor-critic: Adam {self.learning_rate:g}, {self.n_step}-step returns, gamma "
            f"{self.gamma:g}, entropy {self.entropy_weight:g}, gradients clipped to {self.max_norm:g}{self.described}, "
            f"{update}"
        )


@dataclass(frozen=True)
class PPOOptions(FrameOptions):
    """Proximal policy optimisation. The defaults are Schulman et al.'s for Atari (2017, table 5), but for 4 epochs
    instead of 3, a clip that stays the same, and a weight of 0.5 instead of 1 for the squared error of the value."""

    learning_rate: float = 2.5e-4
    """Learning rate of Adam at the start."""
    learning_rate_decay: int | None = None
    """Env steps over which the learning rate falls to 0, in a straight line; None: the whole run, to its limit
    --max-env-steps, or never without one, as with 0."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon, added to the root of its second moment."""
    gamma: float = 0.99
    """Discount of future rewards for each env step."""
    trace_decay: float = 0.95
    """Lambda of generalised advantage estimation (Schulman et al. 2016)."""
    rollout_steps: int = 128
    """Steps of each game between two sets of updates."""
    epochs: int = 4
    """Times that each sample is learnt from."""
    batch_size: int = 256
    """Samples of an update."""
    clip: float = 0.1
    """PPO's clip range: the ratio of probabilities is clipped to 1 plus or minus this."""
    target_kl: float | None = None
    """End the epochs of a rollout once the KL divergence from the policy that played it is above 1.5 times this, in
    nats (Stable-Baselines3). None: never."""
    entropy_weight: float = 0.01
    """Weight of the entropy of the policy in the loss."""
    value_weight: float = 0.5
    """Weight of the squared error of the value in the loss."""
    max_norm: float = 0.5
    """Gradients are clipped to this norm."""
    hidden: int = 64
    """Units of each of the two hidden layers where vectors are observed (Schulman et al. 2017)."""
    orthogonal: bool = False
    """Initial weights are orthogonal and biases 0 (Saxe et al. 2014) instead of PyTorch's defaults."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the network's body where frames are observed; auto is bf16 on GPUs and processors that have
    instructions for it. Last layers, values, loss and optimiser are always float32, and so is everything on mps."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        super().check()
        above_zero(self.learning_rate, "--learning-rate")
        at_least(self.learning_rate_decay, 0, "--learning-rate-decay")
        above_zero(self.adam_epsilon, "--adam-epsilon")
        between(self.gamma, 0.0, 1.0, "--gamma")
        between(self.trace_decay, 0.0, 1.0, "--trace-decay")
        at_least(self.rollout_steps, 1, "--rollout-steps")
        at_least(self.epochs, 1, "--epochs")
        at_least(self.batch_size, 1, "--batch-size")
        above_zero(self.clip, "--clip")
        above_zero(self.target_kl, "--target-kl")
        between(self.hidden, 1, 65_536, "--hidden")
        at_least(self.entropy_weight, 0.0, "--entropy-weight")
        at_least(self.value_weight, 0.0, "--value-weight")
        above_zero(self.max_norm, "--max-norm")

    def describe(self) -> str:
        """Return one line that says what is learnt from."""
        over = self.learning_rate_decay
        rate = f"{self.learning_rate:g}{f' falling to 0 over {over:,} env steps, where learning ends' if over else ''}"
        bound = "" if self.target_kl is None else f" up to a divergence of 1.5 x {self.target_kl:g}"
        return (
            f"learns by proximal policy optimisation: Adam {rate}, {self.rollout_steps} steps of each "
            f"game, {counted(self.epochs, 'epoch')} in batches of {self.batch_size}{bound}, clip {self.clip:g}, lambda "
            f"{self.trace_decay:g}, gamma {self.gamma:g}, entropy {self.entropy_weight:g}{self.described}"
        )


@dataclass(frozen=True)
class PieceOptions:
    """The samples of an update."""

    batch_size: int = 32
    """Samples of a piece, a part of an update's batch whose returns come from the same weights."""
    pieces: int = 4
    """Pieces of an update."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.batch_size, 1, "--batch-size")
        at_least(self.pieces, 1, "--pieces")

    def describe(self) -> str:
        """Return a few words about what an update is made of."""
        return f"{self.batch_size * self.pieces} samples an update, in pieces of {self.batch_size}"


@dataclass(frozen=True)
class GradientOptions:
    """The gradients of an update."""

    batch_size: int = 64
    """Samples of a gradient."""
    gradients: int = 2
    """Gradients that are summed for an update."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.batch_size, 1, "--batch-size")
        at_least(self.gradients, 1, "--gradients")

    def describe(self) -> str:
        """Return a few words about what an update is made of."""
        each = counted(self.batch_size, "sample")
        return f"an update by the sum of {counted(self.gradients, 'clipped gradient')} of {each} each"


@dataclass(frozen=True)
class PlayersOptions:
    """Several players, each in a process of its own with --num-envs games."""

    players: int | None = None
    """Player processes; by default 4, and no more than there are cores, or than share out evenly if they are
    --synchronous."""
    synchronous: bool = False
    """Players wait until the update is made that their samples go into. With one player the run is that of a single
    process; with several it repeats itself, and their number must divide that of the pieces, or gradients, of an
    update. Without it nobody waits, and no run is like another."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.players, 1, 256, "--players")

    def with_number(self, cores: int, shares: int) -> int:
        """Return the number of players on so many cores, where an update has so many shares to give to players.

        Raises:
            UserError: they are asked to wait for each other, and the shares do not come out even.
        """
        if self.players is None:
            most = max(1, min(4, cores))
            return max(n for n in range(1, most + 1) if not self.synchronous or shares % n == 0)
        if self.synchronous and shares % self.players:
            raise UserError(
                f"--synchronous needs as much of an update from each player, but {shares} cannot be shared out evenly "
                f"among --players {self.players}; give a number that divides {shares}."
            )
        return self.players


@dataclass(frozen=True)
class ActorCriticPreset:
    """What a game's name implies for actor-critics."""

    source: str
    settings: Changes  # those of groups that a script does not have are left out


GAMES = 8
"""Played at once by each player (Lapan 2020, chapter 13)."""
_GAMES: Changes = {"vector": {"num_envs": GAMES}}
_ORTHOGONAL: Mapping[str, Any] = {"orthogonal": True}  # as in Stable-Baselines3, and in Schulman et al.'s own code
_FRAMES: Mapping[str, Any] = {"max_env_steps": 50_000_000, "stop_score": None}  # 200 million frames

ACTOR_CRITICS: Mapping[str, ActorCriticPreset] = {
    "pong": ActorCriticPreset(
        "Lapan 2020, chapter 13: 8 games a player, solved above 18; for PPO centred frames and a larger learning rate, "
        "by this project (LOG.md)",
        {
            **_GAMES,
            "run": {"max_env_steps": 10_000_000, "stop_score": 18.0},
            "ppo": {
                **_ORTHOGONAL,
                "learning_rate": 5e-4,
                "learning_rate_decay": 600_000,
                "center_frames": True,
                "frame_scale": 64.0,
            },
        },
    ),
    "breakout": ActorCriticPreset(
        "Lapan 2020, chapter 13: four gradients an update, solved above 400",
        {**_GAMES, "run": {**_FRAMES, "stop_score": 400.0}, "gradients": {"gradients": 4}, "ppo": _ORTHOGONAL},
    ),
    "CartPole-v1": ActorCriticPreset(
        "this project, for its tests, with the usual epsilon and clip of A2C on short tasks; solved above the score "
        "that Gymnasium asks of CartPole-v0",
        {
            **_GAMES,
            "run": {"max_env_steps": 500_000, "stop_score": 195.0},
            "a2c": {"n_step": 16, "adam_epsilon": 1e-5, "max_norm": 0.5},
            # rl-baselines3-zoo, hyperparams/ppo.yml, but for a clip that stays
            "ppo": {
                **_ORTHOGONAL,
                "learning_rate": 1e-3,
                "gamma": 0.98,
                "trace_decay": 0.8,
                "rollout_steps": 32,
                "epochs": 20,
                "batch_size": 256,
                "clip": 0.2,
                "entropy_weight": 0.0,
            },
        },
    ),
    "Pendulum-v1": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/ppo.yml, but for its exploration that depends on the state (gSDE); the score "
        "is that of soft actor-critic here",
        {
            "vector": {"num_envs": 4},
            "run": {"max_env_steps": 100_000, "stop_score": -200.0},
            "ppo": {
                **_ORTHOGONAL,
                "learning_rate": 1e-3,
                "learning_rate_decay": 0,
                "gamma": 0.9,
                "rollout_steps": 1_024,
                "epochs": 10,
                "batch_size": 64,
                "clip": 0.2,
                "entropy_weight": 0.0,
            },
        },
    ),
    "MountainCarContinuous-v0": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/ppo.yml, but for its exploration that depends on the state (gSDE), whose "
        "deviations begin at exp(-3.29), where they are 1 here, and its normalised observations and rewards; the score "
        "is what Gymnasium asks",
        {
            "vector": {"num_envs": 1},
            "run": {"max_env_steps": 20_000, "stop_score": 90.0},
            "ppo": {
                "learning_rate": 7.77e-5,
                "learning_rate_decay": 0,
                "gamma": 0.9999,
                "trace_decay": 0.9,
                "rollout_steps": 8,
                "epochs": 10,
                "batch_size": 256,
                "clip": 0.1,
                "entropy_weight": 0.00429,
                "value_weight": 0.19,
                "max_norm": 5.0,
            },
        },
    ),
    "BipedalWalker-v3": ActorCriticPreset(
        "rl-baselines3-zoo, hyperparams/ppo.yml, but for its normalised observations and rewards; the score is what "
        "Gymnasium asks",
        {
            "vector": {"num_envs": 32},
            "run": {"max_env_steps": 5_000_000, "stop_score": 300.0},
            "ppo": {
                **_ORTHOGONAL,
                "learning_rate": 3e-4,
                "learning_rate_decay": 0,
                "gamma": 0.999,
                "rollout_steps": 2_048,
                "epochs": 10,
                "batch_size": 64,
                "clip": 0.18,
                "entropy_weight": 0.0,
            },
        },
    ),
}
"""By ROM, or by Gymnasium's id."""
OTHERS: Changes = {**_GAMES, "run": _FRAMES, "ppo": _ORTHOGONAL}
"""For all other games."""


def actor_critic_changes(rom: str, elsewhere: bool) -> tuple[Changes, ...]:
    """Return what the game implies, one after the other.

    Args:
        rom: or the id of another environment.
        elsewhere: whether others play, in processes that have a core each.
    """
    threads: Changes = {"vector": {"env_threads": 1}, "run": {"threads": 1}} if elsewhere else {}
    return (ACTOR_CRITICS[rom].settings if rom in ACTOR_CRITICS else OTHERS, threads)
