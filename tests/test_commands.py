"""The command `fastdqn`: evaluation, videos, plots, tables, and every mistake as one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import safetensors.torch
import torch

from fastdqn.compare import bootstrap, interquartile_mean
from fastdqn.config import SCRIPT_OPTIONS, FastOptions, options_from
from fastdqn.envs.games import rom_names
from fastdqn.envs.make import make_env
from fastdqn.envs.scores import REFERENCES, human_normalised
from fastdqn.envs.vector import distinct_seeds
from fastdqn.errors import UserError
from fastdqn.evaluate import Agent, Score, View, WrappedSeats, _play, evaluate, load_agent
from fastdqn.plot import common_grid, grouped, read_run
from fastdqn.types import EpisodeEnd
from tests.scripts import ROOT, only_run, train

CPU = torch.device("cpu")
SHORT = ("--replay-initial", "100", "--batch-size", "2", "--target-sync", "50", "--max-env-steps", "140")


def fastdqn(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastdqn.commands", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # where tests.toys is
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of 01 and one of 09 on Pong, hardly trained, and two of Catch that differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    found = {
        "09": train("09_cuda_graph", folder / "09", *SHORT, "--num-envs", "4", "--max-frames", "240"),
        "01": train("01_baseline", folder / "01", *SHORT, "--game", "breakout", "--max-frames", "240"),
    }
    for seed in ("0", "1"):
        words = ("--game", "tests.toys:Catch", "--seed", seed, "--frame-size", "42", "--replay-size", "1000")
        found[f"catch{seed}"] = train("09_cuda_graph", folder / f"catch{seed}", *SHORT, *words)
    return found


# Scores


def test_human_normalised_scores_reproduce_published_ones() -> None:
    """DQN of Wang et al. 2016, table 2 (raw) and what van Hasselt et al. 2015 call the normalised score."""
    assert human_normalised("breakout", 385.5) == pytest.approx(13.33, abs=0.01)
    assert human_normalised("pong", 19.5) == pytest.approx(1.139, abs=0.001)
    assert human_normalised("seaquest", 5860.6) == pytest.approx(0.138, abs=0.001)
    for name, reference in REFERENCES.items():
        assert human_normalised(name, reference.human) == 1.0
        assert human_normalised(name, reference.random) == 0.0
    assert len(REFERENCES) == 57
    assert set(REFERENCES) <= set(rom_names())
    assert human_normalised("catch", 1.0) is None


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -50.0])) == 3.5  # two cut at each end
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == 4.0  # a quarter of three is less than one
    assert bootstrap(np.array([5.0, 5.0, 5.0])) == (5.0, 5.0, 5.0)
    interval = bootstrap(np.arange(20.0))
    assert interval.low < interval.value == 9.5 < interval.high


# Evaluation


class Lengths:
    """Seats whose games have the lengths that they are given, in the order in which they begin, and score them."""

    def __init__(self, lengths: list[int], count: int) -> None:
        self.lengths, self.count = iter(lengths), count
        self.left = np.array([next(self.lengths) for _ in range(count)])
        self.total = self.left.copy()

    def reset(self) -> torch.Tensor:
        return torch.zeros(self.count, 4, 84, 84, dtype=torch.uint8)

    def step(self, actions: np.ndarray) -> tuple[torch.Tensor, list[EpisodeEnd | None], np.ndarray]:
        self.left -= 1
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
        def greedy(obs: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(obs), dtype=torch.int64)


def played(
    lengths: list[int], count: int, episodes: int | None, env_steps: int | None = None, stop: Any = None
) -> Score:
    seats: Any = Lengths(lengths, count)
    agent: Any = NoAgent()
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
    score = played([10**6, 10, *[10] * 1000], 2, 500, stop=lambda: next(calls))
    assert (score.games, score.stopped) == ([], "interrupted")
    calls = iter([None, "interrupted"])
    score = played([10, 10**6, *[10] * 1000], 2, 500, stop=lambda: next(calls))
    assert len(score.games) == 1


def test_no_finished_game_is_no_score() -> None:
    score = played([10**6] * 10, 2, 5, stop=lambda: "max-minutes")
    assert (score.games, score.stopped) == ([], "max-minutes")
    said = score.as_dict("pong")
    assert (said["games"], said["mean"], said["human_normalised"]) == (0, None, None)


def test_scores_by_hand() -> None:
    score = Score([EpisodeEnd(s, 100, s > 2) for s in (1.0, 2.0, 6.0)], 75, 1.0, None)
    said = score.as_dict("pong")
    assert (said["mean"], said["median"], said["truncated"]) == (3.0, 2.0, 1)
    assert said["standard_error"] == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert said["human_normalised"] == pytest.approx(23.7 / 35.3)


@pytest.mark.parametrize("name", ["09", "01", "catch0"])
def test_one_game_at_once_and_many_agree(runs: dict[str, Path], name: str) -> None:
    """Under random play, so that there is something to average; games are cut at 240 frames."""
    agent = load_agent(runs[name], CPU)
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
    words = ("--game", "tests.toys:Counter", "--replay-size", "1000", *SHORT)
    agent = load_agent(train(script, tmp_path, *words), CPU)
    games = evaluate(agent, "training", 2, 0, 6).games
    assert len(games) == 6
    assert all(game.frames == 37 and game.score > 37 * 10 for game in games)


def test_what_an_agent_sees_is_what_its_run_saw(runs: dict[str, Path]) -> None:
    """06 and later: zeros before a game's first frame; 01 to 05: copies of it, and 01's frames are the cropped ones."""
    newest = range(1, 9)
    stacks = [np.stack([np.full((2, 2), max(1, v - 3 + i), np.uint8) for i in range(4)]) for v in newest]
    blank, plain = View(True), View(False)
    shown = [blank.first(stacks[0]), *(blank.next(stack) for stack in stacks[1:])]
    assert [frame[0, 0] for frame in shown[0]] == [0, 0, 0, 1]
    assert [frame[0, 0] for frame in shown[1]] == [0, 0, 1, 2]
    assert [frame[0, 0] for frame in shown[5]] == [3, 4, 5, 6]
    assert [frame[0, 0] for frame in plain.first(stacks[0])] == [1, 1, 1, 1]
    agent = load_agent(runs["01"], CPU)
    seats = WrappedSeats(agent, agent.options.protocol, 1, 5)
    env = make_env("breakout", agent.options.protocol, "classic")
    first = np.asarray(env.reset(seed=int(distinct_seeds(np.random.SeedSequence(5), 1)[0]))[0])
    np.testing.assert_array_equal(seats.reset()[0].numpy(), first)
    for action in (1, 2, 3, 0, 2):
        obs, *_ = env.step(action)
        np.testing.assert_array_equal(seats.step(np.array([action]))[0][0].numpy(), np.asarray(obs))


def test_an_agent_that_acts_with_its_target_is_loaded_whole(tmp_path: Path) -> None:
    words = (
        "--act-with",
        "target",
        "--target-average",
        "0.5",
        "--network",
        "small",
        "--frame-size",
        "42",
        "--num-envs",
        "4",
    )
    run = train("10_rainbow", tmp_path, *SHORT, *words, "--report-env-steps", "50")
    agent = load_agent(run, CPU)
    kept = safetensors.torch.load_file(run / "weights.safetensors")
    for network in (agent.learner.network, agent.learner.target):
        assert all(torch.equal(kept[name], tensor) for name, tensor in network.state_dict().items())
    assert agent.learner.actor is agent.learner.target


def test_each_protocol_and_what_does_not_fit(runs: dict[str, Path]) -> None:
    agent = load_agent(runs["09"], CPU)
    for name in ("training", "nature"):
        assert len(evaluate(agent, name, 2, 0, 2, epsilon=1.0).games) == 2
    with pytest.raises(UserError, match="has 18 actions, but this agent has learnt 6"):
        evaluate(agent, "machado", 2, 0, 2)
    with pytest.raises(UserError, match="no protocol called 'moon'"):
        evaluate(agent, "moon", 2, 0, 2)


def test_options_survive_config_json(runs: dict[str, Path]) -> None:
    said = json.loads((runs["09"] / "config.json").read_text())
    options = options_from(said)
    assert isinstance(options, FastOptions)
    assert (options.num_envs, options.protocol.max_frames, options.dqn.batch_size) == (4, 240, 2)
    assert sorted(SCRIPT_OPTIONS) == sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py"))
    with pytest.raises(UserError, match="'moon'"):
        options_from({**said, "moon": 3})
    with pytest.raises(UserError, match="no script called '99'"):
        options_from({**said, "script": "99"})


# Commands


def test_help_is_quick_and_complete() -> None:
    fastest = 99.0
    for _ in range(3):
        begin = time.perf_counter()
        done = fastdqn("--help")
        fastest = min(fastest, time.perf_counter() - begin)
    assert fastest < 1.5  # on one busy core; LOG.md has the figure of a quiet one
    for command in ("evaluate", "watch", "plot", "compare", "games"):
        assert command in done.stdout
    for command, option in (("evaluate", "--protocol"), ("watch", "--values"), ("plot", "--what"), ("games", "NAME")):
        said = fastdqn(command, "--help")
        assert said.returncode == 0
        assert option.lower() in said.stdout.lower()


def test_evaluate_says_and_writes_what_it_found(runs: dict[str, Path]) -> None:
    done = fastdqn("evaluate", str(runs["09"]), "--episodes", "3", "--num-envs", "2")
    assert done.returncode == 0, done.stderr
    assert "3 games" in done.stdout
    assert "from random play to a person" in done.stdout
    said = json.loads((runs["09"] / "evaluation-training.json").read_text())
    assert (said["games"], said["protocol"], len(said["scores"])) == (3, "training", 3)
    nothing = fastdqn("evaluate", str(runs["09"]), "--protocol", "nature", "--max-minutes", "0.00001")
    assert "No game has finished" in nothing.stdout


@pytest.mark.parametrize("name", ["game.mp4", "game.gif"])
def test_watch_records_a_game(runs: dict[str, Path], tmp_path: Path, name: str) -> None:
    words = ("--values", "--max-env-steps", "40") if name.endswith("gif") else ()
    done = fastdqn("watch", str(runs["09"]), "--out", str(tmp_path / name), *words)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    video: Any = cv2.VideoCapture(str(tmp_path / name))
    frames = []
    while True:
        ok, frame = video.read()
        if not ok:
            break
        frames.append(frame)
    assert len(frames) >= 38
    assert frames[0].shape == ((630, 480, 3) if name.endswith("mp4") else (315, 350, 3))
    assert max(float(np.abs(f.astype(int) - frames[0]).max()) for f in frames) > 50  # something moves


def test_plot_and_compare(runs: dict[str, Path], tmp_path: Path) -> None:
    folders = [str(runs[name]) for name in ("catch0", "catch1")]
    for what in ("score", "speed"):
        done = fastdqn("plot", *folders, "--out", str(tmp_path / f"{what}.png"), "--what", what)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{what}.png").read_bytes()[:4] == b"\x89PNG"
    assert fastdqn("plot", *folders, "--out", str(tmp_path / "x.svg"), "--each").returncode == 0
    table = fastdqn("compare", *folders).stdout
    assert "IQM of 2 runs" in table
    assert table.count("max-env-steps") == 2


def test_runs_are_grouped_by_what_differs(runs: dict[str, Path]) -> None:
    first, second = read_run(runs["catch0"]), read_run(runs["catch1"])
    assert [len(group) for group in grouped([first, second]).values()] == [2]
    other = second._replace(config={**second.config, "dqn": {**second.config["dqn"], "n_step": 7}})
    assert [label.rsplit(", ", 1)[-1] for label in grouped([first, other])] == ["n-step 1", "n-step 7"]


def test_common_grid_by_hand() -> None:
    a = (np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    b = (np.array([5.0, 20.0]), np.array([1.0, 1.0]))
    grid, curves = common_grid([a, b])
    assert (grid[0], grid[-1]) == (5.0, 20.0)
    assert curves[0, 0] == 5.0
    assert curves[0, -1] == 10.0  # a run that has ended goes on with its last value
    assert curves[1].tolist() == [1.0] * len(grid)


def test_games_lists_them() -> None:
    done = fastdqn("games", "invaders")
    assert "space_invaders" in done.stdout
    assert "1,668.7" in done.stdout
    assert " 6 " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "moon"), "moon is not the folder of a run"),
        (("evaluate", "latest"), "no run in the folder runs"),
        (("evaluate", "RUN", "--protocol", "moon"), "invalid choice 'moon'"),
        (("evaluate", "RUN", "--episodes", "0"), "--episodes must be at least 1"),
        (("evaluate", "RUN", "--episodes", "3", "--env-steps", "3"), "contradict each other"),
        (("evaluate", "RUN", "--epsilon", "2"), "--epsilon between 0 and 1"),
        (("evaluate", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "CATCH", "--protocol", "nature"), "has rules of its own"),
        (("evaluate", "SHAPELESS"), "The run's options are damaged"),
        (("plot", "SHAPELESS"), "config.json is damaged"),
        (("watch", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "RUN", "--device", "moon"), "--device moon is not a device"),
        (("evaluate", "RUN", "--protocol", "machado"), "has 18 actions"),
        (("evaluate", "BROKEN"), "is damaged"),
        (("evaluate", "EMPTY"), "is not the folder of a run"),
        (("watch", "RUN", "--out", "game.avi"), "must end in .mp4 or .gif"),
        (("watch", "RUN", "--out", "no/such/folder/game.mp4"), "there is no folder"),
        (("plot",), "at least one run"),
        (("plot", "moon"), "moon is not the folder of a run"),
        (("plot", "EMPTY"), "is not the folder of a run"),
        (("plot", "RUN", "--out", "x.moon"), "cannot be written"),
        (("compare", "moon"), "moon is not the folder of a run"),
        (("games", "moon"), "There is no game with 'moon'"),
        (("dance",), "dance"),
    ],
)
def test_mistakes_are_one_sentence(runs: dict[str, Path], tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "empty").mkdir()
    if "BROKEN" in words:
        shutil.copytree(runs["09"], tmp_path / "broken")
        weights = tmp_path / "broken" / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    places = {"RUN": runs["catch0" if words[0] == "plot" else "09"], "BROKEN": tmp_path / "broken"}
    places["EMPTY"] = tmp_path / "empty"
    places["CATCH"] = runs["catch0"]
    if "SHAPELESS" in words:
        shutil.copytree(runs["catch0"], tmp_path / "shapeless")
        (tmp_path / "shapeless" / "config.json").write_text('{"script": "09_cuda_graph", "run": 3}')
    places["SHAPELESS"] = tmp_path / "shapeless"
    done = fastdqn(*(str(places.get(word, word)) for word in words), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_an_agent_knows_the_wrappers_of_its_run(runs: dict[str, Path]) -> None:
    agent = load_agent(runs["09"], CPU)
    assert isinstance(agent, Agent)
    assert agent.wrappers is None
    assert load_agent(runs["01"], CPU).wrappers == "classic"
    assert only_run(runs["01"].parent) == runs["01"]
