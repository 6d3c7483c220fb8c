"""The wrappers, against hand-made frames, against gymnasium's own, and against each other."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from fastdqn.config import Protocol
from fastdqn.envs import classic, games
from fastdqn.envs.make import bare_env, describe, make_env
from fastdqn.envs.opencv import OpenCVAtari
from fastdqn.errors import UserError
from tests import toys

PROTOCOL = Protocol()
PLAIN = Protocol(noop_max=0, episodic_life=False, fire_reset=False, clip_rewards=False)


class Scripted(gymnasium.Env[Any, Any]):
    """Plays a fixed list of (screen value, reward, terminated, truncated, lives); notes actions and resets."""

    def __init__(self, script: list[tuple[int, float, bool, bool, int]], meanings: tuple[str, ...] = ("NOOP", "UP")):
        self.script, self.meanings = script, meanings
        self.at = 0
        self.actions: list[int] = []
        self.resets = 0
        self.action_space = Discrete(len(meanings))
        self.observation_space = Box(0, 255, (210, 160, 3), np.uint8)

    def get_action_meanings(self) -> list[str]:
        return list(self.meanings)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets += 1
        return np.zeros((210, 160, 3), np.uint8), {"lives": 3}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        value, reward, terminated, truncated, lives = self.script[self.at]
        self.at += 1
        self.actions.append(int(action))
        return np.full((210, 160, 3), value, np.uint8), reward, terminated, truncated, {"lives": lives}


def steps(*values: int, lives: int = 3, reward: float = 0.0) -> list[tuple[int, float, bool, bool, int]]:
    return [(value, reward, False, False, lives) for value in values]


# The classic wrappers on frames made by hand


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
    assert raw.resets == 1  # the game goes on
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


def test_the_crop_drops_the_rows_that_spec_names() -> None:
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
    assert first.shape == np.asarray(first).shape == (4, 84, 84)
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


# On real games, against gymnasium and against each other


def preprocessed(game: str, **options: Any) -> Any:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(games.gymnasium_id(games.rom_of(game)))
    return FrameStackObservation(AtariPreprocessing(env, **options), 4)


@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders", "qbert"])
def test_opencv_equals_gymnasium_atari_preprocessing(game: str) -> None:
    """Same rewards and ends; frames within rounding.

    Gymnasium takes its maximum in RGB too when it is asked for colour, and resizes before we turn to gray; asked for
    gray, it takes the maximum of two gray screens, which differs where two colours overlap.
    """
    ours = make_env(game, PLAIN, "opencv")
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


@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders", "qbert"])
def test_noops_and_the_classic_env_follow_gymnasium(game: str) -> None:
    """With no-ops on, both draw the same number of them from the same seed and so play the same game."""
    ours = make_env(game, dataclasses.replace(PLAIN, noop_max=30), "classic")
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


@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders", "qbert"])
@pytest.mark.parametrize("max_frames", [108_000, 1_003])
def test_classic_and_opencv_play_the_same_game_and_differ_only_in_the_picture(game: str, max_frames: int) -> None:
    protocol = Protocol(max_frames=max_frames)
    old, new = make_env(game, protocol, "classic"), make_env(game, protocol, "opencv")
    bare = RawScreens(game, protocol)
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
    assert truncations > 0 or max_frames > 1100 or game != "pong"


class RawScreens:
    """The classic stack without picture processing: MaxAndSkip's RGB screens, raw rewards."""

    def __init__(self, game: str, protocol: Protocol) -> None:
        env = bare_env(game, protocol)
        fire = "FIRE" in env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        env = classic.MaxAndSkip(classic.NoopReset(classic.EpisodicLife(env), protocol.noop_max), protocol.frame_skip)
        self.wrapped = classic.FireReset(env) if fire else env


def test_our_bare_env_is_gymnasiums_noframeskip() -> None:
    gymnasium.register_envs(ale_py)
    ours, theirs = bare_env("pong", PROTOCOL), gymnasium.make("PongNoFrameskip-v4")
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
    env = make_env("breakout", PROTOCOL, wrappers)
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
    protocol = Protocol(max_frames=403, noop_max=0, fire_reset=False)
    for wrappers in ("classic", "opencv"):
        env = make_env("pong", protocol, wrappers)  # type: ignore[arg-type]
        reference = bare_env("pong", dataclasses.replace(protocol, max_frames=108_000))
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


def test_opencv_frame_skip_one_still_shows_the_max_of_two() -> None:
    protocol = dataclasses.replace(PLAIN, frame_skip=1)
    old, new = make_env("tests.toys:Counter", protocol, "classic"), make_env("tests.toys:Counter", protocol, "opencv")
    old.reset(seed=0)
    new.reset(seed=0)
    for _ in range(30):
        a, b = old.step(0)[0].frames[-1], new.step(0)[0].frames[-1]
        assert toys.frame_number(a) == toys.frame_number(b)


def test_opencv_writes_each_frame_into_memory_of_its_own() -> None:
    env = make_env("pong", PROTOCOL, "opencv")
    env.reset(seed=0)
    frames = [env.step(3)[0].frames[-1] for _ in range(20)]
    copies = [frame.copy() for frame in frames]
    for _ in range(50):
        env.step(2)
    assert all((a == b).all() for a, b in zip(frames, copies, strict=True))
    assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(frames))


def test_opencv_refuses_actions_out_of_range_and_envs_without_emulator() -> None:
    env = make_env("pong", PROTOCOL, "opencv")
    env.reset(seed=0)
    for action in (-1, 6):
        with pytest.raises(ValueError, match="action"):
            env.step(action)
    with pytest.raises(UserError, match="emulator"):
        OpenCVAtari(Scripted([]), PROTOCOL)


def test_full_action_set_and_sticky_actions_reach_the_emulator() -> None:
    for wrappers in ("classic", "opencv"):
        env = make_env("pong", Protocol(full_action_set=True, sticky_actions=0.25), wrappers)  # type: ignore[arg-type]
        assert env.action_space.n == 18
        assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0.25
        env.reset(seed=0)
        env.step(17)


def test_every_setting_of_the_protocol_is_described() -> None:
    text = describe("pong", PROTOCOL, "classic")
    for word in ("PongNoFrameskip-v4", "frame skip 4", "no-ops 1-30", "stack 4", "sticky actions 0", "108000"):
        assert word in text
    changes = {f.name: 3 if f.type in ("int", "float") else not f.default for f in dataclasses.fields(PROTOCOL)}
    for name, value in changes.items():
        changed = dataclasses.replace(PROTOCOL, **{name: value})  # type: ignore[arg-type]
        assert describe("pong", changed, "classic") != text, name


def test_every_game_that_ale_py_ships_can_be_played() -> None:
    for rom in games.rom_names():
        protocol = Protocol(noop_max=0)
        env = make_env(rom, protocol, "opencv")
        env.reset()
        obs, *_ = env.step(env.action_space.n - 1)
        assert np.asarray(obs).shape == (4, 84, 84)


def test_a_custom_env_that_cannot_be_loaded_is_one_sentence() -> None:
    for path in ("tests.nowhere:Catch", "tests.toys:Nothing", "math:sqrt2", "math:pi", ":", "math:"):
        with pytest.raises(UserError, match="cannot be loaded"):
            bare_env(path, PROTOCOL)
