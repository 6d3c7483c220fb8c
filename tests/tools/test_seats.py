"""Seats: what an agent is shown in an evaluation."""

from __future__ import annotations

import numpy as np
import torch

from fastdqn.envs.build import build_env
from fastdqn.envs.vector import distinct_seeds
from fastdqn.tools.evaluate import load_agent
from fastdqn.tools.seats import View, WrappedSeats
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
