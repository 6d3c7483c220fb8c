"""31: it repeats, resumes bit for bit, learns, and is known to what looks at runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastdqn.algorithms.sac import SACLearner
from fastdqn.cli.evaluate import Evaluate
from fastdqn.cli.evaluate import evaluate as evaluate_runs
from fastdqn.runs.checkpoint import newest, read
from fastdqn.tools.fresh import play_fresh
from tests.helpers.control import Ears, Reach, registered
from tests.helpers.outcomes import learnt, weights_of
from tests.helpers.resuming import resume
from tests.helpers.scripts import fastdqn_says, loaded, only_run, parse, records, script_says, summary, train
from tests.helpers.versions import NO_HALF_CHEETAH

SCRIPT = "31_sac"
QUIET = ("--threads", "1", "--checkpoint-minutes", "None")
FEW = (*QUIET, "--batch-size", "8", "--replay-initial", "20", "--replay-size", "150")
REACH = (
    *(*QUIET, "--game", "Reach-v0", "--batch-size", "64", "--learning-rate", "3e-3", "--replay-initial", "100"),
    *("--target-average", "0.02", "--num-envs", "2", "--replay-size", "2000"),
)
needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="the extra mujoco is missing")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (SCRIPT, ("--newest-in-batch",)),
        pytest.param(SCRIPT, ("--num-envs", "3", "--steps-per-update", "2"), marks=pytest.mark.slow),
        pytest.param(SCRIPT, ("--num-envs", "2", "--max-frames", "35"), marks=pytest.mark.slow),
        pytest.param("42_sac_ranks", (), marks=pytest.mark.slow),
    ],
)
def test_it_resumes_bit_for_bit(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    """2N env steps are N, a stop, and N more, with a replay that has gone round."""
    words = (*FEW, *words)
    whole = train(script, tmp_path / "whole", *words, "--max-env-steps", "420")
    half = train(script, tmp_path / "half", *words, "--max-env-steps", "210")
    assert summary(half)["env_steps"] < 215
    assert learnt(whole) != learnt(half)
    assert "the games continue where they were" in resume(script, half, "--max-env-steps", "420")
    assert learnt(whole) == learnt(half)
    parts = [read(newest(run))["parts"] for run in (whole, half)]
    assert parts[0]["replay"]["starts"].tolist() == parts[1]["replay"]["starts"].tolist()
    assert parts[0]["learner"]["log_temperature"] == parts[1]["learner"]["log_temperature"]


def test_weights_that_are_no_numbers_end_the_run(tmp_path: Path) -> None:
    """Their actions are none either, nor is what Pendulum pays for them: the agent is to blame, not the game."""
    words = (*FEW, "--learning-rate", "1e30", "--max-env-steps", "400", "--runs-dir", str(tmp_path))
    said = script_says(SCRIPT, *words)
    assert said.returncode == 1
    assert " became inf at env step " in said.stderr or "A weight is no longer a finite number" in said.stderr
    assert said.stderr.endswith("a lower --learning-rate usually helps.\n")


def test_it_repeats_and_another_seed_is_another_run(tmp_path: Path) -> None:
    words = (*FEW, "--max-env-steps", "120")
    first = learnt(train(SCRIPT, tmp_path / "a", *words))
    assert first == learnt(train(SCRIPT, tmp_path / "b", *words))
    assert first[0] != learnt(train(SCRIPT, tmp_path / "c", *words, "--seed", "1"))[0]
    assert first[2]["updates"] == first[2]["env_steps"] - 19
    assert {"temperature", "entropy", "mean_q", "loss_critic", "loss_actor", "loss_temperature"} <= set(first[2])


def test_bounds_change_nothing_of_what_is_learnt(tmp_path: Path) -> None:
    """Actions, densities and the entropy that is aimed at are in [-1, 1]; the environment alone knows of its bounds.

    With bounds of 2, which scale without rounding, every weight is the same bit for bit.
    """
    words = (*REACH, "--max-env-steps", "150")
    with registered(Reach=Reach):
        plain = train(SCRIPT, tmp_path / "1", *words)
    with registered(Reach=(Reach, {"low": -2.0, "high": 2.0})):
        wide = train(SCRIPT, tmp_path / "2", *words)
    assert learnt(plain) == learnt(wide)


def test_without_its_replay_a_run_plays_on_before_it_learns(tmp_path: Path) -> None:
    words = (*FEW, "--no-checkpoint-replay")
    run = train(SCRIPT, tmp_path, *words, "--max-env-steps", "60")
    resume(SCRIPT, run, "--max-env-steps", "120")
    assert summary(run)["updates"] == 41 + 41  # 20 env steps come before the first update, each time


def test_rows_of_resets_are_neither_env_steps_nor_transitions(tmp_path: Path) -> None:
    words = (*FEW, "--game", "Ears-v0", "--num-envs", "2", "--max-env-steps", "60")
    with registered(Ears=Ears):
        run = train(SCRIPT, tmp_path, *words)
    assert summary(run)["env_steps"] == 60
    assert summary(run)["episodes"] == 20
    state = read(newest(run))["parts"]["replay"]
    assert len(state["starts"]) == 60
    assert state["head"] == 39  # three env steps and a reset, ten times, but for the last reset


def test_a_short_task_is_learnt(tmp_path: Path) -> None:
    """From about -5 at random to nearly the best there is, -0.44, with bounds that lie to one side."""
    with registered(Reach=(Reach, {"low": -1.0, "high": 3.0})):
        run = train(SCRIPT, tmp_path, *REACH, "--max-env-steps", "700")
        scores = [line["score"] for line in records(run, "episodes.jsonl")]
        evaluate_runs(Evaluate(runs=(run,), episodes=20, num_envs=20))
    found = json.loads((run / "evaluation-training.json").read_text())
    assert np.mean(scores[:10]) < -3.0
    assert found["mean"] > -1.8
    assert found["games"] == 20


def test_one_of_ones_own_by_its_module_and_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the current folder, and imported if the command line says so, not because a run's files do."""
    (tmp_path / "reaches.py").write_text(
        "import gymnasium\nfrom tests.helpers.control import Reach\ngymnasium.register('Reaches-v0', Reach)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    own = ("--game", "reaches:Reaches-v0")
    with registered():
        done = script_says("09_cuda_graph", *own)
        assert done.stderr.startswith("error: reaches:Reaches-v0 is no Atari game")
        assert "reaches" not in sys.modules
        run = train(SCRIPT, tmp_path / "runs", *FEW, *own, "--max-env-steps", "40")
        looked = partial(fastdqn_says, cwd=tmp_path)
        assert looked("evaluate", str(run), "--games", "2").stderr.endswith("name it too: --game reaches:Reaches-v0.\n")
        assert looked("evaluate", str(run), "--games", "2", *own).returncode == 0
        assert json.loads((run / "evaluation-training.json").read_text())["games"] == 2
        assert script_says(SCRIPT, "--resume", str(run), "--max-env-steps", "50").returncode == 2
        resume(SCRIPT, run, "--max-env-steps", "50", *own)
        assert summary(run)["env_steps"] == 50
    sys.modules.pop("reaches")


def test_a_policy_that_learns_nothing_stays_where_it_was(tmp_path: Path) -> None:
    """The control: with a learning rate of next to nothing the task is not learnt."""
    with registered(Reach=Reach):
        run = train(SCRIPT, tmp_path, *REACH, "--learning-rate", "1e-12", "--max-env-steps", "300")
        evaluate_runs(Evaluate(runs=(run,), episodes=20, num_envs=20))
    assert json.loads((run / "evaluation-training.json").read_text())["mean"] < -2.5


def test_evaluations_play_the_mean_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(SCRIPT, tmp_path, *FEW, "--max-env-steps", "40")

    def drawn(*_: object) -> None:
        raise AssertionError("an action was drawn")

    monkeypatch.setattr(SACLearner, "act", drawn)
    words: dict[str, Any] = {"episodes": 2, "num_envs": 2, "seed": 3}
    evaluate_runs(Evaluate(runs=(run,), **words))
    first = json.loads((run / "evaluation-training.json").read_text())["scores"]
    evaluate_runs(Evaluate(runs=(run,), **words))
    assert json.loads((run / "evaluation-training.json").read_text())["scores"] == first
    evaluate_runs(Evaluate(runs=(run,), epsilon=0.5, **words))
    assert json.loads((run / "evaluation-training.json").read_text())["scores"] != first


def test_a_solved_run_plays_fresh_games_with_the_mean_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*REACH, "--steps-per-update", "100", "--stop-score", "-9", "--fresh-games", "6", "--runs-dir")
    monkeypatch.setattr(SACLearner, "act", None)
    with registered(Reach=Reach):
        play_fresh(loaded(SCRIPT).train(parse(SCRIPT, *words, str(tmp_path))))
    found = summary(only_run(tmp_path))
    assert found["solved"]
    assert (found["fresh"]["games"], found["fresh"]["epsilon"], found["confirmed"]) == (6, 0.0, True)
    assert "nature" not in found


def test_what_looks_at_runs_knows_it(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path / "run", *FEW, "--max-env-steps", "450")
    done = fastdqn_says("evaluate", str(run), "--games", "2")
    assert "2 games, 400 env steps: mean -" in done.stdout, done.stderr
    done = fastdqn_says("evaluate", str(run), "--protocol", "nature")
    assert done.returncode == 2
    assert done.stderr == "error: The protocol nature is for Atari's games; Pendulum-v1 has rules of its own.\n"
    done = fastdqn_says("plot", str(run), "--out", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").exists(), done.stderr
    done = fastdqn_says("compare", str(run))
    assert "31" in done.stdout, done.stderr
    done = fastdqn_says("watch", str(run), "--out", str(tmp_path / "game.gif"), "--values", "--max-env-steps", "20")
    drawn = "a game of 20 env steps, not to its end" in done.stdout
    assert drawn or done.stderr.startswith("error: Pendulum-v1 cannot be drawn: pygame is not installed, run `pip ")
    events = EventAccumulator(str(run))
    events.Reload()
    assert any("temperature" in tag for tag in events.Tags()["scalars"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--game", "pong"), "pong is no environment that Gymnasium knows by an id"),
        (("--game", "CartPole-v1"), "CartPole-v1 has the action space Discrete"),
        (
            ("--game", "HalfCheetah-v2"),
            NO_HALF_CHEETAH,
        ),
        (("--replay-size", "100000000000"), "A replay of 100000000000 env steps needs "),
        (("--replay-size", "100", "--num-envs", "200"), "--replay-size 100 is too small for 200 games at once"),
        (("--frame-skip", "4"), "--frame-skip is for games that show pictures, and Pendulum-v1 shows vectors."),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = script_says(SCRIPT, "--runs-dir", str(tmp_path), *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@needs_mujoco
def test_mujocos_environments_are_learnt_and_resumed(tmp_path: Path) -> None:
    words = (*FEW, "--game", "HalfCheetah-v5", "--num-envs", "2")
    whole = train(SCRIPT, tmp_path / "whole", *words, "--max-env-steps", "120")
    half = train(SCRIPT, tmp_path / "half", *words, "--max-env-steps", "60")
    assert "the games continue where they were" in resume(SCRIPT, half, "--max-env-steps", "120")
    assert weights_of(whole) == weights_of(half)


@needs_mujoco
def test_two_sessions_learn_the_published_humanoid(tmp_path: Path) -> None:
    """By the preset, but for its size."""
    words = (*FEW[2:], "--game", "Humanoid-v5", "--sessions", "2", "--num-envs", "2", "--max-env-steps", "200")
    run = train("32_sac_hogwild", tmp_path, *words)
    result = summary(run)
    assert result["reason"] == "max-env-steps"
    assert 200 <= result["env_steps"] <= 202  # a session has 101 where an odd number of resets made it one game ahead
    assert result["updates"] == result["env_steps"] - 2 * 19


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--num-envs", "4", "--newest-in-batch")])
def test_pendulum_is_learnt_in_8000_env_steps(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Stable-Baselines3's zoo says -176 for its best; 20 games with the mean action."""
    run = train(SCRIPT, tmp_path, *QUIET, *words, "--max-env-steps", "8000", "--stop-score", "None")
    evaluate_runs(Evaluate(runs=(run,), episodes=20, num_envs=20))
    assert json.loads((run / "evaluation-training.json").read_text())["mean"] >= -200.0


@pytest.mark.cuda
def test_it_runs_on_cuda(tmp_path: Path) -> None:
    run = train(SCRIPT, tmp_path, "--cuda", *FEW, "--max-env-steps", "300")
    result = summary(run)
    assert (result["device"], result["updates"]) == ("cuda:0", 281)
    done = fastdqn_says("evaluate", str(run), "--games", "2")
    assert "2 games, " in done.stdout, done.stderr
