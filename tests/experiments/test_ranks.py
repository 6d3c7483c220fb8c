"""Scripts over ranks: alone they are what they are without; what two learn (slow)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import safetensors.torch
import torch

from fastdqn.networks.actor_critic import actor_critic
from tests.helpers import forks
from tests.helpers.scripts import CATCH, command, fastdqn, only_run, records, summary, train

SAC = ("--game", "Pendulum-v1", "--batch-size", "8", "--replay-initial", "20", "--max-env-steps", "230")


def trained(script: str, folder: Path, *words: str, timeout: float = 290.0) -> Path:
    """Run a script over ranks, and so in processes of its own, to its end."""
    done = forks.run(command(script, folder, *words), timeout=timeout)
    assert done.returncode == 0, done.stderr
    return only_run(folder)


def learnt(run: Path) -> tuple[bytes, list[Any]]:
    """What must repeat: the weights, and the games."""
    games = [
        {name: value for name, value in one.items() if name != "elapsed"} for one in records(run, "episodes.jsonl")
    ]
    return (run / "weights.safetensors").read_bytes(), games


def test_one_process_is_the_script_without_ranks(tmp_path: Path) -> None:
    alone = learnt(train("42_sac_ranks", tmp_path / "42", *SAC, "--processes", "1", "--threads", "1"))
    assert alone == learnt(train("31_sac", tmp_path / "31", *SAC, "--threads", "1"))
    assert len(alone[1]) == 1


@pytest.mark.slow
def test_two_ranks_of_dqn_play_and_learn_catch(tmp_path: Path) -> None:
    words = (*CATCH, "--processes", "2", "--threads", "1", "--num-envs", "4", "--max-env-steps", "3000", "--profile")
    run = trained("09_cuda_graph", tmp_path, *words)
    said, last = summary(run), records(run, "speed.jsonl")[-1]
    assert said["env_steps"] >= 3_000
    due = len(range(400, said["env_steps"] + 1, 8))  # one for four env steps of each rank
    assert due - 2 <= said["updates"] <= due  # those of the last round are not made any more
    assert last["samples"] == said["updates"] * 2 * 8 * 4
    assert said["mean_100"] > -0.5
    assert 0.0 < said["profile"]["waiting for other ranks (within these)"] < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("bound", [("--target-kl", "0.001"), ()])
def test_two_ranks_end_the_epochs_of_a_rollout_together(tmp_path: Path, bound: tuple[str, ...]) -> None:
    """By the mean of their divergences: if one went on alone, it would wait until --rank-timeout, and the run fail.

    The control has no bound, and makes all updates.
    """
    words = ("--game", "CartPole-v1", "--num-envs", "2", "--rollout-steps", "32", "--batch-size", "16", "--epochs", "8")
    ranks = ("--processes", "2", "--rank-timeout", "10", "--threads", "1", "--log-seconds", "0.2")
    run = trained("41_ppo_ranks", tmp_path, *words, *ranks, *bound, "--max-env-steps", "1500", timeout=120)
    said = summary(run)
    played = -(-said["env_steps"] // (2 * 2 * 32))  # rollouts; the games that begin anew make them a little smaller
    made = said["updates"] / (played * 8 * 4)
    assert (0.05 < made < 0.8) if bound else (0.8 < made <= 1.1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_ranks_learn_to_balance_the_pole(tmp_path: Path) -> None:
    """PPO with the published settings: 20 games, played as Stable-Baselines3 does, by the likelier action."""
    words = ("--game", "CartPole-v1", "--published", "--processes", "2", "--threads", "1")
    run = trained("41_ppo_ranks", tmp_path, *words, timeout=880)
    network = actor_critic((4,), 2, torch.Generator())
    network.load_state_dict(safetensors.torch.load_file(run / "weights.safetensors"))
    env = gymnasium.make("CartPole-v1")
    scores: list[float] = []
    for seed in range(20):
        obs, over, score = env.reset(seed=1000 + seed)[0], False, 0.0
        while not over:
            with torch.no_grad():
                action = int(network(torch.from_numpy(obs).unsqueeze(0))[0].argmax())
            obs, reward, terminated, truncated, _ = env.step(action)
            over, score = terminated or truncated, score + float(reward)
        scores.append(score)
    assert sum(scores) / len(scores) >= 400


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_ranks_learn_to_swing_up(tmp_path: Path) -> None:
    """SAC with the published settings."""
    run = trained("42_sac_ranks", tmp_path, "--published", "--processes", "2", "--threads", "1", timeout=3500)
    done = fastdqn("evaluate", str(run), "--games", "20")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "evaluation-training.json").read_text())["mean"] >= -250
