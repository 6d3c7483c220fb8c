"""Stacks and transitions of many games, for a list replay."""

from __future__ import annotations

import numpy as np

from fastdqn.envs.many import build_vector_env
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.replay.stacks import GameStacks
from fastdqn.types import Observation

SEED = np.random.SeedSequence(5)


def test_every_transition_once_and_in_order() -> None:
    """The counting game, whose reward is the sum of its frames' numbers: no env step is lost, doubled or swapped."""
    counter = GameOptions(name="tests.helpers.toys:Counter", clip_rewards=False, fire_reset=False)
    games = build_vector_env(counter, VectorOptions(num_envs=3, env_threads=1), SEED)
    stacks = GameStacks(3, (84, 84), 4, 1, 0.99)
    stacks.reset(games.reset())
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
