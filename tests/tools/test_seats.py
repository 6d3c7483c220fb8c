"""Seats: what an agent is shown in an evaluation."""

from __future__ import annotations

import numpy as np
import torch

from fastdqn.envs.build import build_env
from fastdqn.envs.vector import distinct_seeds
from fastdqn.seeds import game_seed
from fastdqn.tools.evaluate import load_agent
from fastdqn.tools.seats import View, WrappedSeats
from tests.helpers.own import Dots, game_of
from tests.helpers.trained import TrainedRuns


def test_what_an_agent_observes_is_what_its_run_observed(runs: TrainedRuns) -> None:
    """06 and later: zeros before a game's first frame; 01 to 05: copies of it, and 01's frames are the cropped ones."""
    newest = range(1, 9)
    stacks = [np.stack([np.full((2, 2), max(1, v - 3 + i), np.uint8) for i in range(4)]) for v in newest]
    blank, plain = View(True), View(False)
    shown = [blank.first(stacks[0]), *(blank.next(stack) for stack in stacks[1:])]
    assert [frame[0, 0] for frame in shown[0]] == [0, 0, 0, 1]
    assert [frame[0, 0] for frame in shown[1]] == [0, 0, 1, 2]
    assert [frame[0, 0] for frame in shown[5]] == [3, 4, 5, 6]
    assert [frame[0, 0] for frame in plain.first(stacks[0])] == [1, 1, 1, 1]
    agent = load_agent(runs["01"], torch.device("cpu"))
    seats = WrappedSeats(agent.options.game, agent.wrappers, 84, 1, 5)
    env = build_env(agent.options.game, "classic")
    first = np.asarray(env.reset(seed=int(distinct_seeds(np.random.SeedSequence(5), 1)[0]))[0])
    np.testing.assert_array_equal(seats.reset()[0].numpy(), first)
    for action in (1, 2, 3, 0, 2):
        obs, *_ = env.step(action)
        np.testing.assert_array_equal(seats.step(np.array([action]))[0][0].numpy(), np.asarray(obs))


def test_each_whole_game_of_ones_own_has_a_seed() -> None:
    """Without one, environments that begin alike would show the same game again and again."""
    made: list[Dots] = []

    def make() -> Dots:
        made.append(Dots())
        return made[-1]

    seats = WrappedSeats(game_of(make), None, 84, 2, 5)
    seats.reset()
    for _ in range(45):
        seats.step(np.array([1, 2]))
    seeds = [seed for env in made for seed in env.seeds]
    assert [len(env.seeds) for env in made] == [3, 3]
    assert len(set(seeds)) == 6
    assert None not in seeds
    assert [game_seed(made[0].seeds[0] or 0, game) for game in range(3)] == made[0].seeds
