"""Many games at once: the adapter against the emulator, and what it must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from fastdqn.envs import vector
from fastdqn.envs.many import describe_games
from fastdqn.envs.vector import AtariVector, check_num_envs, distinct_seeds
from fastdqn.errors import RunError, UserError
from fastdqn.options.game import GameOptions

GAME = GameOptions()
SEED = np.random.SeedSequence(5)


def test_scores_are_raw_and_of_whole_games() -> None:
    """Rewards are clipped for the learner; the score adds up the raw ones, over all lives, and the resets between."""
    adapter = AtariVector("space_invaders", GameOptions(max_frames=3000), 3, SEED, threads=1)
    plain = AtariVectorEnv(
        "space_invaders", 3, stack_num=1, reward_clipping=False, life_loss_info=True, max_num_frames_per_episode=3000
    )
    rng = np.random.default_rng(0)
    adapter.reset()
    plain.reset(seed=adapter.seeds)
    scores, running, over, ended, lost = [], np.zeros(3), np.zeros(3, bool), [], 0
    for _ in range(1200):
        actions = rng.integers(6, size=3)
        adapter.send(actions)
        step = adapter.recv()
        _, reward, terminated, truncated, info = plain.step(actions)
        np.testing.assert_array_equal(step.reset, over)
        np.testing.assert_array_equal(step.reward, np.sign(reward))
        scores += running[over].tolist()
        ended += step.episodes
        running = np.where(over, 0, running) + reward
        over = (terminated & (info["lives"] == 0)) | truncated
        lost += int((terminated & ~over).sum())
        assert not (step.terminated | step.truncated)[step.reset].any()
    assert lost > 3
    assert [episode.score for episode in ended] == scores
    assert len(scores) >= 3
    assert max(scores) > 20  # raw: an invader is worth 5 to 30
    assert all(0 < episode.frames <= 3000 for episode in ended)


def test_a_lost_life_ends_the_episode_but_not_the_game() -> None:
    kept = AtariVector("breakout", GAME, 1, SEED, threads=1)
    whole = AtariVector("breakout", GameOptions(episodic_life=False), 1, SEED, threads=1)
    rng = np.random.default_rng(1)
    ends = {kept: 0, whole: 0}
    resets = {kept: 0, whole: 0}
    for env in (kept, whole):
        env.reset()
    for _ in range(400):
        action = rng.integers(4, size=1)
        for env in (kept, whole):
            env.send(action)
            step = env.recv()
            ends[env] += int(step.terminated[0])
            resets[env] += int(step.reset[0])
    assert resets[kept] == resets[whole] > 0
    assert ends[whole] == resets[whole]
    assert ends[kept] >= 5 * resets[kept]  # five lives


def test_the_frame_limit_truncates() -> None:
    env = AtariVector("pong", GameOptions(max_frames=400, noop_max=0), 2, SEED, threads=1)
    env.reset()
    truncated, episodes = 0, []
    for _ in range(250):
        env.send(np.zeros(2, np.int64))
        step = env.recv()
        truncated += int(step.truncated.sum())
        assert not step.terminated.any()
        episodes += step.episodes
    assert truncated == len(episodes) >= 4
    assert all(episode.truncated and 400 <= episode.frames <= 401 for episode in episodes)  # 401 with the reset's own


def test_an_emulator_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    env = AtariVector("pong", GAME, 2, SEED, threads=1)
    env.reset()
    env.send(np.zeros(2, np.int64))

    def broken() -> None:
        raise RuntimeError("no more frames")

    monkeypatch.setattr(env.env, "recv", broken)
    with pytest.raises(RunError, match=r"^An emulator failed: no more frames\.$"):
        env.recv()


@pytest.mark.parametrize("actions", [[6, 0], [-1, 0], [0]])
def test_an_action_out_of_range_raises_instead_of_blocking(actions: list[int]) -> None:
    env = AtariVector("pong", GAME, 2, SEED, threads=1)
    env.reset()
    with pytest.raises(ValueError, match="actions must be 2 numbers"):
        env.send(np.array(actions))


def test_every_game_has_a_seed_of_its_own() -> None:
    """seed + rank would let neighbouring runs share games."""
    seeds = {root: set(distinct_seeds(np.random.SeedSequence(root), 100).tolist()) for root in (1, 2)}
    assert all(len(values) == 100 for values in seeds.values())
    assert not seeds[1] & seeds[2]
    env = AtariVector("pong", GAME, 8, SEED, threads=2)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        env.send(np.full(8, rng.integers(6)))
        frames = env.recv().frames
    assert len({frame.tobytes() for frame in frames}) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_plays_the_same_whatever_the_threads(threads: int) -> None:
    a = AtariVector("breakout", GameOptions(sticky_actions=0.25), 3, SEED, threads=1)
    b = AtariVector("breakout", GameOptions(sticky_actions=0.25), 3, SEED, threads=threads)
    np.testing.assert_array_equal(a.reset(), b.reset())
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.integers(4, size=3)
        for env in (a, b):
            env.send(actions)
        left, right = a.recv(), b.recv()
        np.testing.assert_array_equal(left.frames, right.frames)
        np.testing.assert_array_equal(left.reward, right.reward)


def test_options_of_the_game_reach_the_emulator() -> None:
    assert AtariVector("pong", GameOptions(full_action_set=True), 1, SEED, 1).num_actions == 18
    assert AtariVector("breakout", GAME, 1, SEED, 1).num_actions == 4
    env = AtariVector("pong", GameOptions(frame_skip=2, frame_stack=3), 1, SEED, 1)
    assert env.obs_shape == (3, 84, 84)
    env.reset()
    frames = []
    for _ in range(3):
        env.send(np.zeros(1, np.int64))
        env.recv()
        frames.append(int(env._length[0]))
    assert np.diff(frames).tolist() == [2, 2]
    line = describe_games(env, GameOptions(name="pong", frame_skip=2))
    assert line.startswith("PongNoFrameskip-v4: one game, 84x84 frames, frame skip 2")


@pytest.mark.parametrize(("side", "height", "first"), [(84, 110, 18), (64, 84, 14)])
@pytest.mark.parametrize("name", ["pong", "breakout", "seaquest"])
def test_the_playing_area_is_rows_of_the_whole_screen(name: str, side: int, height: int, first: int) -> None:
    game = GameOptions(name=name, crop=True)
    ours = AtariVector(name, game, 2, SEED, 2, side)
    whole = AtariVectorEnv(
        name,
        2,
        img_height=height,
        img_width=side,
        stack_num=1,
        frameskip=4,
        noop_max=30,
        use_fire_reset=True,
        life_loss_info=True,
        reward_clipping=False,
        repeat_action_probability=0.0,
    )
    rows = slice(first, first + side)
    frames, _ = whole.reset(seed=ours.seeds)
    np.testing.assert_array_equal(ours.reset(), frames[:, 0, rows])
    assert ours.obs_shape == (4, side, side)
    for action in np.random.default_rng(0).integers(ours.num_actions, size=(60, 2)):
        ours.send(action)
        step = ours.recv()
        frames = whole.step(action)[0]
        np.testing.assert_array_equal(step.frames, frames[:, 0, rows])
        np.testing.assert_array_equal(ours.newest, step.frames)
    assert f"{side}x{side} frames, the playing area alone" in describe_games(ours, game)


def test_more_games_than_memory_are_refused() -> None:
    with pytest.raises(UserError, match=r"--num-envs 66 would fit"):
        check_num_envs(100, available_bytes=100_000_000)
    with pytest.raises(UserError, match=r"--num-envs 16 would fit"):  # for each of four players
        check_num_envs(100, available_bytes=100_000_000, among=4)
    with pytest.raises(UserError, match=r"; not even one would fit\.$"):
        check_num_envs(1, available_bytes=1_000_000)


def test_no_ops_are_as_many_as_the_start_says() -> None:
    """ale-py draws from 0 to one less than it is told."""
    envs = AtariVectorEnv("pong", 2, noop_max=3, use_fire_reset=False)
    drawn = {int(frames) for seed in range(12) for frames in envs.reset(seed=2 * seed)[1]["frame_number"]}
    assert drawn == {0, 1, 2}
    game = GameOptions(noop_max=3)
    assert ", no-ops 0-2, " in describe_games(AtariVector("pong", game, 1, SEED, threads=1), game)
    assert ", no-ops none, " in describe_games(AtariVector("pong", game, 1, SEED, threads=1), GameOptions(noop_max=0))


def test_sticky_actions_are_the_emulators() -> None:
    ours = AtariVector("breakout", GameOptions(sticky_actions=0.25), 2, SEED, threads=1)
    plain = AtariVectorEnv(
        *("breakout", 2),
        stack_num=1,
        noop_max=30,
        use_fire_reset=True,
        repeat_action_probability=0.25,
        life_loss_info=True,
        reward_clipping=False,
    )
    frames, _ = plain.reset(seed=ours.seeds)
    np.testing.assert_array_equal(ours.reset(), frames[:, 0])
    for actions in np.random.default_rng(0).integers(4, size=(100, 2)):
        ours.send(actions)
        np.testing.assert_array_equal(ours.recv().frames, plain.step(actions)[0][:, 0])


def test_a_game_starts_as_the_options_say() -> None:
    env = AtariVector("pong", GameOptions(noop_max=0, fire_reset=False), 8, SEED, threads=1)
    env.reset()
    assert env._length.tolist() == [0] * 8  # frames since each game began


def test_a_reset_drops_what_is_in_flight() -> None:
    """Else each later step would be the one before it."""
    stopped, plain = (AtariVector("pong", GAME, 2, SEED, threads=1) for _ in range(2))
    stopped.reset()
    stopped.send(np.zeros(2, np.int64))
    np.testing.assert_array_equal(stopped.reset(), plain.reset())
    for action in (2, 3, 2, 2, 3):
        for env in (stopped, plain):
            env.send(np.full(2, action))
        np.testing.assert_array_equal(stopped.recv().frames, plain.recv().frames)


def test_to_receive_what_nobody_sent_raises_instead_of_blocking() -> None:
    env = AtariVector("pong", GAME, 1, SEED, threads=1)
    env.reset()
    with pytest.raises(ValueError, match="no actions have been sent"):
        env.recv()
    with pytest.raises(ValueError, match="at least one game"):
        AtariVector("pong", GAME, 0, SEED, threads=1)


def test_games_that_are_too_long_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their actions would fill the memory of a run whose games never end. They begin anew; the others do not."""
    monkeypatch.setattr(vector, "LONGEST", 100)
    made = [AtariVector("breakout", GameOptions(max_frames=700), 2, SEED, threads=1) for _ in range(2)]
    there, here = made
    there.reset()
    most, begun = 0, 0
    for row in range(500):
        there.send(np.array([0, row % 4]))  # the first waits for its ball, the second plays
        begun = row if there.recv().reset[0] else begun
        most = max(most, len(there._sent))
        if row == begun + 120:
            state = there.state()
            break
    assert most <= 101
    assert state["anew"].tolist() == [True, False]
    assert here.load(state).tolist() == [True, False]
    there.send(np.array([0, 1]))
    here.send(np.array([0, 1]))
    shown, again = there.recv(), here.recv()
    np.testing.assert_array_equal(shown.frames[1], again.frames[1])
    assert again.reset.tolist() == [True, False]
    assert here.state()["anew"].tolist() == [False, False]


@pytest.mark.parametrize(("threads", "asked"), [(1, 1), (3, 3), (9, 4)])
def test_the_emulators_have_as_many_threads_as_they_are_given(
    threads: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to itself the emulator takes one for each core, in each player, rank and half."""
    told: list[int] = []

    class Told(AtariVectorEnv):
        def __init__(self, *args: Any, num_threads: int = 0, **options: Any) -> None:
            told.append(num_threads)
            super().__init__(*args, num_threads=num_threads, **options)

    monkeypatch.setattr(vector, "AtariVectorEnv", Told)
    AtariVector("pong", GAME, 4, SEED, threads=threads).reset()
    assert told == [asked]
