"""Evaluation: which games are counted, and what an agent is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fastdqn.errors import UserError
from fastdqn.networks.noisy import clear_noise, noisy_layers
from fastdqn.options.game import GameOptions
from fastdqn.tools import evaluate as evaluation
from fastdqn.tools.evaluate import Agent, Score, _play, evaluate, explored, load_agent
from fastdqn.types import EpisodeEnd
from tests.helpers.learners import SHAPE, learner_of
from tests.helpers.own import Dots
from tests.helpers.scripts import TOY_CATCH, only_run, summary, train
from tests.helpers.trained import BRIEF, TrainedRuns

CPU = torch.device("cpu")


class Lengths:
    """Seats whose games have the lengths that they are given, in the order in which they begin, and score them."""

    def __init__(self, lengths: list[int], count: int) -> None:
        self.lengths, self.count = iter(lengths), count
        self.left = np.array([next(self.lengths) for _ in range(count)])
        self.total = self.left.copy()
        self.steps = 0

    def reset(self) -> torch.Tensor:
        return torch.zeros(self.count, 4, 84, 84, dtype=torch.uint8)

    def step(self, actions: np.ndarray) -> tuple[torch.Tensor, list[EpisodeEnd | None], np.ndarray]:
        self.left -= 1
        self.steps += 1
        ends: list[EpisodeEnd | None] = []
        for seat in range(self.count):
            ends.append(None)
            if self.left[seat] == 0:
                ends[-1] = EpisodeEnd(float(self.total[seat]), int(self.total[seat]), False)
                self.left[seat] = self.total[seat] = next(self.lengths)
        return self.reset(), ends, np.ones(self.count, bool)


class NoAgent:
    """An agent whose network is not looked at."""

    num_actions = 3

    class learner:  # noqa: N801 - stands for an object
        network = torch.nn.Linear(1, 1)

        @staticmethod
        def act(obs: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(obs), dtype=torch.int64)


def played(
    lengths: list[int],
    count: int,
    episodes: int | None,
    env_steps: int | None = None,
    stop: Any = None,
    seconds: float = 0.0,
) -> Score:
    """Play games whose steps take so many seconds each."""
    seats: Any = Lengths(lengths, count)
    agent: Any = NoAgent()
    clock = SimpleNamespace(perf_counter=lambda: seconds * seats.steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "time", clock)  # not the library's
        return _play(seats, agent, count, 0, episodes, env_steps, 0.0, stop or (lambda: None), lambda done, steps: None)


def test_the_first_games_to_begin_are_counted_not_the_first_to_end() -> None:
    """Long and short games in turns: counting the first to end would find the short ones alone."""
    lengths = [200, 10] * 500
    one = played(lengths, 1, 40)
    many = played(lengths, 16, 40)
    assert sorted(e.score for e in one.games) == sorted(e.score for e in many.games) == [10.0] * 20 + [200.0] * 20
    assert many.env_steps == one.env_steps == 20 * 210


def test_env_steps_count_whole_games_that_began_in_time() -> None:
    score = played([30] * 100, 1, None, env_steps=100)
    assert [e.score for e in score.games] == [30.0] * 4
    assert score.env_steps == 120


def test_stopped_early_counts_what_began_before_the_first_unfinished_game() -> None:
    """Seat 0 plays one long game all the while: the short games that end beside it began later, but for one."""
    calls = iter([None, "interrupted"])
    score = played([10**6, 10, *[10] * 1000], 2, 500, stop=lambda: next(calls), seconds=0.01)
    assert (score.games, score.stopped) == ([], "interrupted")
    calls = iter([None, "interrupted"])
    score = played([10, 10**6, *[10] * 1000], 2, 500, stop=lambda: next(calls), seconds=0.01)
    assert len(score.games) == 1


@pytest.mark.parametrize(("seconds", "rounds"), [(10.0, 1), (0.25, 2), (1 / 1024, 512)])
def test_a_stop_is_heard_soon_however_slow_the_games_are(seconds: float, rounds: int) -> None:
    """By the clock: of slow games each step is followed by a look, of fast ones few are."""
    score = played([10**6], 1, 1, stop=lambda: "interrupted", seconds=seconds)
    assert (score.stopped, score.env_steps) == ("interrupted", rounds)


def test_noisy_layers_play_without_noise_where_the_protocol_says_so() -> None:
    learner = learner_of("noisy")
    with torch.no_grad():
        for layer in noisy_layers(learner.network).values():
            layer.weight_sigma.fill_(0.5)
    chosen: list[list[int]] = []

    class Seats(Lengths):
        def step(self, actions: np.ndarray) -> tuple[torch.Tensor, list[EpisodeEnd | None], np.ndarray]:
            chosen[-1] += actions.tolist()
            return super().step(actions)

    agent: Any = SimpleNamespace(num_actions=6, learner=learner)
    for noise in (True, False):
        chosen.append([])
        _play(Seats([40] * 3, 1), agent, 1, 0, 1, None, 0.0, lambda: None, lambda done, steps: None, noise)
    with torch.no_grad():
        clear_noise(tuple(noisy_layers(learner.network).values()))
        best = int(learner.network(torch.zeros(1, *SHAPE, dtype=torch.uint8)).argmax())
    assert len(set(chosen[0])) > 1
    assert chosen[1] == [best] * 40


def test_no_finished_game_is_no_score() -> None:
    score = played([10**6] * 10, 2, 5, stop=lambda: "max-minutes", seconds=0.01)
    assert (score.games, score.stopped) == ([], "max-minutes")
    said = score.as_dict("pong")
    assert (said["games"], said["mean"], said["human_normalised"]) == (0, None, None)


def test_scores_by_hand() -> None:
    score = Score([EpisodeEnd(s, 100, s > 2) for s in (1.0, 2.0, 6.0)], 75, 1.0, None)
    said = score.as_dict("pong")
    assert (said["mean"], said["median"], said["truncated"]) == (3.0, 2.0, 1)
    assert said["standard_error"] == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert said["human_normalised"] == pytest.approx(23.7 / 35.3)


@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("09", "01")), "catch0"])
def test_one_game_at_once_and_many_agree(runs: TrainedRuns, name: str) -> None:
    """Under random play, so that there is something to average; games are cut at 240 frames."""
    agent = load_agent(runs[name], CPU, TOY_CATCH)
    few, many = 6, 32
    one = evaluate(agent, "training", 1, 0, few, epsilon=1.0).as_dict("")
    together = evaluate(agent, "training", 32, 1, many, epsilon=1.0).as_dict("")
    assert (one["games"], together["games"]) == (few, many)
    error = float(np.hypot(one["standard_error"], together["standard_error"]))
    assert abs(one["mean"] - together["mean"]) <= 4 * error + 1e-9
    assert one["env_steps"] / few == pytest.approx(together["env_steps"] / many, rel=0.3)


@pytest.mark.parametrize("script", ["01_baseline", "09_cuda_graph"])
def test_whole_games_and_raw_scores_are_counted(tmp_path: Path, script: str) -> None:
    """Counter's games have three lives and 37 frames, and rewards far above 1, however the run was trained."""
    words = ("--game", "tests.helpers.toys:Counter", "--frame-skip", "4", "--episodic-life")
    words += ("--replay-size", "1000", *BRIEF)
    agent = load_agent(train(script, tmp_path, *words), CPU, words[1])
    games = evaluate(agent, "training", 2, 0, 6).games
    assert len(games) == 6
    assert all(game.frames == 37 and game.score > 37 * 10 for game in games)


def test_an_environment_without_a_limit_is_evaluated_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the run had none; Dots that never end are cut after Atari's limit, which is shorter here."""
    monkeypatch.setattr(Dots, "length", 10**9)
    game = "tests.helpers.own:Dots"
    run = train("01_baseline", tmp_path, "--game", game, "--replay-size", "1000", *BRIEF)
    assert summary(run)["episodes"] == 0
    agent = load_agent(run, CPU, game)
    assert agent.options.game.max_frames is None
    monkeypatch.setattr(evaluation, "GameOptions", lambda: GameOptions(max_frames=30))
    games = evaluate(agent, "training", 2, 0, 2).games
    assert games == [EpisodeEnd(7.5, 30, True)] * 2


def test_games_are_played_with_one_thread(runs: TrainedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for each other beside busy processes."""
    agent, used = load_agent(runs["09"], CPU), set[int]()
    best = agent.learner.act

    def act(*words: Any) -> Any:
        used.add(torch.get_num_threads())
        return best(*words)

    monkeypatch.setattr(agent.learner, "act", act)
    torch.set_num_threads(2)
    evaluate(agent, "training", 1, 0, env_steps=1, epsilon=0.0)
    assert (used, torch.get_num_threads()) == ({1}, 2)


def test_an_agent_that_acts_with_its_target_is_loaded_whole(tmp_path: Path) -> None:
    words = ("--act-with", "target", "--target-average", "0.5")
    words += ("--network", "narrow", "--frame-size", "42", "--num-envs", "4")
    run = train("10_rainbow", tmp_path, *BRIEF, *words, "--report-env-steps", "50")
    agent = load_agent(run, CPU)
    kept = safetensors.torch.load_file(run / "weights.safetensors")
    for network in (agent.learner.network, agent.learner.target):
        assert all(torch.equal(kept[name], tensor) for name, tensor in network.state_dict().items())
    assert agent.learner.actor is agent.learner.target


def test_each_protocol_and_what_does_not_fit(runs: TrainedRuns) -> None:
    agent = load_agent(runs["09"], CPU)
    for name in ("training", "nature"):
        assert len(evaluate(agent, name, 2, 0, 2, epsilon=1.0).games) == 2
    with pytest.raises(UserError, match="has 18 actions, but this agent was trained with 6"):
        evaluate(agent, "machado", 2, 0, 2)
    with pytest.raises(UserError, match="no protocol called 'moon'"):
        evaluate(agent, "moon", 2, 0, 2)


@pytest.mark.parametrize(
    ("name", "differs", "epsilon", "episodes", "env_steps", "noise"),
    [
        ("training", {}, None, 100, None, True),  # the run's own epsilon
        ("nature", {"noop_max": 30, "sticky_actions": 0.0, "max_frames": 18_000}, 0.05, 30, None, True),
        ("nature-steps", {"noop_max": 30, "sticky_actions": 0.0, "max_frames": 18_000}, 0.05, None, 125_000, True),
        (
            "machado",
            {
                "noop_max": 0,
                "sticky_actions": 0.25,
                "full_action_set": True,
                "fire_reset": False,
                "max_frames": 108_000,
            },
            *(0.01, 100, None, True),
        ),
        (
            "atari-100k",
            {"noop_max": 30, "sticky_actions": 0.0, "fire_reset": False, "max_frames": 108_000},
            *(0.001, 100, None, False),
        ),
    ],
)
@pytest.mark.parametrize("wrappers", [None, "opencv"])
def test_a_protocol_changes_what_its_paper_says_and_nothing_else(
    runs: TrainedRuns,
    monkeypatch: pytest.MonkeyPatch,
    wrappers: Any,
    name: str,
    differs: dict[str, Any],
    epsilon: float | None,
    episodes: int | None,
    env_steps: int | None,
    noise: bool,
) -> None:
    """Of a run that was trained with settings of its own; numbers of the papers, and lives and clipping never count.
    Behind wrappers a lost life resets these as in the run, and the scores are whole games' all the same.
    """
    agent = load_agent(runs["09"], CPU)
    own = {"noop_max": 7, "sticky_actions": 0.1, "max_frames": 4_000, "fire_reset": True, "frame_stack": 4}
    game = dataclasses.replace(agent.options.game, **own)
    agent = agent._replace(
        options=dataclasses.replace(agent.options, game=game),
        num_actions=18 if "full_action_set" in differs else agent.num_actions,
        wrappers=wrappers,
    )
    shown: list[GameOptions] = []
    asked: list[tuple[Any, ...]] = []
    for seats in ("VectorSeats", "WrappedSeats"):
        monkeypatch.setattr(evaluation, seats, lambda game, *_: shown.append(game))
    monkeypatch.setattr(evaluation, "_play", lambda _, __, ___, ____, *rest: asked.append(rest))
    evaluate(agent, name, 2, 0)
    lives = wrappers is not None and game.episodic_life
    assert shown == [dataclasses.replace(game, **differs, episodic_life=lives, clip_rewards=False)]
    ((games, steps, at, _, _, noisy),) = asked
    assert (games, steps, at, noisy) == (episodes, env_steps, agent.epsilon if epsilon is None else epsilon, noise)


def test_an_agent_knows_the_wrappers_of_its_run(runs: TrainedRuns) -> None:
    agent = load_agent(runs["09"], CPU)
    assert isinstance(agent, Agent)
    assert agent.wrappers is None
    assert load_agent(runs["01"], CPU).wrappers == "classic"
    assert only_run(runs["01"].parent) == runs["01"]


@pytest.mark.parametrize("named", [None, "tests.helpers.own:Dots"])
def test_the_code_of_an_environment_is_not_loaded_because_a_run_says_so(runs: TrainedRuns, named: str | None) -> None:
    with pytest.raises(UserError, match=f"if you trust it, name it too: --game {TOY_CATCH}"):
        load_agent(runs["catch0"], CPU, named)


def test_another_game_than_the_runs_is_not_quietly_ignored(runs: TrainedRuns) -> None:
    with pytest.raises(UserError, match="plays pong, not breakout: --game repeats the name of an environment of one's"):
        load_agent(runs["09"], CPU, "breakout")


def test_a_share_epsilon_of_actions_is_any_of_them() -> None:
    found = explored(np.full(40_000, 7), 4, 0.2, np.random.default_rng(0))
    counts = np.bincount(found, minlength=8)
    assert counts[:4] == pytest.approx([2_000] * 4, abs=200)  # 4.5 standard deviations
    assert counts[7] == 40_000 - counts[:4].sum()


@pytest.mark.parametrize("nothing", [{"episodes": 0}, {"env_steps": 0}, {"num_envs": 0}])
def test_nothing_to_play_is_one_sentence(runs: TrainedRuns, nothing: dict[str, int]) -> None:
    """An emulator of no games would end the process."""
    with pytest.raises(UserError, match=f"{next(iter(nothing))} must be at least 1, not 0"):
        evaluate(load_agent(runs["09"], CPU), "training", **{"num_envs": 2, "seed": 0, **nothing})
