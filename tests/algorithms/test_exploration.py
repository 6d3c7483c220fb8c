"""Exploration: how often what is played, and which transitions come of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastdqn.algorithms.exploration import (
    EpsilonGreedy,
    Player,
    VectorEpsilonGreedy,
    actions_for,
    epsilon_at,
    epsilons_at,
)
from fastdqn.envs.build import build_env
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.game import GameOptions
from fastdqn.replay.nstep import NStep
from fastdqn.types import LazyFrames


def policy_of(net: object, seed: int = 0) -> EpsilonGreedy:
    return EpsilonGreedy(net, 6, torch.device("cpu"), np.random.default_rng(seed))  # type: ignore[arg-type]


def test_epsilon_greedy_frequencies_and_greedy_choice() -> None:
    calls = []

    def third_is_best(obs: torch.Tensor) -> torch.Tensor:
        calls.append(tuple(obs.shape))
        return torch.tensor([[0.0, 1.0, 5.0, 2.0, 3.0, 4.0]])

    policy = policy_of(third_is_best)
    obs = np.zeros((4, 84, 84), np.uint8)
    assert {policy.act(obs, 0.0) for _ in range(20)} == {2}
    assert set(calls) == {(1, 4, 84, 84)}
    counts = np.bincount([policy.act(obs, 0.3) for _ in range(20_000)], minlength=6)
    assert counts[2] / 20_000 == pytest.approx(0.7 + 0.05, abs=0.015)
    assert np.delete(counts, 2) / 20_000 == pytest.approx(np.full(5, 0.05), abs=0.01)
    assert {policy.act(obs, 1.0) for _ in range(200)} == set(range(6))


def test_player_yields_consecutive_transitions_and_resets_after_ends() -> None:
    """With a Counter each transition tells where it comes from: no gap, no transition over an end."""
    game = GameOptions(name="tests.helpers.toys:Counter", noop_max=0, clip_rewards=False, fire_reset=False)
    player = Player(build_env(game, "classic"), policy_of(lambda obs: torch.zeros(1, 6)), NStep(1, 0.9), seed=0)
    episodes, previous = 0, None
    for _ in range(120):
        (transition,), ends = player.step(0.0)
        assert isinstance(transition.obs, LazyFrames)
        episodes += len(ends)
        if previous is not None and previous.discount > 0:
            assert transition.obs is previous.next_obs
        elif previous is not None:
            assert transition.obs is not previous.next_obs
            assert len({id(f) for f in transition.obs.frames}) == 1
        assert transition.discount in (0.0, 0.9)
        previous = transition
    assert episodes == 12  # 37 frames, cut into 3 lives: 3 + 3 + 4 env steps and two no-ops between them


def test_a_truncated_episode_bootstraps() -> None:
    game = GameOptions(name="pong", noop_max=0, fire_reset=False, max_frames=41)
    player = Player(build_env(game, "opencv"), policy_of(lambda obs: torch.zeros(1, 6)), NStep(1, 0.9), seed=0)
    played = [player.step(1.0) for _ in range(33)]
    assert [p.episodes[0].truncated for p in played if p.episodes] == [True, True, True]
    assert {t.discount for p in played for t in p.transitions} == {0.9}
    at_end = [i for i, p in enumerate(played) if p.episodes]
    assert at_end == [10, 21, 32]
    assert played[11].transitions[0].obs is not played[10].transitions[0].next_obs


# Many games at once


def test_epsilon_of_each_env_step_is_the_schedules() -> None:
    dqn = DQNOptions(epsilon_decay=100, epsilon_final=0.1)
    expected = [epsilon_at(step, dqn) for step in range(51, 59)]
    assert epsilons_at(50, 8, dqn).tolist() == expected


def test_vector_policy_explores_as_often_as_epsilon_says() -> None:
    policy = VectorEpsilonGreedy(lambda: np.full(4, 7), 6, np.random.default_rng(0))
    epsilon = np.array([0.0, 1.0, 0.5, 0.1])
    drawn = np.stack([policy.act(epsilon) for _ in range(3000)])
    greedy = (drawn == 7).mean(axis=0)
    assert greedy[0] == 1.0
    assert greedy[1] == 0.0
    np.testing.assert_allclose(greedy, 1 - epsilon, atol=0.04)
    counts = np.bincount(drawn[:, 1], minlength=6)
    assert counts.min() > 0.8 * 3000 / 6


def test_actions_are_those_that_the_network_chooses() -> None:
    values = torch.tensor([[0.0, 1.0, 0.5], [3.0, 1.0, 2.0]])
    actions = actions_for(lambda obs: values[: len(obs)].argmax(dim=1), torch.zeros(2, 4, 84, 84))
    assert (actions.tolist(), actions.dtype) == ([1, 0], np.int64)
