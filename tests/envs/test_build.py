"""Environments as they are played: whole games, truncation, and what the options of a game reach."""

from __future__ import annotations

import dataclasses
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from fastdqn.envs import classic, games
from fastdqn.envs.build import bare_env, build_env, describe
from fastdqn.options.game import GameOptions

PONG = GameOptions(name="pong")


def test_our_bare_env_is_gymnasiums_noframeskip() -> None:
    gymnasium.register_envs(ale_py)
    ours, theirs = bare_env(PONG), gymnasium.make("PongNoFrameskip-v4")
    obs_a, _ = ours.reset(seed=1)
    obs_b, _ = theirs.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(300):
        assert (obs_a == obs_b).all()
        action = int(rng.integers(6))
        (obs_a, *rest_a), (obs_b, *rest_b) = ours.step(action), theirs.step(action)
        assert rest_a == rest_b


@pytest.mark.parametrize("wrappers", ["classic", "opencv"])
def test_scores_are_of_whole_games_over_all_lives(wrappers: Any) -> None:
    """Breakout: learning episodes end with each of 5 lives, scores come once a game and are not clipped."""
    env = build_env(GameOptions(name="breakout"), wrappers)
    finished, learning_ends, clipped, game_ends_seen = [], 0, 0.0, 0
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    while len(finished) < 3:
        _, reward, terminated, truncated, _ = env.step(int(rng.integers(4)))
        clipped += reward
        assert reward in (-1.0, 0.0, 1.0)
        if terminated or truncated:
            learning_ends += 1
            env.reset()
        new = env.get_wrapper_attr("pop_finished")()
        game_ends_seen += len(new)
        finished += new
    assert learning_ends == 15
    assert sum(end.score for end in finished) >= clipped > 0
    assert all(end.frames > 100 and not end.truncated for end in finished)


def test_truncation_keeps_the_true_last_observation_and_is_no_termination() -> None:
    game = GameOptions(name="pong", max_frames=403, noop_max=0, fire_reset=False)
    for wrappers in ("classic", "opencv"):
        env = build_env(game, wrappers)  # type: ignore[arg-type]
        reference = bare_env(dataclasses.replace(game, max_frames=108_000))
        env.reset(seed=0)
        reference.reset(seed=0)
        last: list[np.ndarray] = []
        truncated = False
        env_steps = 0
        while not truncated:
            obs, _, terminated, truncated, _ = env.step(0)
            assert not terminated
            env_steps += 1
        for _ in range(403):
            last = [*last[-1:], reference.step(0)[0]]
        assert env_steps == 101  # 100 whole skips, then 3 frames of the last
        screen = np.maximum(*last)
        if wrappers == "opencv":
            expected = cv2.resize(cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)
            assert (obs.frames[-1][0] == expected).all()
        else:
            assert (obs.frames[-1] == classic.ProcessFrame84(reference).observation(screen)[:, :, 0]).all()
        (end,) = env.get_wrapper_attr("pop_finished")()
        assert (end.frames, end.truncated) == (403, True)


def test_full_action_set_and_sticky_actions_reach_the_emulator() -> None:
    for wrappers in ("classic", "opencv"):
        game = GameOptions(name="pong", full_action_set=True, sticky_actions=0.25)
        env = build_env(game, wrappers)  # type: ignore[arg-type]
        assert env.action_space.n == 18
        assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0.25
        env.reset(seed=0)
        env.step(17)


def test_every_setting_of_the_game_is_described() -> None:
    text = describe(PONG, "classic")
    for word in ("PongNoFrameskip-v4", "frame skip 4", "no-ops 1-30", "stack 4", "sticky actions 0", "108000"):
        assert word in text
    changes = {f.name: 3 if f.type in ("int", "float") else not f.default for f in dataclasses.fields(PONG)}
    changes["name"] = "breakout"
    for name, value in changes.items():
        changed = dataclasses.replace(PONG, **{name: value})  # type: ignore[arg-type]
        assert describe(changed, "classic") != text, name


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_every_game_that_ale_py_ships_can_be_played(every: int) -> None:
    for rom in games.rom_names()[::every]:
        env = build_env(GameOptions(name=rom, noop_max=0), "opencv")
        env.reset()
        obs, *_ = env.step(env.action_space.n - 1)
        assert np.asarray(obs).shape == (4, 84, 84)
