"""From a game and how it is presented to an environment ready to play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import ale_py
import cv2
import gymnasium

from fastdqn.envs import classic, games, opencv
from fastdqn.envs.boxes import BoxEnv, ControlEnv, EitherEnv
from fastdqn.envs.own import OwnEnv, WholePicture
from fastdqn.errors import UserError
from fastdqn.options.game import OWN_GAME, GameOptions
from fastdqn.options.groups import flag_of

Wrappers = Literal["classic", "opencv"]
PlayEnv = gymnasium.Env[Any, Any]
"""An environment that yields stacked uint8 observations, or float32 vectors, and has `pop_finished` for whole-game
scores.
"""


def build_env(
    game: GameOptions,
    wrappers: Wrappers = "classic",
    side: int = 84,
    continuous: bool | None = False,
    drawn: bool = False,
) -> PlayEnv:
    """Return `game` behind the wrappers: observations (frame_stack, side, side) uint8, Discrete actions; where vectors
    are shown (D,) float32, and with `continuous` actions (A,) float32 from -1 to 1; with None they are what the
    environment has. A registered environment can be drawn if it is to be `drawn`.

    The classic wrappers know frames of 84x84 only. An environment of one's own has wrappers of its own, whichever are
    asked for, so that every script shows the same of it.

    OpenCV's own threads are turned off: on frames this small they only compete with the learner for cores.

    Raises:
        UserError: there is no such game, or it cannot be presented so.
        RunError: an environment of one's own failed.
    """
    cv2.setNumThreads(0)
    env = bare_env(game, continuous, drawn)
    if isinstance(env, BoxEnv):
        return classic.ScoreKeeper(env)
    if isinstance(env, OwnEnv):
        return _wrapped(env, game, own_side=side)
    if wrappers == "opencv":
        return opencv.OpenCVAtari(env, game, side)
    return _wrapped(env, game)


def build_described(
    game: GameOptions,
    wrappers: Wrappers,
    side: int = 84,
    how: str | None = None,
    continuous: bool | None = False,
    fewest: int = 1,
) -> tuple[PlayEnv, str]:
    """Return `game` behind the wrappers, and one line that says how it is presented, in other words if `how` says it,
    with no-ops from `fewest` on.

    Raises:
        UserError: there is no such game, or it cannot be presented so.
        RunError: an environment of one's own failed.
    """
    return build_env(game, wrappers, side, continuous), describe(game, how or wrappers, fewest)


def bare_env(game: GameOptions, continuous: bool | None = False, drawn: bool = False) -> classic.FrameEnv:
    """Return the emulator, a registered environment, or one of one's own, as a Gymnasium environment with one frame for
    each step.

    For Atari it is what `gymnasium.make("PongNoFrameskip-v4")` wraps, with its RGB screens, sticky actions, action set
    and frame limit.

    Raises:
        UserError: there is no such game, or it cannot be presented so.
        RunError: an environment of one's own failed.
    """
    registered = games.control_id(game.name) if continuous else games.registered_id(game.name)
    if registered is not None:
        _check_as_it_is(registered, game)
        kind = EitherEnv if continuous is None else ControlEnv if continuous else BoxEnv
        return kind(registered, game.frame_limit, drawn)
    if games.is_custom(game.name):
        env = OwnEnv(game.name, game.frame_limit)
        _check_asked(env, game)
        return env
    ale: Any = ale_py  # its compiled half has no types
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # before the first one prints its banner
    return ale.AtariEnv(
        game=games.rom_of(game.name),
        obs_type="rgb",
        frameskip=1,
        repeat_action_probability=game.sticky_actions,
        full_action_space=game.full_action_set,
        max_num_frames_per_episode=game.frame_limit,
    )


def spaces_of(env: PlayEnv) -> tuple[Any, int]:
    """Return the shape of the observations, (C, H, W) or (D,), and the number of actions A, or of the numbers of a
    continuous one.
    """
    space: Any = env.action_space
    return env.observation_space.shape, int(space.n) if hasattr(space, "n") else len(space.low)


def is_numbered(env: PlayEnv) -> bool:
    """Tell whether an action is one of several, instead of a vector."""
    return hasattr(env.action_space, "n")


def check_alike(envs: Sequence[PlayEnv]) -> None:
    """Raise UserError unless all of these, made by one function, show and take the same."""
    kinds = {(spaces_of(env), is_numbered(env)) for env in envs}
    if len(kinds) > 1:
        name = getattr(envs[0].unwrapped, "name", "The environment")
        raise UserError(f"{name} has other observations or actions each time it is made; its games must be alike.")


def describe(game: GameOptions, wrappers: str, fewest: int = 1) -> str:
    """Return one line that says how the game is presented; a game starts with one of --noop-max numbers of no-ops, of
    which the first is `fewest`.
    """
    if games.registered_id(game.name) is not None:
        limit = "no limit but its own" if game.max_frames is None else f"at most {game.max_frames} steps a game"
        return f"{game.name}: {wrappers}, {limit}"
    custom = games.is_custom(game.name)
    name = game.name if custom else games.gymnasium_id(games.rom_of(game.name))
    if wrappers in get_args(Wrappers):
        wrappers = "84x84 frames" if custom else f"{wrappers} wrappers"
    parts = [
        *([] if game.protocol is None else [f"protocol {game.protocol}"]),
        f"{wrappers} of the whole picture in gray" if custom else wrappers,
        *(["the playing area alone"] if game.crop else []),
        f"frame skip {game.frame_skip}",
        f"no-ops {f'{fewest}-{fewest + game.noop_max - 1}' if game.noop_max else 'none'}",
        f"stack {game.frame_stack}",
        f"lost life ends an episode: {_yes(game.episodic_life)}",
        f"rewards clipped to their sign: {_yes(game.clip_rewards)}",
        f"FIRE after a reset: {_yes(game.fire_reset)}",
    ]
    if not custom:
        parts += [f"sticky actions {game.sticky_actions:g}", f"all 18 actions: {_yes(game.full_action_set)}"]
    unlimited = "no frame limit but its own" if custom else "no frame limit"
    parts.append(unlimited if game.max_frames is None else f"at most {game.max_frames} frames a game")
    return f"{name}: " + ", ".join(parts)


def _wrapped(env: classic.FrameEnv, game: GameOptions, own_side: int | None = None) -> PlayEnv:
    """Return `env` in the classic wrappers; `own_side` is that of the frames of an environment of one's own."""
    fire = game.fire_reset and classic.waits_for_fire(env)
    env = classic.ScoreKeeper(env)
    if game.episodic_life:
        env = classic.EpisodicLife(env)
    env = classic.NoopReset(env, game.noop_max)
    if own_side is None or game.frame_skip > 1:  # the maximum of two screens is for Atari, where sprites flicker
        env = classic.MaxAndSkip(env, game.frame_skip)
    if fire:
        env = classic.FireReset(env)
    env = classic.ChannelFirst(classic.ProcessFrame84(env)) if own_side is None else WholePicture(env, own_side)
    env = classic.FrameStack(env, game.frame_stack)
    if game.clip_rewards:
        env = classic.SignReward(env)
    return env


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _check_emulator(name: str, game: GameOptions) -> None:
    """Refuse settings of Atari's emulator."""
    asked = {"sticky_actions": game.sticky_actions > 0, "full_action_set": game.full_action_set, "crop": game.crop}
    for flag in (flag_of(GameOptions, field) for field, given in asked.items() if given):
        raise UserError(f"{flag} is a setting of Atari's emulator, which {name} does not have.")


def _check_as_it_is(name: str, game: GameOptions) -> None:
    """Refuse what changes how pictures are presented where vectors are shown."""
    for field, as_it_is in {**OWN_GAME, "frame_stack": GameOptions.frame_stack}.items():
        if field != "max_frames" and getattr(game, field) != as_it_is:
            raise UserError(f"{flag_of(GameOptions, field)} is for games that show pictures, and {name} shows vectors.")
    _check_emulator(name, game)


def _check_asked(env: OwnEnv, game: GameOptions) -> None:
    """Refuse what is off by default and cannot be had in an environment of one's own."""
    _check_emulator(env.name, game)
    if game.noop_max > 0 and env.meanings and env.meanings[0] != "NOOP":
        raise UserError(
            f"--noop-max plays action 0 as the one that does nothing, which {env.name} calls {env.meanings[0]!r}."
        )
    if game.fire_reset and not classic.waits_for_fire(env):
        raise UserError(
            f"--fire-reset presses action 1, which get_action_meanings() must call FIRE, and then action 2; "
            f"{env.name} does not have them."
        )
    if game.episodic_life and "lives" not in env.reset()[1]:
        raise UserError(
            f'--episodic-life reads the number of lives from info["lives"], which {env.name} does not have.'
        )
