"""The classic wrappers: on frames made by hand, and against gymnasium's own."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import cv2
import numpy as np
import pytest

from fastdqn.envs import classic
from fastdqn.envs.build import build_env
from tests.helpers.games import PLAIN, Scripted, preprocessed, steps


def test_max_and_skip_repeats_the_action_sums_rewards_and_shows_the_max_of_the_last_two() -> None:
    raw = Scripted([(9, 1.0, False, False, 0), (200, 2.0, False, False, 0), *steps(30, 20, reward=0.5)])
    env = classic.MaxAndSkip(raw, 4)
    env.reset()
    obs, reward, *_ = env.step(1)
    assert raw.actions == [1, 1, 1, 1]
    assert reward == 4.0
    assert obs.dtype == np.uint8
    assert (obs == 30).all()  # max(30, 20), not 200, which is older


def test_max_is_taken_pixel_by_pixel() -> None:
    class Halves(Scripted):
        def step(self, action: int) -> Any:
            obs, *rest = super().step(action)
            obs[:] = 0
            obs[:, : 80 if self.at % 2 else 160] = 100 + self.at
            return (obs, *rest)

    env = classic.MaxAndSkip(Halves(steps(0, 0)), 2)
    env.reset()
    obs = env.step(0)[0]
    assert (obs == 102).all()
    env = classic.MaxAndSkip(Halves(steps(0, 0, 0)), 3)
    env.reset()
    obs = env.step(0)[0]
    assert (obs[:, :80] == 103).all()
    assert (obs[:, 80:] == 102).all()


def test_max_and_skip_stops_at_the_end_and_forgets_the_old_game() -> None:
    raw = Scripted([*steps(50), (60, 1.0, True, False, 0), (1, 0.0, True, False, 0)])
    env = classic.MaxAndSkip(raw, 4)
    env.reset()
    obs, reward, terminated, *_ = env.step(0)
    assert terminated
    assert reward == 1.0
    assert len(raw.actions) == 2
    assert (obs == 60).all()
    env.reset()
    assert (env.step(0)[0] == 1).all()


def test_episodic_life_ends_the_episode_but_resets_the_game_only_when_it_is_over() -> None:
    raw = Scripted([*steps(1, lives=3), *steps(2, lives=2), *steps(3, 4, lives=2), (5, 0.0, True, False, 0)])
    env = classic.EpisodicLife(raw)
    env.reset(seed=0)
    assert not env.step(1)[2]
    assert env.step(1)[2]  # a life was lost
    obs, _ = env.reset()
    assert raw.resets == 1  # the game continues
    assert raw.actions[-1] == 0  # with one no-op
    assert (obs == 3).all()
    assert not env.step(1)[2]
    assert env.step(1)[2]  # the game is over
    env.reset()
    assert raw.resets == 2


def test_a_gained_life_is_no_end() -> None:
    env = classic.EpisodicLife(Scripted([*steps(1, lives=4), *steps(1, lives=3)]))
    env.reset(seed=0)
    assert not env.step(0)[2]
    assert env.step(0)[2]


def test_truncation_inside_episodic_life_resets_the_game() -> None:
    raw = Scripted([(1, 0.0, False, True, 3), *steps(1)])
    env = classic.EpisodicLife(raw)
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    env.reset()
    assert raw.resets == 2


def test_noop_reset_plays_1_to_30_noops_and_each_count_occurs() -> None:
    raw = Scripted(steps(*[0] * 20_000))
    env = classic.NoopReset(raw, 30)
    counts = set()
    for i in range(600):
        before = raw.at
        env.reset(seed=7 if i == 0 else None)
        counts.add(raw.at - before)
    assert counts == set(range(1, 31))
    assert set(raw.actions) == {0}


def test_fire_reset_presses_fire_then_the_second_action_and_survives_an_end_in_between() -> None:
    raw = Scripted(steps(1, 2), ("NOOP", "FIRE", "RIGHT"))
    obs, _ = classic.FireReset(raw).reset()
    assert raw.actions == [1, 2]
    assert (obs == 2).all()
    raw = Scripted([*steps(1), (2, 0.0, True, False, 0)], ("NOOP", "FIRE", "RIGHT"))
    obs, _ = classic.FireReset(raw).reset()
    assert raw.resets == 2
    assert (obs == 0).all()


def test_process_frame_is_the_crop_of_the_luminance_and_channel_first_moves_the_axis() -> None:
    rng = np.random.default_rng(0)
    screen = rng.integers(0, 256, (210, 160, 3), dtype=np.uint8)
    wrapper = classic.ProcessFrame84(Scripted([]))
    frame = wrapper.observation(screen)
    assert frame.shape == (84, 84, 1)
    assert frame.dtype == np.uint8
    luminance = (screen.astype(np.float32) * np.array([0.299, 0.587, 0.114], np.float32)).sum(axis=2)
    area = cv2.resize(luminance, (84, 110), interpolation=cv2.INTER_AREA)
    assert np.abs(frame[:, :, 0].astype(float) - np.floor(area[18:102])).max() <= 1
    assert wrapper.observation(np.full((210, 160, 3), 255, np.uint8)).min() >= 254
    moved = classic.ChannelFirst(wrapper).observation(frame)
    assert moved.shape == (1, 84, 84)
    assert (moved[0] == frame[:, :, 0]).all()


def test_the_crop_drops_rows_at_the_top_and_at_the_bottom() -> None:
    """A white line in screen row y lands in row y * 110 / 210 - 18 of the frame; what falls outside is not seen."""
    wrapper = classic.ProcessFrame84(Scripted([]))
    for row, visible in ((5, False), (30, False), (40, True), (190, True), (200, False)):
        screen = np.zeros((210, 160, 3), np.uint8)
        screen[row : row + 2] = 255
        frame = wrapper.observation(screen)
        assert (frame.max() > 0) == visible, row
        if visible:
            assert abs(int(frame[:, 0, 0].argmax()) - (row * 110 / 210 - 18)) <= 1.5


def test_frame_stack_is_lazy_shares_frames_and_repeats_the_first() -> None:
    env = classic.FrameStack(classic.ChannelFirst(classic.ProcessFrame84(Scripted(steps(*range(10, 200, 10))))), 4)
    first, _ = env.reset()
    assert np.asarray(first).shape == (4, 84, 84)
    assert all(frame is first.frames[0] for frame in first.frames)
    stacks = [first] + [env.step(0)[0] for _ in range(6)]
    for older, newer in itertools.pairwise(stacks):
        assert all(a is b for a, b in zip(older.frames[1:], newer.frames[:-1], strict=True))
    expected = [int(np.float32(v) * 0.299 + np.float32(v) * 0.587 + np.float32(v) * 0.114) for v in (30, 40, 50, 60)]
    assert np.abs(np.asarray(stacks[-1])[:, 0, 0].astype(int) - expected).max() <= 1  # the oldest first
    assert not np.shares_memory(np.asarray(first), first.frames[0])  # the array is the reader's own


def test_sign_reward_and_score_keeper_clip_what_is_learnt_and_keep_what_is_counted() -> None:
    raw = Scripted(
        [(0, 7.0, False, False, 2), (0, -3.0, False, False, 1), (0, 0.0, False, False, 1), (0, 5.0, True, False, 0)]
    )
    keeper = classic.ScoreKeeper(raw)
    env = classic.SignReward(classic.EpisodicLife(keeper))
    env.reset(seed=0)
    rewards = [env.step(0)[1]]
    env._game_over = False
    rewards += [env.step(0)[1] for _ in range(3)]
    assert rewards == [1.0, -1.0, 0.0, 1.0]
    (end,) = keeper.pop_finished()
    assert (end.score, end.frames, end.truncated) == (9.0, 4, False)
    assert keeper.pop_finished() == ()


@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders", "qbert"])
def test_noops_and_the_classic_env_follow_gymnasium(game: str) -> None:
    """With no-ops on, both draw the same number of them from the same seed and so play the same game."""
    ours = build_env(dataclasses.replace(PLAIN, name=game, noop_max=30), "classic")
    theirs = preprocessed(game, noop_max=30)
    rng = np.random.default_rng(5)
    ours.reset(seed=4)
    theirs.reset(seed=4)
    score = 0.0
    for _ in range(600):
        action = int(rng.integers(ours.action_space.n))
        a, b = ours.step(action), theirs.step(action)
        assert a[1:4] == b[1:4]
        score += abs(a[1])
        if a[2]:
            ours.reset()
            theirs.reset()
    assert score > 0
