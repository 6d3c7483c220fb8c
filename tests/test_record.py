"""11: its presets by machine, and the updates that it leaves out once the agent plays well."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastdqn.cli import parse
from fastdqn.config import DQNOptions, RecordOptions, preset_for, with_record
from fastdqn.errors import UserError
from fastdqn.schedules import plays_well, updates_due
from fastdqn.stopping import Limits, StopTest
from tests.scripts import records, summary, train
from tests.test_rainbow import CATCH, LEARNT


def test_the_preset_is_the_machines() -> None:
    options = parse(RecordOptions, "", ["--device", "cpu"])
    assert (options.run.game, options.network, options.frame_size, options.run.threads) == (
        "pong-fast",
        "nature",
        84,
        None,
    )
    assert options.dqn.n_step == preset_for("pong-fast", "pong").dqn.n_step
    assert options.late_score is not None
    assert options.late_epsilon < options.dqn.epsilon_final
    small = parse(RecordOptions, "", ["--small", "--device", "cpu"])
    assert (small.small, small.network, small.frame_size, small.run.threads) == (True, "narrow", 84, 2)
    assert parse(RecordOptions, "", ["--small", "--frame-size", "63", "--device", "cpu"]).frame_size == 63
    plain = RecordOptions(dqn=DQNOptions(), run=options.run)
    assert with_record(plain, small=False, cuda=True).num_envs != with_record(plain, small=False, cuda=False).num_envs
    cuda = parse(RecordOptions, "", ["--cuda", "--device", "cuda:0"])
    assert cuda.num_envs == with_record(plain, small=False, cuda=True).num_envs
    assert parse(RecordOptions, "", ["--cuda"]).num_envs == cuda.num_envs
    assert parse(RecordOptions, "", []).run.device == "auto"
    assert parse(RecordOptions, "", ["--device", "cpu", "--no-small"]).network == "nature"


def test_other_games_keep_their_own_settings() -> None:
    options = parse(RecordOptions, "", ["--game", "breakout", "--small"])
    assert (options.dqn, options.late_score) == (preset_for("breakout", "breakout").dqn, None)
    assert (options.network, options.gradient_threads) == ("narrow", 2)
    assert parse(RecordOptions, "", ["--game", "breakout", "--steps", "100"]).steps == 100  # --late-steps is not asked


@pytest.mark.parametrize(
    "words",
    [
        "--late-steps 2",
        "--late-steps 100000",
        "--late-epsilon 2",
        "--network nature --frame-size 30",
        "--small --gradient-threads 0",
        "--gradient-threads 65",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError, match=r"must be|cannot be"):
        parse(RecordOptions, "", words.split())


def test_plays_well_by_hand() -> None:
    assert [plays_well(recent, 14.0) for recent in (None, 13.0, 14.0, 14.1)] == [False, False, False, True]
    assert not plays_well(20.0, None)


def test_recent_mean_by_hand() -> None:
    stop = StopTest(Limits(18.0, None, None))
    for score in range(1, 5):
        stop.add(float(score))
    assert (stop.recent_mean(5), stop.recent_mean(4), stop.recent_mean(2), stop.recent_mean(1)) == (None, 2.5, 3.5, 4.0)


@pytest.mark.slow
def test_it_learns_catch_and_then_trains_less(tmp_path: Path) -> None:
    """From 0.5 on there is an update each 32 env steps instead of each 4, and the agent stays good."""
    words = (*CATCH, "--device", "cpu", "--late-score", "0.5", "--late-steps", "32", "--max-env-steps", "3200")
    run = train("11_pong_in_seconds", tmp_path, *words)
    result, episodes = summary(run), records(run, "episodes.jsonl")
    scores = [episode["score"] for episode in episodes]
    assert sum(scores[-100:]) / 100 >= LEARNT
    all_due = len(updates_due(0, result["env_steps"], 4, 200))
    assert 100 < result["updates"] < 0.85 * all_due


@pytest.mark.cuda
@pytest.mark.parametrize("words", [(), ("--small",)])
def test_it_runs_on_cuda(tmp_path: Path, words: tuple[str, ...]) -> None:
    words = (*words, "--replay-initial", "1500", "--max-env-steps", "4000", "--num-envs", "16")
    result = summary(train("11_pong_in_seconds", tmp_path, "--cuda", *words))
    assert (torch.device(result["device"]).type, result["updates"] > 50) == ("cuda", True)
