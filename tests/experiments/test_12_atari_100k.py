"""12: a short Atari-100k, its evaluation, and both resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import torch

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.objectives import HistogramObjective
from fastdqn.envs.scores import human_normalised
from fastdqn.replay.windows import Windows
from fastdqn.tools import final
from fastdqn.tools.evaluate import Score, evaluate, load_agent
from tests.experiments.test_resume import same, state_at_the_end, without_clock
from tests.helpers.resuming import resume
from tests.helpers.scripts import TOY_CATCH, fingerprint, records, script_says, summary, train

SCRIPT = "12_atari_100k"
BRIEF = (
    *("--game", "breakout", "--threads", "1", "--replay-initial", "60", "--replay-size", "400", "--batch-size", "4"),
    *("--target-sync", "40", "--n-step", "3", "--importance-decay", "240", "--checkpoint-minutes", "None"),
    *("--max-frames", "400", "--report-env-steps", "50", "--held-out", "20", "--frame-size", "42"),
)
GAMES = ("--evaluation-games", "5", "--evaluation-envs", "2")


@pytest.fixture(autouse=True)
def short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """Games of 100 env steps at most."""
    changes = {**final.PROTOCOLS[final.PROTOCOL].changes, "max_frames": 400}
    monkeypatch.setitem(final.PROTOCOLS, final.PROTOCOL, final.PROTOCOLS[final.PROTOCOL]._replace(changes=changes))


OURS = (
    *("--reset-updates", "50", "--first-n-step", "5", "--first-gamma", "0.9", "--horizon-updates", "20"),
    *("--target-average", "0.05", "--act-with", "target", "--weight-decay", "0.1", "--random-shift", "4"),
    *("--random-intensity", "0.05"),
)


RETURNS = (
    *("--no-double", "--n-step", "1", "--trace-decay", "0.9", "--refresh-env-steps", "40", "--block-steps", "8"),
    *("--final-average", "0.3"),
)


@pytest.mark.parametrize(
    "more",
    [
        *(pytest.param(more, marks=pytest.mark.slow) for more in ((), OURS)),
        RETURNS,  # each as a histogram
        pytest.param((*RETURNS, "--no-distributional"), marks=pytest.mark.slow),
    ],
)
def test_n_and_n_more_are_2n_with_the_evaluation(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Weights, replay, games and random numbers bit for bit; the evaluation is only of the final weights."""
    whole = train(SCRIPT, tmp_path / "whole", *BRIEF, *more, *GAMES, "--max-env-steps", "240")
    run = train(SCRIPT, tmp_path / "half", *BRIEF, *more, *GAMES, "--max-env-steps", "120")
    assert records(run, "speed.jsonl")[-1]["updates"] == 120 - 60  # at env steps 60 to 119
    assert "evaluation: 5 games" in resume(SCRIPT, run, "--max-env-steps", "240")
    same(state_at_the_end(whole), state_at_the_end(run))
    assert fingerprint(whole) == fingerprint(run)
    assert without_clock(whole, "episodes.jsonl") == without_clock(run, "episodes.jsonl")
    found = summary(run)["evaluation"]
    same({**summary(whole)["evaluation"], "seconds": 0}, {**found, "seconds": 0})
    assert (found["games"], found["protocol"], found["epsilon"], len(found["scores"])) == (5, "atari-100k", 0.001, 5)
    assert found["human_normalised"] == human_normalised("breakout", found["mean"])
    assert summary(run)["samples_per_s"] > 0
    assert resume(SCRIPT, run).count("evaluation") == 0  # it is there already


def test_an_environment_of_ones_own_is_evaluated_without_noise_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def seen(agent: Any, protocol: str, *args: Any, **how: Any) -> Score:
        asked.append((protocol, how["noise"], how["epsilon"]))
        return evaluate(agent, protocol, *args, **how)

    monkeypatch.setattr(final, "evaluate", seen)
    words = ("--game", TOY_CATCH, *BRIEF[2:], "--agent", "der", "--evaluation-games", "2", "--max-env-steps", "70")
    found = summary(train(SCRIPT, tmp_path, *words))["evaluation"]
    assert asked == [("training", False, 0.001)]
    assert (found["protocol"], found["games"]) == ("training", 2)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "more",
    [
        ("--agent", "der"),
        ("--agent", "drq-eps"),
        ("--agent", "100k-fast", "--refresh-env-steps", "40", "--block-steps", "8"),
        OURS,
    ],
)
def test_agents_run_on_cuda_with_the_evaluation(tmp_path: Path, more: tuple[str, ...]) -> None:
    """By graphs, over resets, refreshes and a horizon that moves."""
    words = ("--game", "pong", *BRIEF[2:], "--evaluation-games", "2", "--evaluation-envs", "2")  # whose games end soon
    words += ("--n-step", "1") if "100k-fast" in more else ()
    result = summary(train(SCRIPT, tmp_path, "--cuda", *words, *more, "--max-env-steps", "240"))
    assert (result["device"], result["updates"], result["evaluation"]["games"]) == ("cuda:0", 180, 2)


def test_the_average_is_what_the_run_leaves(tmp_path: Path) -> None:
    """Of the weights after 10, 20, 30 and 40 updates; the newest ones are in the checkpoint alone."""
    words = (*BRIEF, *RETURNS, "--final-average", "0.01", "--evaluation-games", "0")
    left, newest = [], []
    for count in (10, 20, 30, 40):
        run = train(SCRIPT, tmp_path / str(count), *words, "--max-env-steps", str(60 + count))
        left.append(safetensors.numpy.load_file(run / "weights.safetensors"))
        newest.append(state_at_the_end(run)["parts"]["learner"]["network"])
    for name, array in left[-1].items():
        mean = sum(one[name].numpy().astype("float64") for one in newest) / 4
        assert array == pytest.approx(mean, abs=1e-6)
    assert any((array != newest[-1][name].numpy()).any() for name, array in left[-1].items())
    objective: Any = load_agent(run, torch.device("cpu")).learner.objective  # type: ignore[union-attr]
    assert isinstance(objective, HistogramObjective)
    assert objective.returns[[0, -1]].tolist() == pytest.approx([-10.0, 10.0], abs=1e-5)


@pytest.mark.parametrize("script", ["09_cuda_graph", "10_rainbow", "11_pong_in_seconds", SCRIPT])
def test_each_script_with_centred_frames_has_their_mean(tmp_path: Path, script: str) -> None:
    words = ("--game", "breakout", "--replay-initial", "60", "--replay-size", "400", "--batch-size", "4")
    words += ("--target-sync", "40", "--n-step", "3", "--frame-size", "42", "--max-env-steps", "100", "--num-envs", "1")
    words += ("--evaluation-games", "0") if script == SCRIPT else ()
    run = train(script, tmp_path, *words, "--center-frames")
    mean = safetensors.numpy.load_file(run / "weights.safetensors")["torso.mean_frame"]
    assert mean.shape == (42, 42)
    assert mean.any()


def test_an_evaluation_that_was_stopped_is_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(SCRIPT, tmp_path / "whole", *BRIEF, *GAMES, "--max-env-steps", "100")

    def stopped(*_: Any, **__: Any) -> Score:
        return Score([], 0, 0.0, "interrupted")

    with monkeypatch.context() as patched:
        patched.setattr(final, "evaluate", stopped)
        run = train(SCRIPT, tmp_path / "stopped", *BRIEF, *GAMES, "--max-env-steps", "100")
    assert "evaluation" not in summary(run)
    assert "evaluation: 5 games" in resume(SCRIPT, run)
    assert {**summary(whole)["evaluation"], "seconds": 0} == {**summary(run)["evaluation"], "seconds": 0}


def test_a_run_that_ends_otherwise_is_not_evaluated(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path / "a", *BRIEF, *GAMES, "--train-seconds", "0.05")
    assert summary(run)["reason"] == "train-seconds"
    assert "evaluation" not in summary(run)
    run = train(SCRIPT, tmp_path / "b", *BRIEF, "--evaluation-games", "0", "--max-env-steps", "100")
    assert "evaluation" not in json.loads((run / "summary.json").read_text())


def test_a_wrong_game_is_one_sentence(tmp_path: Path) -> None:
    said = script_says(SCRIPT, "--game", "breakuot", "--runs-dir", str(tmp_path))
    assert said.returncode == 2
    assert "did you mean breakout" in said.stderr + said.stdout
    assert list(tmp_path.iterdir()) == []


def test_resets_and_the_horizon_are_seen_to_before_each_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []
    steps: list[int] = []
    set_horizon = Windows.set_horizon

    def noted(windows: Windows, n_step: int, gamma: float) -> None:
        steps.append(n_step)
        set_horizon(windows, n_step, gamma)

    monkeypatch.setattr(DQNLearner, "reset", lambda _, keep, __: kept.append(keep))
    monkeypatch.setattr(Windows, "set_horizon", noted)
    words = ("--reset-updates", "30", "--reset-keep", "0.25", "--first-n-step", "5", "--horizon-updates", "10")
    train(SCRIPT, tmp_path, *BRIEF, *words, "--evaluation-games", "0", "--max-env-steps", "140")
    assert kept == [0.25, 0.25]  # after 30 and 60 of 80 updates
    assert steps == [5, 4, 3] * 3
