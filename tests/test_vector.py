"""Many games at once: the adapter against the emulator, and what it must not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv

from fastdqn.acting import GameStacks, VectorEpsilonGreedy, epsilon_at, epsilons_at, greedy_actions
from fastdqn.config import DQNOptions, FastOptions, Protocol, VectorOptions, check
from fastdqn.device import env_threads_of, num_envs_of
from fastdqn.envs.make import make_env
from fastdqn.envs.vector import (
    AtariVector,
    SerialVector,
    check_num_envs,
    describe_games,
    distinct_seeds,
    make_vector_env,
)
from fastdqn.errors import RunError, UserError
from fastdqn.schedules import target_sync_due, updates_due
from fastdqn.seeding import game_seed
from fastdqn.types import Observation

SEED = np.random.SeedSequence(5)


def test_scores_are_raw_and_of_whole_games() -> None:
    """Rewards are clipped for the learner; the score adds up the raw ones, over all lives, and the resets between."""
    adapter = AtariVector("space_invaders", Protocol(max_frames=3000), 3, SEED, threads=1)
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
    kept = AtariVector("breakout", Protocol(), 1, SEED, threads=1)
    whole = AtariVector("breakout", Protocol(episodic_life=False), 1, SEED, threads=1)
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
    env = AtariVector("pong", Protocol(max_frames=400, noop_max=0), 2, SEED, threads=1)
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
    env = AtariVector("pong", Protocol(), 2, SEED, threads=1)
    env.reset()

    def broken() -> None:
        raise RuntimeError("no more frames")

    monkeypatch.setattr(env.env, "recv", broken)
    with pytest.raises(RunError, match=r"^An emulator failed: no more frames\.$"):
        env.recv()


@pytest.mark.parametrize("actions", [[6, 0], [-1, 0], [0]])
def test_an_action_out_of_range_raises_instead_of_blocking(actions: list[int]) -> None:
    env = AtariVector("pong", Protocol(), 2, SEED, threads=1)
    env.reset()
    with pytest.raises(ValueError, match="actions must be 2 numbers"):
        env.send(np.array(actions))


def test_every_game_has_a_seed_of_its_own() -> None:
    """seed + rank would let neighbouring runs share games."""
    seeds = {root: set(distinct_seeds(np.random.SeedSequence(root), 100).tolist()) for root in (1, 2)}
    assert all(len(values) == 100 for values in seeds.values())
    assert not seeds[1] & seeds[2]
    env = AtariVector("pong", Protocol(), 8, SEED, threads=2)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        env.send(np.full(8, rng.integers(6)))
        frames = env.recv().frames
    assert len({frame.tobytes() for frame in frames}) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_plays_the_same_whatever_the_threads(threads: int) -> None:
    a = AtariVector("breakout", Protocol(sticky_actions=0.25), 3, SEED, threads=1)
    b = AtariVector("breakout", Protocol(sticky_actions=0.25), 3, SEED, threads=threads)
    np.testing.assert_array_equal(a.reset(), b.reset())
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.integers(4, size=3)
        for env in (a, b):
            env.send(actions)
        left, right = a.recv(), b.recv()
        np.testing.assert_array_equal(left.frames, right.frames)
        np.testing.assert_array_equal(left.reward, right.reward)


def test_protocol_reaches_the_emulator() -> None:
    assert AtariVector("pong", Protocol(full_action_set=True), 1, SEED, 1).num_actions == 18
    assert AtariVector("breakout", Protocol(), 1, SEED, 1).num_actions == 4
    env = AtariVector("pong", Protocol(frame_skip=2, frame_stack=3), 1, SEED, 1)
    assert env.obs_shape == (3, 84, 84)
    env.reset()
    frames = []
    for _ in range(3):
        env.send(np.zeros(1, np.int64))
        env.recv()
        frames.append(int(env._length[0]))
    assert np.diff(frames).tolist() == [2, 2]
    line = describe_games(env, "pong", Protocol(frame_skip=2))
    assert line.startswith("PongNoFrameskip-v4: 1 games at once in 1 emulator threads, 84x84 frames, frame skip 2")


def test_serial_games_are_the_single_ones_step_by_step() -> None:
    """SerialVector against one OpenCV environment, reset by hand: frames, rewards, ends and scores."""
    vector = SerialVector([make_env("breakout", Protocol(), "opencv")], SEED)
    single = make_env("breakout", Protocol(), "opencv")
    obs, _ = single.reset(seed=int(vector.seeds[0]))
    np.testing.assert_array_equal(vector.reset()[0], np.asarray(obs)[-1])
    rng = np.random.default_rng(0)
    over, scores, ours = False, [], []
    ended = 0
    for _ in range(500):
        action = int(rng.integers(4))
        vector.send(np.array([action]))
        step = vector.recv()
        ours += [episode.score for episode in step.episodes]
        assert step.reset[0] == over
        if over:
            whole = len(scores) > ended  # a game that is over, not a lost life: the next one has a seed of its own
            ended = len(scores)
            obs, _ = single.reset(seed=game_seed(int(vector.seeds[0]), ended) if whole else None)
            over = False
        else:
            obs, reward, terminated, truncated, _ = single.step(action)
            assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
            over = terminated or truncated
        scores += [episode.score for episode in single.get_wrapper_attr("pop_finished")()]
        np.testing.assert_array_equal(step.frames[0], np.asarray(obs)[-1])
    assert ours == scores
    assert len(scores) >= 1


def test_every_transition_once_and_in_order() -> None:
    """The counting game, whose reward is the sum of its frames' numbers: no env step is lost, doubled or swapped."""
    games = make_vector_env("tests.toys:Counter", Protocol(clip_rewards=False), 3, SEED, 1)
    stacks = GameStacks(games.reset(), 4, 1, 0.99)
    rng = np.random.default_rng(0)
    rewards: list[list[float]] = [[] for _ in range(3)]
    before: list[Observation | None] = [None] * 3
    for _ in range(60):
        actions = rng.integers(4, size=3)
        games.send(actions)
        step = games.recv()
        transitions = iter(stacks.add(actions, step))
        for i in range(3):
            if step.reset[i]:
                before[i] = None
                continue
            transition = next(transitions)
            assert transition.action == actions[i]
            assert transition.reward == step.reward[i]
            assert before[i] is None or transition.obs is before[i]
            before[i] = transition.next_obs
            rewards[i].append(transition.reward)
        assert next(transitions, None) is None
    for game in rewards:
        assert len(game) > 30
        assert max(game[-5:]) > max(game[:5])  # later frames have larger numbers; a lost life cuts a sum short


# Acting


def test_epsilon_of_each_env_step_is_the_schedules() -> None:
    dqn = DQNOptions(epsilon_decay=100, epsilon_final=0.1)
    expected = [epsilon_at(step, dqn) for step in range(51, 59)]
    assert epsilons_at(50, 8, dqn).tolist() == expected


def test_vector_policy_explores_as_often_as_epsilon_says() -> None:
    policy = VectorEpsilonGreedy(lambda: np.full(4, 7), 4, 6, np.random.default_rng(0))
    epsilon = np.array([0.0, 1.0, 0.5, 0.1])
    drawn = np.stack([policy.act(epsilon) for _ in range(3000)])
    greedy = (drawn == 7).mean(axis=0)
    assert greedy[0] == 1.0
    assert greedy[1] == 0.0
    np.testing.assert_allclose(greedy, 1 - epsilon, atol=0.04)
    counts = np.bincount(drawn[:, 1], minlength=6)
    assert counts.min() > 0.8 * 3000 / 6


def test_greedy_actions_are_the_argmax() -> None:
    values = torch.tensor([[0.0, 1.0, 0.5], [3.0, 1.0, 2.0]])
    actions = greedy_actions(lambda obs: values[: len(obs)].argmax(dim=1), torch.zeros(2, 4, 84, 84))
    assert (actions.tolist(), actions.dtype) == ([1, 0], np.int64)


# Schedules and options


@pytest.mark.parametrize("num_envs", [1, 3, 8, 50])
@pytest.mark.parametrize("steps", [1, 4, 32])
def test_updates_fall_due_where_one_env_step_at_a_time_has_them(num_envs: int, steps: int) -> None:
    """02 updates at the multiples of N from replay_initial on, and copies the target where one of N is due."""
    plain = [step for step in range(1, 1001) if step % steps == 0 and step >= 90]
    ours: list[int] = []
    played = 0
    while played < 1000:
        now = min(played + num_envs, 1000)
        ours += updates_due(played, now, steps, 90)
        played = now
    assert ours == plain
    syncs = [step for step in ours if target_sync_due(step, 100, steps)]
    assert len(syncs) == (10 if steps < 32 else 9)  # the first update of 32 comes at env step 96, just before 100


def test_how_many_games_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastdqn import startup

    for cores, games, threads in ((2, 8, 2), (1, 8, 1), (16, 64, 16), (100, 128, 100)):
        monkeypatch.setattr(startup, "cores", lambda cores=cores: cores)
        assert (num_envs_of(VectorOptions()), env_threads_of(VectorOptions())) == (games, threads)
    assert env_threads_of(VectorOptions(num_envs=3, env_threads=9)) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VectorOptions(num_envs=0), "--num-envs must be at least 1"),
        (VectorOptions(env_threads=0), "--env-threads must be at least 1"),
        (FastOptions(frame_scale=0.0), "--frame-scale must be a number above 0"),
        (FastOptions(final_learning_rate=0.0), "--final-learning-rate must be more than 0"),
        (FastOptions(learning_rate_decay=0), "--learning-rate-decay must be at least 1"),
    ],
)
def test_impossible_options_are_one_sentence(options: VectorOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(options)


def test_more_games_than_memory_are_refused() -> None:
    with pytest.raises(UserError, match=r"--num-envs 66 would fit"):
        check_num_envs(100, available_bytes=100_000_000)
    with pytest.raises(UserError, match="games at once need"):
        make_vector_env("pong", Protocol(), 10_000_000, SEED, 1)
