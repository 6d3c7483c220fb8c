"""Settings: groups that a script composes, presets that fill them in, and how a run's config.json says them."""

from fastdqn.options.dqn import AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, PlayerOptions, VectorOptions
from fastdqn.options.parts import FreezeOptions, PartOptions, SeriesOptions
from fastdqn.options.run import RunOptions

__all__ = [
    "AgentOptions",
    "DQNOptions",
    "FreezeOptions",
    "GameOptions",
    "PaceOptions",
    "PartOptions",
    "PlayerOptions",
    "RunOptions",
    "SeriesOptions",
    "UpdateOptions",
    "VectorOptions",
]
