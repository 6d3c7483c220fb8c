"""From a game's name and a protocol to an environment ready to play."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal, cast, get_args

import ale_py
import cv2
import gymnasium

from fastdqn.config import Protocol
from fastdqn.envs import classic, games, opencv
from fastdqn.errors import UserError

Wrappers = Literal["classic", "opencv"]
PlayEnv = gymnasium.Env[Any, Any]
"""An environment that yields stacked uint8 observations and has `pop_finished` for whole-game scores."""


def make_env(game: str, protocol: Protocol, wrappers: Wrappers = "classic", side: int = 84) -> PlayEnv:
    """Return `game` behind the wrappers: observations (frame_stack, side, side) uint8, Discrete actions.

    The classic wrappers know frames of 84x84 only.

    OpenCV's own threads are turned off: on frames this small they only compete with the learner for cores.

    Raises:
        UserError: there is no such game, or the wrappers do not fit it.
    """
    cv2.setNumThreads(0)
    env = bare_env(game, protocol)
    if wrappers == "opencv":
        return opencv.OpenCVAtari(env, protocol, side)
    return _classic(env, protocol)


def bare_env(game: str, protocol: Protocol) -> classic.FrameEnv:
    """Return the emulator as a Gymnasium environment: RGB screens, one frame for each step.

    For Atari it is what `gymnasium.make("PongNoFrameskip-v4")` wraps, with the protocol's sticky actions, action
    set and frame limit.
    """
    if games.is_custom(game):
        return _custom_env(game)
    ale: Any = ale_py  # its compiled half has no types
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # before the first one prints its banner
    return ale.AtariEnv(
        game=games.rom_of(game),
        obs_type="rgb",
        frameskip=1,
        repeat_action_probability=protocol.sticky_actions,
        full_action_space=protocol.full_action_set,
        max_num_frames_per_episode=protocol.max_frames,
    )


def spaces_of(env: PlayEnv) -> tuple[tuple[int, int, int], int]:
    """Return the shape of the observations (C, H, W) and the number of actions A."""
    space: Any = env.action_space
    channels, height, width = env.observation_space.shape or (0, 0, 0)
    return (channels, height, width), int(space.n)


def describe(game: str, protocol: Protocol, wrappers: str) -> str:
    """Return one line that says how the game is presented."""
    custom = games.is_custom(game)
    name = game if custom else games.gymnasium_id(games.rom_of(game))
    parts = [
        f"{wrappers} wrappers" if wrappers in get_args(Wrappers) else wrappers,
        f"frame skip {protocol.frame_skip}",
        f"no-ops {'1-' + str(protocol.noop_max) if protocol.noop_max else 'none'}",
        f"stack {protocol.frame_stack}",
        f"lost life ends an episode: {_yes(protocol.episodic_life)}",
        f"rewards clipped to their sign: {_yes(protocol.clip_rewards)}",
        f"FIRE after a reset: {_yes(protocol.fire_reset)}",
    ]
    if not custom:  # an environment of the user's own settles these itself
        parts += [
            f"sticky actions {protocol.sticky_actions:g}",
            f"all 18 actions: {_yes(protocol.full_action_set)}",
            f"at most {protocol.max_frames} frames a game",
        ]
    return f"{name}: " + ", ".join(parts)


def _classic(env: classic.FrameEnv, protocol: Protocol) -> PlayEnv:
    fire = protocol.fire_reset and classic.waits_for_fire(env)
    env = classic.ScoreKeeper(env)
    if protocol.episodic_life:
        env = classic.EpisodicLife(env)
    env = classic.NoopReset(env, protocol.noop_max)
    env = classic.MaxAndSkip(env, protocol.frame_skip)
    if fire:
        env = classic.FireReset(env)
    env = classic.ProcessFrame84(env)
    env = classic.ChannelFirst(env)
    env = classic.FrameStack(env, protocol.frame_stack)
    if protocol.clip_rewards:
        env = classic.SignReward(env)
    return env


def _custom_env(path: str) -> classic.FrameEnv:
    module_name, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        factory: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"The environment {path!r} cannot be loaded: {error}.") from error
    if not callable(factory):
        raise UserError(f"The environment {path!r} cannot be loaded: {attribute} is not a function or class.")
    env: Any = factory()
    fits = isinstance(env, gymnasium.Env) and hasattr(cast(Any, env.unwrapped), "get_action_meanings")
    if not fits:
        raise UserError(
            f"{path!r} must return a gymnasium.Env with RGB observations and get_action_meanings(), as Atari's have."
        )
    return cast(classic.FrameEnv, env)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
