"""The house has room: a second algorithm and a second way to carry updates out live in it without a change to it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch

from fastdqn import build
from fastdqn.algorithms.dqn import PROGRESS
from fastdqn.algorithms.exploration import epsilons_at
from fastdqn.cli.scripts import parse
from fastdqn.envs.build import build_env, spaces_of
from fastdqn.errors import UserError
from fastdqn.options.dqn import DQNOptions, PaceOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.run import RunOptions
from fastdqn.runs.run import Run
from fastdqn.tools.labels import grouped
from fastdqn.tools.plot import draw_curves
from fastdqn.tools.reading import read_run
from tests.helpers import reinforce as reinforce_module
from tests.helpers import scripts
from tests.helpers.averaged import Averaged
from tests.helpers.learners import learner_of, random_batch
from tests.helpers.reinforce import Reinforce, ReinforceOptions
from tests.helpers.scripts import AS_ATARI, ROOT, TOY_CATCH, only_run, records, summary

SCRIPT = ROOT / "tests" / "helpers" / "reinforce.py"


TOY = ("--game", TOY_CATCH, *AS_ATARI, "--threads", "1", "--log-seconds", "0.2")


def reinforce(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_second_algorithm_trains_resumes_and_is_drawn(tmp_path: Path) -> None:
    said = reinforce(*TOY, "--runs-dir", str(tmp_path / "whole"), "--max-env-steps", "1500")
    whole = only_run(tmp_path / "whole")
    weights = [safetensors.numpy.load_file(whole / "weights.safetensors")]
    updates = summary(whole)["updates"]
    reinforce(*TOY, "--runs-dir", str(tmp_path / "parts"), "--max-env-steps", "753")
    parts = only_run(tmp_path / "parts")
    assert "resumed at env step 753" in reinforce(
        "--resume", str(parts), "--game", TOY_CATCH, "--max-env-steps", "1500"
    )
    weights.append(safetensors.numpy.load_file(parts / "weights.safetensors"))
    assert {k: v.tobytes() for k, v in weights[0].items()} == {k: v.tobytes() for k, v in weights[1].items()}
    assert summary(parts)["updates"] == updates > 30
    groups = grouped([read_run(whole), read_run(parts)])
    assert {game: list(labels) for game, labels in groups.items()} == {TOY_CATCH: ["reinforce"]}
    draw_curves(groups, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").exists()
    assert "| entropy 1." in said  # its own progress line, and nothing of DQN's
    assert "epsilon" not in said
    last = records(whole, "speed.jsonl")[-1]
    assert {"loss_policy", "entropy"} <= set(last)
    assert not {"loss", "mean_q", "epsilon"} & set(last)


@pytest.mark.slow
def test_a_second_algorithm_learns(tmp_path: Path) -> None:
    reinforce(*TOY, "--runs-dir", str(tmp_path), "--max-env-steps", "7000")
    run = only_run(tmp_path)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[:100]) / 100 < -0.3
    assert sum(scores[-100:]) / 100 > 0.3
    assert records(run, "speed.jsonl")[-1]["entropy"] < 1.0


def test_a_script_of_ones_own_plays_environments_with_vectors() -> None:
    """Unless it learns by deep Q-learning, whose networks here take pictures."""
    found = parse(reinforce_module.Options, "", ["--game", "cartpole-v1"], script="reinforce")
    assert spaces_of(build_env(found.game)) == ((4,), 2)
    with pytest.raises(UserError, match="agents that learn the values of actions learn from pictures here"):
        scripts.parse("09_cuda_graph", "--game", "CartPole-v1")


def test_its_steps_of_a_game_that_is_lost_go() -> None:
    """They would get the return of the game that begins in its place."""
    agent = Reinforce(ReinforceOptions(), 3, 0)
    for discount in (0.99, 0.0, 0.99, 0.99):
        agent.add(SimpleNamespace(obs=np.zeros((4, 84, 84), np.uint8), action=0, reward=1.0, discount=discount))
    agent.discard(np.array([False]))
    assert [step[3] for step in agent.steps] == [0.99, 0.0, 0.99, 0.99]
    agent.discard(np.array([True]))
    assert [step[3] for step in agent.steps] == [0.99, 0.0]


@dataclass(frozen=True)
class Options:
    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions


def test_a_second_execution_learns_the_same() -> None:
    """The mean over a batch is the mean of the means over its halves; half of a batch alone is not."""
    plain, halves, one_half = (learner_of("double") for _ in range(3))
    batch = random_batch(16)
    averaged = Averaged(halves).update(batch)
    metrics = plain.update(batch)
    one_half.update(type(batch)._make(None if tensor is None else tensor[:8] for tensor in batch))
    assert averaged.scalars["loss"].item() == pytest.approx(metrics.scalars["loss"].item(), rel=1e-5)
    torch.testing.assert_close(averaged.priority, metrics.priority, rtol=1e-4, atol=1e-5)
    for a, b in zip(plain.network.parameters(), halves.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)
    assert any(
        (a - b).abs().max() > 1e-4
        for a, b in zip(plain.network.parameters(), one_half.network.parameters(), strict=True)
    )


def test_a_second_execution_runs_dqn(tmp_path: Path) -> None:
    words = ["--game", TOY_CATCH, *AS_ATARI, "--runs-dir", str(tmp_path), "--num-envs", "4", "--replay-initial", "40"]
    words += ["--max-env-steps", "120", "--batch-size", "2", "--target-sync", "20"]
    options = parse(Options, "", words)
    dqn, steps = options.dqn, options.pace.steps
    device, games, learner, replay, policy, _, _, notes = build.games_on_device(
        options.run, options.game, dqn, options.pace, options.vector
    )
    executed = Averaged(learner)
    with Run("averaged", options, device, "vector", notes, PROGRESS) as run:
        replay.reset(games.reset())
        run.track(learner=learner, games=games, replay=replay, policy=policy)
        while not run.over():
            epsilon = epsilons_at(run.env_steps, games.num_envs, dqn)
            actions = policy.act(epsilon)
            games.send(actions)
            step = games.recv()
            replay.add(actions, step)
            run.played_vector(step, epsilon=epsilon[-1])
            for _ in run.due(steps, dqn.replay_initial):
                run.updated(executed.update(replay.sample(2 * steps)).scalars, 2 * steps)
    result = summary(only_run(tmp_path))
    assert result["updates"] == 21
    assert result["reason"] == "max-env-steps"
