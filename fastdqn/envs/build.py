"""From a game and how it is presented to an environment ready to play."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal, cast, get_args

import ale_py
import cv2
import gymnasium

from fastdqn.envs import classic, games, opencv
from fastdqn.errors import UserError
from fastdqn.options.game import GameOptions

Wrappers = Literal["classic", "opencv"]
PlayEnv = gymnasium.Env[Any, Any]
"""An environment that yields stacked uint8 observations and has `pop_finished` for whole-game scores."""


def build_env(game: GameOptions, wrappers: Wrappers = "classic", side: int = 84) -> PlayEnv:
    """Return `game` behind the wrappers: observations (frame_stack, side, side) uint8, Discrete actions.

    The classic wrappers know frames of 84x84 only.

    OpenCV's own threads are turned off: on frames this small they only compete with the learner for cores.

    Raises:
        UserError: there is no such game, or the wrappers do not fit it.
    """
    cv2.setNumThreads(0)
    env = bare_env(game)
    if wrappers == "opencv":
        return opencv.OpenCVAtari(env, game, side)
    return _classic(env, game)


def build_described(game: GameOptions, wrappers: Wrappers) -> tuple[PlayEnv, str]:
    """Return `game` behind the wrappers, and one line that says how it is presented.

    Raises:
        UserError: there is no such game, or the wrappers do not fit it.
    """
    return build_env(game, wrappers), describe(game, wrappers)


def bare_env(game: GameOptions) -> classic.FrameEnv:
    """Return the emulator as a Gymnasium environment: RGB screens, one frame for each step.

    For Atari it is what `gymnasium.make("PongNoFrameskip-v4")` wraps, with its sticky actions, action set and
    frame limit.
    """
    if games.is_custom(game.name):
        return _custom_env(game.name)
    ale: Any = ale_py  # its compiled half has no types
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # before the first one prints its banner
    return ale.AtariEnv(
        game=games.rom_of(game.name),
        obs_type="rgb",
        frameskip=1,
        repeat_action_probability=game.sticky_actions,
        full_action_space=game.full_action_set,
        max_num_frames_per_episode=game.max_frames,
    )


def spaces_of(env: PlayEnv) -> tuple[tuple[int, int, int], int]:
    """Return the shape of the observations (C, H, W) and the number of actions A."""
    space: Any = env.action_space
    channels, height, width = env.observation_space.shape or (0, 0, 0)
    return (channels, height, width), int(space.n)


def describe(game: GameOptions, wrappers: str) -> str:
    """Return one line that says how the game is presented."""
    custom = games.is_custom(game.name)
    name = game.name if custom else games.gymnasium_id(games.rom_of(game.name))
    parts = [
        *([] if game.protocol is None else [f"protocol {game.protocol}"]),
        f"{wrappers} wrappers" if wrappers in get_args(Wrappers) else wrappers,
        f"frame skip {game.frame_skip}",
        f"no-ops {'1-' + str(game.noop_max) if game.noop_max else 'none'}",
        f"stack {game.frame_stack}",
        f"lost life ends an episode: {_yes(game.episodic_life)}",
        f"rewards clipped to their sign: {_yes(game.clip_rewards)}",
        f"FIRE after a reset: {_yes(game.fire_reset)}",
    ]
    if not custom:  # an environment of the user's own settles these itself
        parts += [
            f"sticky actions {game.sticky_actions:g}",
            f"all 18 actions: {_yes(game.full_action_set)}",
            f"at most {game.max_frames} frames a game",
        ]
    return f"{name}: " + ", ".join(parts)


def _classic(env: classic.FrameEnv, game: GameOptions) -> PlayEnv:
    fire = game.fire_reset and classic.waits_for_fire(env)
    env = classic.ScoreKeeper(env)
    if game.episodic_life:
        env = classic.EpisodicLife(env)
    env = classic.NoopReset(env, game.noop_max)
    env = classic.MaxAndSkip(env, game.frame_skip)
    if fire:
        env = classic.FireReset(env)
    env = classic.ProcessFrame84(env)
    env = classic.ChannelFirst(env)
    env = classic.FrameStack(env, game.frame_stack)
    if game.clip_rewards:
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
