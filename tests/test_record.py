"""11: its presets by machine, and holding an agent that wins."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastdqn.cli import parse
from fastdqn.config import DQNOptions, RecordOptions, preset_for, with_record
from fastdqn.errors import UserError
from fastdqn.holding import Hold, evidence
from fastdqn.learner import Form
from fastdqn.schedules import updates_due
from fastdqn.variants import make_learner
from tests.scripts import records, summary, train
from tests.test_learning_parts import random_batch
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
    assert (options.num_envs, options.gradient_threads) == (16, 1)
    assert options.hold_epsilon < options.dqn.epsilon_final
    small = parse(RecordOptions, "", ["--small", "--device", "cpu"])
    assert (small.small, small.network, small.frame_size, small.protocol.frame_stack) == (True, "narrow", 84, 4)
    assert (small.num_envs, small.gradient_threads, small.run.threads) == (16, 1, 1)
    fast = preset_for("pong-fast", "pong").dqn
    for preset in (options, small, parse(RecordOptions, "", ["--cuda"])):
        assert preset.parts.prioritized
        assert preset.dqn.replay_size < fast.replay_size
        assert preset.dqn.batch_size > fast.batch_size
        assert (preset.hold_share, preset.hold_average, preset.learning_rate_decay) == (0.88, 0.002, 400_000)
    assert parse(RecordOptions, "", ["--small", "--device", "cpu", "--threads", "2"]).run.threads == 2
    assert parse(RecordOptions, "", ["--small", "--cuda"]).run.threads is None
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
    assert (options.dqn, options.hold_share) == (preset_for("breakout", "breakout").dqn, None)
    assert (options.network, options.run.threads) == ("narrow", None)


@pytest.mark.parametrize(
    "words",
    [
        "--hold-share 1",
        "--hold-share 0.4",
        "--hold-epsilon 2",
        "--hold-slack 1.1",
        "--hold-average 0",
        "--hold-average 0.01 --game breakout",
        "--network nature --frame-size 30",
        "--small --gradient-threads 0",
        "--gradient-threads 65",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError, match=r"must be|cannot be"):
        parse(RecordOptions, "", words.split())


def test_an_average_of_the_weights_is_kept_and_exchanged() -> None:
    options = RecordOptions(dqn=DQNOptions(learning_rate=1e-2), network="small", hold_average=0.25)
    learner = make_learner(options, (4, 84, 84), 6, torch.device("cpu"), Form(channels_last=True, fused=True))
    expected = [p.detach().double() for p in learner.network.parameters()]
    for seed in range(3):
        learner.update(random_batch(8, seed=seed))
        expected = [0.75 * a + 0.25 * p.detach() for a, p in zip(expected, learner.network.parameters(), strict=True)]
    newest = [p.detach().clone() for p in learner.network.parameters()]
    state = learner.state()
    learner.swap_average()
    for averaged, p, last in zip(expected, learner.network.parameters(), newest, strict=True):
        torch.testing.assert_close(p.detach().double(), averaged, rtol=1e-5, atol=1e-7)
        assert not torch.equal(p, last)
    learner.swap_average()
    assert all(torch.equal(p, last) for p, last in zip(learner.network.parameters(), newest, strict=True))
    other = make_learner(options, (4, 84, 84), 6, torch.device("cpu"), Form(channels_last=True, fused=True))
    other.load(state)
    other.swap_average()
    for averaged, p in zip(expected, other.network.parameters(), strict=True):
        torch.testing.assert_close(p.detach().double(), averaged, rtol=1e-5, atol=1e-7)


def points(won: int, lost: int) -> NDArray[np.float32]:
    """Rewards of a step of many games, some of them without a point."""
    return np.array([1.0] * won + [-1.0] * lost + [0.0] * 3, np.float32)


def test_evidence_by_hand() -> None:
    """At 0.9 the good policy loses 6% and the bad one 15%; one that loses 10% says nearly nothing for either."""
    gain, loss = evidence(0.9)
    assert gain == pytest.approx(math.log(0.94 / 0.85))
    assert loss == pytest.approx(math.log(0.06 / 0.15))
    assert abs(0.9 * gain + 0.1 * loss) < 0.005
    assert 0.95 * gain + 0.05 * loss > 0.02
    assert 0.8 * gain + 0.2 * loss < -0.1


def test_an_agent_is_held_once_it_has_won_enough_of_its_last_points() -> None:
    hold = Hold(0.9)  # 36 of the last 48 are three quarters
    hold.see(points(46, 1))
    assert not hold.on  # too few yet
    hold = Hold(0.9)
    hold.see(points(0, 13))
    hold.see(points(35, 0))
    assert not hold.on
    assert hold.see(points(1, 0))  # the first of those lost no longer counts
    assert hold.on


def test_a_held_agent_is_let_go_when_it_loses() -> None:
    """2.5 / 0.916 is between 2 and 3: three lost points in a row are too many, and each one won is worth 0.1."""
    hold = Hold(0.9)
    hold.see(points(48, 1))
    assert (hold.on, hold.won, hold.lost) == (True, 0, 0)
    assert hold.report() == {"hold/policies": 1.0, "hold/on": 1.0}
    hold.see(points(0, 2))
    assert hold.report() == {"hold/policies": 1.0, "hold/on": 1.0, "hold/points": 2.0, "hold/share": 0.0}
    hold.see(points(0, 1))
    assert not hold.on
    hold.see(points(47, 0))
    assert not hold.on  # what was won before does not count again
    hold.see(points(1, 0))
    assert hold.on
    hold.see(points(80, 0))  # 80 x 0.1007
    hold.see(points(0, 11))  # 11 x 0.9163, and -2.03 remains
    assert hold.on
    hold.see(points(0, 1))
    assert not hold.on


@pytest.mark.parametrize(("wins", "held"), [(0.95, True), (0.8, False)])
def test_good_policies_stay_and_bad_ones_go(wins: float, held: bool) -> None:
    """Of 100 policies, over 2,000 points each."""
    rng, stay = np.random.default_rng(5), 0
    for _ in range(100):
        hold = Hold(0.9)
        hold.see(points(48, 1))
        for won in rng.random(2000) < wins:
            hold.see(points(int(won), int(not won)))
            if not hold.on:
                break
        stay += hold.on
    assert stay > 80 if held else stay < 3


def test_without_a_share_nothing_is_held() -> None:
    hold = Hold(None)
    for _ in range(10):
        hold.see(points(100, 1))
    assert not hold.on


def test_where_no_point_can_be_lost_nothing_is_held() -> None:
    hold = Hold(0.9)
    assert not any(hold.see(points(48, 0)) for _ in range(10))
    assert hold.see(points(0, 1))


@pytest.mark.parametrize("before", [20, 60])
def test_a_hold_goes_on_where_it_was(before: int) -> None:
    one, other = Hold(0.9), Hold(0.9)
    for i in range(before):
        one.see(points(int(i % 7 != 3), int(i % 7 == 3)))
    assert one.on == (before == 60)
    other.load(one.state())
    for won in [True] * 30 + [False] * 4:
        one.see(points(int(won), int(not won)))
        other.see(points(int(won), int(not won)))
        assert one.state() == other.state()


@pytest.mark.slow
def test_it_learns_catch_and_is_then_held(tmp_path: Path) -> None:
    """From three quarters of all games won on it learns nothing while it wins 0.9 of them, and it stays good."""
    words = (*CATCH, "--device", "cpu", "--hold-share", "0.9", "--hold-epsilon", "0.003", "--max-env-steps", "3200")
    run = train("11_pong_in_seconds", tmp_path, *words)
    result, episodes = summary(run), records(run, "episodes.jsonl")
    scores = [episode["score"] for episode in episodes]
    assert sum(scores[-100:]) / 100 >= LEARNT
    all_due = len(updates_due(0, result["env_steps"], 4, 200))
    assert 100 < result["updates"] < 0.85 * all_due
    holds = [report for report in records(run, "reports.jsonl") if "hold/on" in report]
    assert (holds[0]["hold/policies"], holds[0]["hold/on"]) == (1.0, 1.0)
    assert 0.003 in {episode["epsilon"] for episode in episodes}


@pytest.mark.cuda
@pytest.mark.parametrize("words", [(), ("--small",)])
def test_it_runs_on_cuda(tmp_path: Path, words: tuple[str, ...]) -> None:
    words = (*words, "--replay-initial", "1500", "--max-env-steps", "4000", "--num-envs", "16")
    result = summary(train("11_pong_in_seconds", tmp_path, "--cuda", *words))
    assert (torch.device(result["device"]).type, result["updates"] > 50) == ("cuda", True)
