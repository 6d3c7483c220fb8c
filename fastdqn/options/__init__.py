"""Settings: groups that a script composes, presets that fill them in, and how a run's config.json says them."""

from fastdqn.options.actor_critic import A2COptions, GradientOptions, PieceOptions, PlayersOptions, PPOOptions
from fastdqn.options.dqn import DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.ranks import RanksOptions
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions, SessionOptions
from fastdqn.options.trainer import TrainerOptions

__all__ = [
    "A2COptions",
    "DQNOptions",
    "GameOptions",
    "GradientOptions",
    "PPOOptions",
    "PaceOptions",
    "PieceOptions",
    "PlayerOptions",
    "PlayersOptions",
    "RanksOptions",
    "RunOptions",
    "SACOptions",
    "SessionOptions",
    "TrainerOptions",
    "UpdateOptions",
    "VectorOptions",
]
