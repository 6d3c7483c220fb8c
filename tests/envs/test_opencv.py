"""The OpenCV wrappers against gymnasium's own and against the classic ones."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import cv2
import numpy as np
import pytest

from fastdqn.envs import classic
from fastdqn.envs.build import bare_env, build_env
from fastdqn.envs.frames import playing_area
from fastdqn.envs.opencv import OpenCVAtari
from fastdqn.options.game import GameOptions
from tests.helpers import toys
from tests.helpers.games import PLAIN, preprocessed

PONG = GameOptions(name="pong")
CROPPED = GameOptions(name="pong", crop=True)


class RawScreens:
    """The classic stack without picture processing: MaxAndSkip's RGB screens, raw rewards."""

    def __init__(self, game: GameOptions) -> None:
        env = bare_env(game)
        fire = "FIRE" in env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        env = classic.MaxAndSkip(classic.NoopReset(classic.EpisodicLife(env), game.noop_max), game.frame_skip)
        self.wrapped = classic.FireReset(env) if fire else env


OTHERS = [pytest.param(game, marks=pytest.mark.slow) for game in ("space_invaders", "qbert")]
"""Games whose tests take as long as those of two others."""


@pytest.mark.parametrize("wrappers", ["classic", "opencv"])
def test_opencv_has_no_threads_of_its_own(wrappers: Any) -> None:
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(4)
        build_env(PONG, wrappers)
        assert cv2.getNumThreads() <= 1
    finally:
        cv2.setNumThreads(before)


@pytest.mark.parametrize("game", ["pong", "breakout", *OTHERS])
def test_opencv_equals_gymnasium_atari_preprocessing(game: str) -> None:
    """Same rewards and ends; frames within rounding.

    Gymnasium takes its maximum in RGB too when it is asked for colour, and resizes before we turn to gray; asked for
    gray, it takes the maximum of two gray screens, which differs where two colours overlap.
    """
    ours = build_env(dataclasses.replace(PLAIN, name=game), "opencv")
    theirs = preprocessed(game, noop_max=0, grayscale_obs=False)
    rng = np.random.default_rng(3)
    obs_a, _ = ours.reset(seed=11)
    obs_b, _ = theirs.reset(seed=11)
    ends = worst = 0
    for _ in range(1000):
        gray = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in obs_b])
        worst = max(worst, np.abs(np.asarray(obs_a).astype(int) - gray).max())
        action = int(rng.integers(ours.action_space.n))
        obs_a, reward_a, terminated_a, truncated_a, _ = ours.step(action)
        obs_b, reward_b, terminated_b, truncated_b, _ = theirs.step(action)
        assert (reward_a, terminated_a, truncated_a) == (reward_b, terminated_b, truncated_b)
        if terminated_a:
            ends += 1
            obs_a, _ = ours.reset()
            obs_b, _ = theirs.reset()
    assert worst <= 2
    assert ends > 0 or game in ("pong",)


@pytest.mark.parametrize(
    ("name", "max_frames"),
    [
        ("pong", 1_003),
        ("breakout", 108_000),
        *(
            pytest.param(*both, marks=pytest.mark.slow)
            for both in (
                *(("pong", 108_000), ("breakout", 1_003)),
                *itertools.product(("space_invaders", "qbert"), (108_000, 1_003)),
            )
        ),
    ],
)
def test_classic_and_opencv_play_the_same_game_and_differ_only_in_the_picture(name: str, max_frames: int) -> None:
    game = GameOptions(name=name, max_frames=max_frames)
    old, new = build_env(game, "classic"), build_env(game, "opencv")
    bare = RawScreens(game)
    rng = np.random.default_rng(1)
    old_obs, _ = old.reset(seed=2)
    new_obs, _ = new.reset(seed=2)
    bare.wrapped.reset(seed=2)
    ended, truncations = 0, 0
    for _ in range(1200):
        action = int(rng.integers(old.action_space.n))
        old_obs, *old_rest, _ = old.step(action)
        new_obs, *new_rest, _ = new.step(action)
        screen, *bare_rest, _ = bare.wrapped.step(action)
        assert old_rest == new_rest == [float(np.sign(bare_rest[0])), *bare_rest[1:]]
        _, terminated, truncated = old_rest
        if not terminated:
            gray = cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY)
            assert (new_obs.frames[-1][0] == cv2.resize(gray, (84, 84), interpolation=cv2.INTER_AREA)).all()
            luminance = screen.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
            area = cv2.resize(luminance, (84, 110), interpolation=cv2.INTER_AREA)[18:102]
            assert np.abs(old_obs.frames[-1][0] - area).max() < 1.01
        if terminated or truncated:
            ended += 1
            truncations += truncated
            old_obs, _ = old.reset()
            new_obs, _ = new.reset()
            bare.wrapped.reset()
        old_ends, new_ends = old.get_wrapper_attr("pop_finished")(), new.get_wrapper_attr("pop_finished")()
        assert old_ends == new_ends
    assert ended > 0 or max_frames > 1100
    assert truncations > 0 or max_frames > 1100 or name != "pong"


@pytest.mark.parametrize("name", ["pong", "breakout", "seaquest"])
def test_cropped_frames_are_the_classic_ones_to_rounding(name: str) -> None:
    game = GameOptions(name=name, episodic_life=False)
    old, new = build_env(game, "classic"), build_env(dataclasses.replace(game, crop=True), "opencv")
    rng = np.random.default_rng(1)
    seen = [(old.reset(seed=2)[0], new.reset(seed=2)[0])]
    for _ in range(200):
        action = int(rng.integers(old.action_space.n))
        seen.append((old.step(action)[0], new.step(action)[0]))
    for old_obs, new_obs in seen:
        differ = np.abs(np.asarray(old_obs).astype(int) - np.asarray(new_obs))
        assert differ.max() <= 2  # the one rounds the gray, the other the sums
    assert len(np.unique(np.stack([np.asarray(obs) for _, obs in seen]))) > 5


def test_the_playing_area_of_other_sizes() -> None:
    """At 64x64 it has as many rows as it has in the whole screen at 84x84, and they are the same but for the width."""
    assert playing_area(84) == (110, slice(18, 102))
    assert playing_area(64) == (84, slice(14, 78))
    for side in range(36, 211):
        height, rows = playing_area(side)
        assert rows.stop - rows.start == side
        assert 0 < rows.start < rows.stop < height
        assert abs(rows.start / height - 18 / 110) < 0.01
    whole, part = (OpenCVAtari(bare_env(game), game, side) for game, side in ((PONG, 84), (CROPPED, 64)))
    shown, seen = whole.reset(seed=3)[0], part.reset(seed=3)[0]
    assert part.observation_space.shape == np.asarray(seen).shape == (4, 64, 64)
    ours, theirs = np.asarray(seen)[-1].astype(int), np.asarray(shown)[-1][14:78].astype(int)
    assert np.abs(ours.mean(axis=1) - theirs.mean(axis=1)).max() < 1.5


def test_opencv_frame_skip_one_still_shows_the_max_of_two() -> None:
    game = dataclasses.replace(PLAIN, frame_skip=1)
    old, new = classic.MaxAndSkip(toys.Counter(), 1), OpenCVAtari(toys.Counter(), game)
    old.reset(seed=0)
    new.reset(seed=0)
    for _ in range(30):
        a, b = old.step(0)[0], new.step(0)[0].frames[-1]
        assert toys.frame_number(cv2.resize(a[:, :, 0], (84, 84))) == toys.frame_number(b)


def test_opencv_writes_each_frame_into_memory_of_its_own() -> None:
    env = build_env(PONG, "opencv")
    env.reset(seed=0)
    frames = [env.step(3)[0].frames[-1] for _ in range(20)]
    copies = [frame.copy() for frame in frames]
    for _ in range(50):
        env.step(2)
    assert all((a == b).all() for a, b in zip(frames, copies, strict=True))
    assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(frames))


def test_opencv_refuses_actions_out_of_range() -> None:
    env = build_env(PONG, "opencv")
    env.reset(seed=0)
    for action in (-1, 6):
        with pytest.raises(ValueError, match="action"):
            env.step(action)
