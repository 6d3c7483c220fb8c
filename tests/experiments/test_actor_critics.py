"""20, 21 and 22: what is the same in one process and in several, resuming, and CartPole."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from fastdqn.cli.evaluate import Evaluate
from fastdqn.cli.evaluate import evaluate as evaluate_runs
from fastdqn.tools.evaluate import load_agent
from tests.helpers.control import Reach, registered
from tests.helpers.outcomes import learnt
from tests.helpers.resuming import resume
from tests.helpers.scripts import CREWS, fastdqn_says, records, summary, train

CART = ("--game", "CartPole-v1", "--threads", "1", "--num-envs", "3", "--checkpoint-minutes", "None")
SMALL = (*CART, "--batch-size", "8", "--n-step", "3")
PIECES = (*SMALL, "--pieces", "2")
WAITING = (*PIECES, "--synchronous", "--players", "1")
SUMS = (*SMALL, "--gradients", "2", "--synchronous")


def arrays_of(run: Path) -> dict[str, Any]:
    return safetensors.numpy.load_file(run / "weights.safetensors")


def test_20_repeats_and_one_player_that_waits_is_20(tmp_path: Path) -> None:
    words = ("--max-env-steps", "500")
    first = learnt(train("20_a2c", tmp_path / "a", *PIECES, *words))
    assert first == learnt(train("20_a2c", tmp_path / "b", *PIECES, *words))
    assert first == learnt(train("21_a3c_data", tmp_path / "c", *WAITING, *words))
    assert len(first[1]) > 15
    assert first[2]["updates"] >= 30
    assert {"advantage", "values", "batch_rewards", "loss_entropy", "loss_policy", "loss_value", "loss_total"} <= set(
        first[2]
    )
    other = learnt(train("20_a2c", tmp_path / "d", *PIECES, *words, "--seed", "1"))
    assert other[0] != first[0]


def test_one_player_that_sends_single_gradients_is_20_but_for_rounding(tmp_path: Path) -> None:
    words = ("--max-env-steps", "200")
    one = train("20_a2c", tmp_path / "a", *SMALL, "--pieces", "1", *words)
    other = train("22_a3c_grad", tmp_path / "b", *SMALL, "--gradients", "1", "--synchronous", "--players", "1", *words)
    assert summary(one)["updates"] == summary(other)["updates"] >= 20
    for name, array in arrays_of(one).items():
        np.testing.assert_allclose(arrays_of(other)[name], array, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("21_a3c_data", (*PIECES, "--synchronous", "--players", "2"), marks=pytest.mark.slow),
        pytest.param("22_a3c_grad", (*SUMS, "--players", "2"), marks=pytest.mark.slow),
        pytest.param("22_a3c_grad", (*SUMS, "--players", "1"), marks=pytest.mark.slow),
    ],
)
def test_players_that_wait_repeat_and_resume_bit_for_bit(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    """2N env steps are N, a stop, and N more: weights, games and metrics, whatever the players' clocks."""
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", "400")
    half = train(script, tmp_path / "half", *words, "--max-env-steps", "200")
    assert summary(half)["env_steps"] < 250
    assert "the games continue where they were" in resume(script, half, "--max-env-steps", "400")
    assert learnt(whole) == learnt(half)


@pytest.mark.parametrize(
    "words",
    [
        PIECES,
        pytest.param(
            (
                *("--game", "breakout", "--threads", "1", "--num-envs", "2", "--env-threads", "1", "--batch-size", "9"),
                *("--pieces", "2", "--max-frames", "400"),
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_20_resumes_bit_for_bit(tmp_path: Path, words: tuple[str, ...]) -> None:
    whole = train("20_a2c", tmp_path / "whole", *words, "--max-env-steps", "300")
    half = train("20_a2c", tmp_path / "half", *words, "--max-env-steps", "150")
    assert summary(half)["env_steps"] < 200
    assert "the games continue where they were" in resume("20_a2c", half, "--max-env-steps", "300")
    assert learnt(whole) == learnt(half)


def test_41_repeats_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    words = (*CART, "--rollout-steps", "16", "--batch-size", "20", "--epochs", "2", "--learning-rate-decay", "400")
    whole = train("41_ppo_ranks", tmp_path / "whole", *words, "--max-env-steps", "400")
    assert learnt(whole) == learnt(train("41_ppo_ranks", tmp_path / "b", *words, "--max-env-steps", "400"))
    half = train("41_ppo_ranks", tmp_path / "half", *words, "--max-env-steps", "200")
    assert summary(half)["env_steps"] < 250
    assert "the games continue where they were" in resume("41_ppo_ranks", half, "--max-env-steps", "400")
    assert learnt(whole) == learnt(half)
    assert summary(whole)["samples"] == 2 * summary(whole)["env_steps"]
    done = fastdqn_says("evaluate", str(half), "--games", "2")
    assert "2 games, " in done.stdout, done.stderr


def test_41_learns_vectors_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Actions are clipped to the bounds for the environment alone; what looks at runs knows such an agent."""
    words = ("--game", "Reach-v0", "--num-envs", "2", "--rollout-steps", "8", "--batch-size", "7", "--epochs", "2")
    words = (*words, "--threads", "1", "--learning-rate-decay", "300", "--checkpoint-minutes", "None")
    with registered(Reach=(Reach, {"high": 3.0})):
        whole = train("41_ppo_ranks", tmp_path / "whole", *words, "--max-env-steps", "300")
        half = train("41_ppo_ranks", tmp_path / "half", *words, "--max-env-steps", "150")
        assert "the games continue where they were" in resume("41_ppo_ranks", half, "--max-env-steps", "300")
        assert evaluate_runs(Evaluate(runs=(half,), episodes=2)) == 0
        first: Any = load_agent(half, torch.device("cpu"), untrained=True).learner.network
    assert learnt(whole) == learnt(half)
    trained = arrays_of(whole)["policy.log_std"]
    assert trained.shape == (1,)
    assert trained != 0.0 == first.policy.log_std.item()  # initial weights are not what was trained
    assert not any(bool(one.any()) for name, one in first.named_parameters() if name.endswith("bias"))  # orthogonal
    assert {"approx_kl", "clip_fraction", "explained_variance"} <= set(learnt(whole)[2])


@pytest.mark.slow
def test_a_target_of_the_divergence_ends_the_epochs_of_a_rollout(tmp_path: Path) -> None:
    """In 41 and in 33 alike, at the same batches; without it all are learnt from."""
    words = (*CART, "--rollout-steps", "16", "--batch-size", "16", "--epochs", "20", "--max-env-steps", "200")
    words = (*words, "--no-orthogonal")  # which move further in an update
    bound = (*words, "--target-kl", "1e-4", "--learning-rate-decay", "200")
    first = train("41_ppo_ranks", tmp_path / "a", *bound)
    beside = train("33_trainer_thread", tmp_path / "b", "--algorithm", "ppo", "--no-trainer-thread", *bound)
    assert learnt(first)[0] == learnt(beside)[0]
    whole = summary(train("41_ppo_ranks", tmp_path / "c", *words))["updates"]
    assert 5 <= summary(first)["updates"] == summary(beside)["updates"] < whole / 4


def test_41_runs_on_atari(tmp_path: Path) -> None:
    words = ("--num-envs", "2", "--rollout-steps", "8", "--batch-size", "8", "--max-env-steps", "40", "--threads", "1")
    result = summary(train("41_ppo_ranks", tmp_path, *words))
    assert result["env_steps"] == 48
    assert result["updates"] == 3 * 4 * 2


@pytest.mark.slow
@pytest.mark.parametrize("script", CREWS)
def test_players_that_play_on_begin_new_games_when_resumed(tmp_path: Path, script: str) -> None:
    """The contract of 03: learner and counters continue, games begin anew, with other random numbers."""
    words = (*(PIECES if script == CREWS[0] else SUMS[:-1]), "--players", "2")
    run = train(script, tmp_path, *words, "--max-env-steps", "300")
    before = summary(run)
    assert "6 games begin anew" in resume(script, run, "--max-env-steps", "600")
    after = summary(run)
    assert 600 <= after["env_steps"] < 700
    assert after["updates"] > before["updates"] + 10
    assert after["samples"] == 16 * after["updates"]
    numbers = [line["env_steps"] for line in records(run, "episodes.jsonl")]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("script", [pytest.param(script, marks=pytest.mark.slow) for script in CREWS])
def test_atari_with_several_players(tmp_path: Path, script: str) -> None:
    words = ("--game", "breakout", "--players", "2", "--num-envs", "2", "--batch-size", "8", "--max-env-steps", "150")
    run = train(script, tmp_path, *words, "--max-frames", "80")
    result = summary(run)
    assert result["updates"] >= 2
    assert result["samples"] == result["updates"] * 32  # four pieces, and four gradients for Breakout
    assert result["episodes"] >= 1


@pytest.mark.slow
def test_players_subtract_the_same_mean_frame(tmp_path: Path) -> None:
    words = ("--num-envs", "2", "--batch-size", "8", "--pieces", "2", "--max-env-steps", "200", "--center-frames")
    words = (*words, "--frame-scale", "64", "--threads", "1", "--checkpoint-minutes", "None", "--max-frames", "200")
    first = learnt(train("20_a2c", tmp_path / "a", *words))
    assert first == learnt(train("21_a3c_data", tmp_path / "b", *words, "--synchronous", "--players", "1"))
    plain = learnt(train("20_a2c", tmp_path / "c", *(word for word in words if word != "--center-frames")))
    assert first[0] != plain[0]


def test_what_looks_at_runs_knows_actor_critics(tmp_path: Path) -> None:
    run = train("20_a2c", tmp_path / "cart", *PIECES, "--max-env-steps", "300")
    done = fastdqn_says("evaluate", str(run), "--games", "3")
    assert "3 games, " in done.stdout, done.stderr
    done = fastdqn_says("evaluate", str(run), "--protocol", "nature")
    assert done.returncode == 2
    assert done.stderr == "error: The protocol nature is for Atari's games; CartPole-v1 has rules of its own.\n"
    done = fastdqn_says("plot", str(run), "--out", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").exists(), done.stderr
    done = fastdqn_says("compare", str(run))
    assert "20" in done.stdout, done.stderr
    words = ("--num-envs", "2", "--max-env-steps", "150", "--max-frames", "200", "--center-frames")
    pong = train("20_a2c", tmp_path / "pong", *words)
    mean = arrays_of(pong)["body.mean_frame"]
    assert 50.0 < mean.mean() < 150.0  # Pong's background
    done = fastdqn_says("evaluate", str(pong), "--games", "2", "--num-envs", "2")
    assert "2 games, " in done.stdout, done.stderr
    done = fastdqn_says("watch", str(pong), "--out", str(tmp_path / "pong.gif"), "--values", "--max-env-steps", "20")
    assert "a game of 20 env steps, not to its end" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("script", ["20_a2c", *CREWS])
def test_cartpole_is_solved(tmp_path: Path, script: str) -> None:
    """195 as the mean of 100 games, by fresh games too."""
    run = train(script, tmp_path, "--game", "CartPole-v1", "--max-env-steps", "300000", timeout=280)
    result = summary(run)
    assert (result["solved"], result["reason"]) == (True, "solved")
    assert result["mean_100"] >= 195


@pytest.mark.slow
def test_cartpole_is_solved_by_ppo(tmp_path: Path) -> None:
    """475, as CartPole-v1 asks."""
    words = ("--game", "CartPole-v1", "--max-env-steps", "150000", "--stop-score", "475", "--threads", "1")
    assert summary(train("41_ppo_ranks", tmp_path, *words))["solved"]


@pytest.mark.slow
def test_without_the_value_of_what_follows_cartpole_is_not_solved(tmp_path: Path) -> None:
    """The control: gamma 0 sees one reward, which is always 1."""
    words = ("--game", "CartPole-v1", "--max-env-steps", "60000", "--gamma", "0", "--threads", "1")
    assert (summary(train("20_a2c", tmp_path, *words))["mean_100"] or 0.0) < 100


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("20_a2c", ()),
        ("41_ppo_ranks", ()),
        ("33_trainer_thread", ("--algorithm", "ppo")),
        *itertools.product(CREWS, (("--player-device", where) for where in ("same", "cpu", "all"))),
    ],
)
def test_actor_critics_run_on_cuda(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    result = summary(train(script, tmp_path, "--cuda", "--num-envs", "2", "--max-env-steps", "600", *words))
    assert result["device"] == "cuda:0"
    assert result["updates"] >= 3
