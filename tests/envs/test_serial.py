"""Games played one after the other, against one environment that is reset by hand."""

from __future__ import annotations

import numpy as np

from fastdqn.envs.build import build_env
from fastdqn.envs.in_flight import InFlight
from fastdqn.envs.serial import SerialVector
from fastdqn.options.game import GameOptions
from fastdqn.seeds import game_seed

SEED = np.random.SeedSequence(5)


def test_serial_games_are_the_single_ones_step_by_step() -> None:
    """SerialVector against one OpenCV environment, reset by hand: frames, rewards, ends and scores."""
    breakout = GameOptions(name="breakout")
    vector = SerialVector([build_env(breakout, "opencv")], SEED)
    single = build_env(breakout, "opencv")
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


def test_actions_in_flight_are_those_that_were_sent() -> None:
    games = InFlight((SerialVector([build_env(GameOptions(), "opencv")], SEED),))
    games.reset()
    actions = np.array([2])
    games.send(actions)
    actions[:] = 3
    assert games.came().actions.tolist() == [2]
