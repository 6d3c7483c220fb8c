"""11: its options, and an agent that is frozen once it wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

from fastdqn import process
from fastdqn.algorithms import freeze_trial
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.exploration import Exploring, VectorEpsilonGreedy
from fastdqn.algorithms.freeze_trial import FreezeTrial
from fastdqn.build import games_on_device
from fastdqn.envs.in_flight import InFlight
from fastdqn.errors import RunError, UserError
from fastdqn.execution.background import Background
from fastdqn.execution.halves import HalfElsewhere, Halves
from fastdqn.networks import convolution
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.runs.run import Run
from fastdqn.schedules import updates_due
from fastdqn.types import Pieces, VectorStep
from tests.helpers.own import Dots, game_of
from tests.helpers.scripts import RAINBOW_CATCH, here, parse, records, summary, train

SMALL = ("--device", "cpu", "--block-steps", "8", "--network", "narrow", "--replay-size", "1000", "--batch-size", "4")
LEARNT = 0.7  # mean score of Catch's last 100 games


@pytest.mark.parametrize(
    "words",
    [
        "--freeze-share 1",
        "--freeze-share 0.4",
        "--freeze-slack 1.1",
        "--network nature --frame-size 30",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError, match=r"must be|cannot be"):
        parse("11_pong_in_seconds", *words.split())


def test_it_learns_catch_and_is_then_frozen(tmp_path: Path) -> None:
    """From three quarters of all games won on it learns nothing while it wins 0.9 of them, and it stays good."""
    words = (*RAINBOW_CATCH, "--device", "cpu", "--freeze-share", "0.9", "--epsilon-final", "0.03")
    run = train("11_pong_in_seconds", tmp_path, *words, "--max-env-steps", "3200")
    result, episodes = summary(run), records(run, "episodes.jsonl")
    scores = [episode["score"] for episode in episodes]
    assert sum(scores[-100:]) / 100 >= LEARNT
    all_due = len(updates_due(0, result["env_steps"], 4, 200))
    assert 100 < result["updates"] < 0.85 * all_due
    trials = [report for report in records(run, "reports.jsonl") if "freeze/frozen" in report]
    assert (trials[0]["freeze/trials"], trials[0]["freeze/frozen"]) == (1.0, 1.0)
    assert 0.03 in {episode["epsilon"] for episode in episodes}


def test_schedules_stand_still_while_it_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning rate and beta, which are set after each step of the games."""
    seen: dict[str, list[tuple[bool, float]]] = {"rate": [], "beta": []}
    trial: list[FreezeTrial] = []
    observe = FreezeTrial.observe

    def observed(self: FreezeTrial, steps: Sequence[VectorStep]) -> bool:
        trial[:] = [self]
        return observe(self, steps)

    def note(name: str, value: float) -> None:
        if trial:
            seen[name].append((trial[0].frozen, value))

    monkeypatch.setattr(FreezeTrial, "observe", observed)
    monkeypatch.setattr(DQNLearner, "set_learning_rate", lambda _, rate: note("rate", rate))
    monkeypatch.setattr(PrioritizedReplay, "set_beta", lambda _, beta: note("beta", beta))
    words = (*RAINBOW_CATCH, "--device", "cpu", "--freeze-share", "0.5", "--freeze-slack", "0.49", "--prioritized")
    rising = ("--final-learning-rate", "1e-4", "--learning-rate-decay", "4000", "--importance-exponent", "0.1")
    rising = (*rising, "--importance-final", "1", "--importance-decay", "4000")
    run = train("11_pong_in_seconds", tmp_path, *words, *rising, "--max-env-steps", "1500")
    for found in seen.values():
        frozen = [value for is_frozen, value in found if is_frozen]
        learning = [value for is_frozen, value in found if not is_frozen]
        assert len(set(frozen)) <= trial[0].trials  # one for each time that it was frozen
        assert len(set(learning)) > 10
    assert len([True for is_frozen, _ in seen["rate"] if is_frozen]) > 3
    passed = summary(run)["env_steps"] - trial[0].frozen_env_steps
    assert trial[0].frozen_env_steps > 0
    assert seen["beta"][-1][1] == pytest.approx(0.1 + 0.9 * passed / 4000, abs=0.01)


def test_epsilon_is_that_of_the_env_step_that_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the step before is not counted yet when it is chosen; and what is logged is that of the step."""
    played: list[float] = []
    logged: list[float] = []
    draw, count = VectorEpsilonGreedy.draw, Run.played_vector

    def drawn(self: VectorEpsilonGreedy, epsilon: NDArray[np.float64]) -> Exploring:
        played.extend(epsilon)
        return draw(self, epsilon)

    def counted(self: Run, step: VectorStep, policy_lag: int = 0, **values: float) -> None:
        logged.append(values["epsilon"])
        count(self, step, policy_lag, **values)

    monkeypatch.setattr(VectorEpsilonGreedy, "draw", drawn)
    monkeypatch.setattr(Run, "played_vector", counted)
    words = ("--num-envs", "4", "--epsilon-decay", "800", "--max-env-steps", "120")
    train("11_pong_in_seconds", tmp_path, *SMALL, *words, "--replay-initial", "40", "--no-checkpoints")
    expected = [1.0 - env_step / 800 for env_step in range(1, 125)]
    assert played == pytest.approx(expected)
    assert logged == pytest.approx(expected[3:120:4])


def test_gradients_of_weights_are_found_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which no bit of a run would show: of three convolutions and the hidden layer, in each update, and not by the
    thread of refreshes, whose pieces take long.
    """
    put: dict[Background, int] = {}
    start = Background.start

    def started(self: Background, pieces: Pieces) -> Callable[[], None]:
        put[self] = put.get(self, 0) + 1
        return start(self, pieces)

    monkeypatch.setattr(Background, "start", started)
    words = ("--num-envs", "4", "--steps", "8", "--max-env-steps", "120", "--replay-initial", "40")
    monkeypatch.setattr(convolution, "has_amx", lambda: False)  # in blocks the first one leaves nothing
    run = train("11_pong_in_seconds", tmp_path, *SMALL, *words, "--refresh-env-steps", "40", "--no-checkpoints")
    refreshes, gradients = sorted(put.values())
    assert gradients == 4 * summary(run)["updates"] > 4 * refreshes > 0


def test_games_are_in_halves_where_that_can_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for noisy layers, an odd number of games, or one's own; with one core or one thread of emulators without
    another process.
    """

    def halved(*words: str) -> bool | None:
        """Return whether one half is elsewhere; None without halves."""
        options = parse("11_pong_in_seconds", *SMALL, "--num-envs", "4", "--replay-initial", "64", *words)
        groups = (options.run, options.game, options.dqn, options.pace, options.vector, options.update, options.agent)
        games = games_on_device(*groups, options.parts, options.returns, in_flight=True, halves=True).games
        assert isinstance(games, InFlight)
        if not isinstance(games, Halves):
            return None
        with games:
            return isinstance(games.groups[1], HalfElsewhere)

    monkeypatch.setattr(process, "cores", lambda: 1)
    assert halved() is False
    monkeypatch.setattr(process, "cores", lambda: 2)
    assert halved() is True
    assert halved("--env-threads", "1") is False
    assert halved("--noisy") is None
    assert halved("--num-envs", "3") is None
    assert halved("--game", game_of(Dots).name) is None


def test_an_agent_is_frozen_alike_in_one_process_and_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any agent is frozen after a point, and learns again after two more that it lost; no env step is learnt from
    twice.
    """
    due: list[range] = []
    elsewhere: list[HalfElsewhere] = []
    run_due, play = Run.due, HalfElsewhere.play

    def noted(run: Run, *words: int) -> range:
        due.append(run_due(run, *words))
        return due[-1]

    def counted(half: HalfElsewhere, *words: Any) -> Any:
        elsewhere.append(half)
        return play(half, *words)

    monkeypatch.setattr(Run, "due", noted)
    monkeypatch.setattr(HalfElsewhere, "play", counted)
    monkeypatch.setattr(freeze_trial, "POINTS", 1)
    monkeypatch.setattr(freeze_trial, "LIMIT", -1.0)
    words = (*SMALL, "--num-envs", "4", "--replay-initial", "100", "--freeze-slack", "1", "--freeze-share", "0.9")
    words = (*words, "--frame-size", "42", "--epsilon-final", "0.5", "--epsilon-decay", "200", "--threads", "1")
    found: list[tuple[Any, Any]] = []
    for cores in (1, 2):
        monkeypatch.setattr(process, "cores", lambda cores=cores: cores)
        due.clear()
        run = train("11_pong_in_seconds", tmp_path / str(cores), *words, "--max-env-steps", "1300", "--no-checkpoints")
        trials = [report for report in records(run, "reports.jsonl") if "freeze/frozen" in report]
        assert {report["freeze/frozen"] for report in trials} == {0.0, 1.0}
        assert trials[-1]["freeze/env_steps"] > 64
        assert bool(elsewhere) == (cores > 1)
        assert len(trials) >= 4
        steps = [env_step for some in due for env_step in some]
        assert len(steps) == len(set(steps)) == summary(run)["updates"]
        weights = safetensors.numpy.load_file(run / "weights.safetensors")
        found.append(([{**report, "elapsed": 0} for report in trials], weights))
    (one, alone), (other, apart) = found
    assert one == other
    assert all((alone[name] == apart[name]).all() for name in alone)


class Short(Dots):
    """Fails after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self.left:
            raise RuntimeError("no more")
        self.left -= 1
        return super().step(action)


@pytest.mark.parametrize("steps", [30, 29])
def test_a_step_that_the_run_does_not_need_may_fail(tmp_path: Path, steps: int) -> None:
    """Games are a step ahead when the last one is counted; one that it needs may not."""
    words = ("--game", game_of(partial(Short, steps)).name, "--num-envs", "1", "--max-env-steps", "30")
    words = (*SMALL, *words, "--replay-initial", "20")
    if steps < 30:
        with pytest.raises(RunError, match="failed in step: RuntimeError: no more"):
            train("11_pong_in_seconds", tmp_path, *words)
        return
    run = train("11_pong_in_seconds", tmp_path, *words)
    result = summary(run)
    assert (result["reason"], result["env_steps"]) == ("max-env-steps", 30)
    assert not list((run / "checkpoints").glob("*"))


@pytest.mark.cuda
@pytest.mark.parametrize("words", [(), ("--network", "narrow"), ("--trace-decay", "None", "--n-step", "5")])
def test_it_runs_on_cuda(tmp_path: Path, words: tuple[str, ...]) -> None:
    words = (*words, "--replay-initial", "1500", "--max-env-steps", "4000", "--block-steps", "16")
    words = words if "5" in words else (*words, "--refresh-env-steps", "1024")
    result = summary(train("11_pong_in_seconds", tmp_path, "--cuda", *words))
    assert (torch.device(result["device"]).type, result["updates"] > 50) == ("cuda", True)


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_on_cuda_resumes(tmp_path: Path, device: str) -> None:
    """With actions in flight, and with refreshes in turns."""
    words = (*SMALL[2:], "--cuda", "--replay-initial", "400", "--refresh-env-steps", "256", "--refresh-turns", "4")
    run = train("11_pong_in_seconds", tmp_path, *words, "--max-env-steps", "1000")
    before = summary(run)["updates"]
    here("11_pong_in_seconds", "--resume", str(run), "--device", device, "--max-env-steps", "1600")
    after = summary(run)
    assert torch.device(after["device"]).type == device
    assert after["updates"] == pytest.approx(2 * before, rel=0.4)
