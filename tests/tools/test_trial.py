"""What a trial leaves behind: curves of sessions, the five measures with numbers by hand, pictures, best weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import plain
from fastdqn.runs.best import Best
from fastdqn.runs.folder import FORMAT
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.weights import read_weights, write_weights
from fastdqn.tools import evaluate, trial
from fastdqn.tools.evaluate import load_agent
from fastdqn.tools.reading import moving_average, read_run
from fastdqn.tools.trial import (
    Curves,
    Games,
    curves_of,
    finish_trial,
    measures,
    report_trial,
    sessions_figure,
    sessions_of,
    trial_figure,
)
from tests.helpers.control import Reach, registered
from tests.helpers.scripts import SESSIONS, fastdqn_says, parse

CPU = torch.device("cpu")
OVER = ("thousand env steps of a session", "thousand env steps of all sessions")
FILES = ["sessions.png", "trial.json", "trial.png"]


def line(score: float, steps: int, session: int = 1, **changes: Any) -> dict[str, Any]:
    where = {"session": session, "session_env_steps": steps, "session_updates": steps // 2}
    return {"score": score, "mean_100": score, "env_steps": 2 * steps, "elapsed": 1.0, **where, **changes}


def two(count: int = 8) -> list[dict[str, Any]]:
    """Games of two sessions, 10 env steps each, whose scores rise by 1; the second one does not finish its first."""
    return [line(float(i), 10 * i, number) for i in range(1, count) for number in (1, 2)[: 1 if i == 1 else 2]]


def make_trial(folder: Path, lines: list[dict[str, Any]], *words: str) -> Path:
    """Make the folder of a run of 32 whose sessions have finished these games, of 10 env steps each."""
    folder.mkdir()
    options = plain(parse(SESSIONS, "--sessions", "2", "--max-frames", "10", *words))
    config = {"format": FORMAT, "script": SESSIONS, "wrappers": "vector", **options}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "episodes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def games(scores: list[float], steps: list[float], total: list[float]) -> Games:
    return Games(np.array(scores), np.array(total), np.array(steps), np.array(steps))


class Shown(Reach):
    """It can be watched."""

    def render(self) -> Any:
        return np.zeros((4, 4, 3), np.uint8)


def test_moving_averages_are_of_the_last_games() -> None:
    scores = np.array([1.0, 3.0, 5.0, 7.0])
    assert moving_average(scores).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert moving_average(scores, games=2).tolist() == [1.0, 2.0, 4.0, 6.0]


def test_measures_by_hand() -> None:
    """Two sessions, three points, random play at 1: strengths 1, 3, 2 and 3, 3, 4.

    Of two numbers that differ by 2 the sample standard deviation, which SLM Lab takes, is the root of 2.
    """
    curves = Curves(
        np.array([10.0, 20.0, 40.0]), np.array([[1.0, 2.0, 4.0]] * 2), np.array([[2.0, 4.0, 3.0], [4.0, 4.0, 5.0]])
    )
    found = measures(curves, 1.0)
    assert found["strength"] == pytest.approx(16 / 6)
    first, second = (0.1 + 0.15 + 0.05) / 6, (0.3 + 0.15 + 0.1) / 10
    assert found["sample_efficiency"] == pytest.approx((first + second) / 2)
    assert found["training_efficiency"] == pytest.approx(10 * (first + second) / 2)
    assert found["stability"] == pytest.approx((1 - 1 / 4 + 1) / 2)
    assert found["consistency"] == pytest.approx(1 - 2 * (np.sqrt(2) + 0 + np.sqrt(2)) / (2 + 3 + 3))


def test_points_before_the_first_update_are_no_training_efficiency() -> None:
    """Strengths 2, 2, 4, of which the first had no update yet; it counts below, and env steps count it."""
    curves = Curves(np.array([1.0, 2.0, 4.0]), np.array([[0.0, 1.0, 2.0]]), np.array([[2.0, 2.0, 4.0]]))
    found = measures(curves, 0.0)
    assert found["training_efficiency"] == pytest.approx((2 / 1 + 4 / 2) / 8)
    assert found["sample_efficiency"] == pytest.approx((2 / 1 + 2 / 2 + 4 / 4) / 8)


def test_one_session_has_no_consistency() -> None:
    curves = Curves(np.array([1.0, 2.0]), np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
    assert measures(curves, 0.0)["consistency"] is None
    assert measures(curves, 0.0)["stability"] == 1.0


def test_sessions_weaker_than_random_play_have_strength_alone() -> None:
    curves = Curves(np.array([1.0, 2.0]), np.array([[1.0, 2.0]] * 2), np.array([[1.0, 2.0], [5.0, 6.0]]))
    found = measures(curves, 4.0)
    assert found.pop("strength") == pytest.approx(-0.5)
    assert set(found.values()) == {None}
    assert set(measures(curves, None).values()) == {None}


def test_curves_begin_where_all_sessions_have_games(tmp_path: Path) -> None:
    sessions = sessions_of(read_run(make_trial(tmp_path / "run", two())))
    curves = curves_of(sessions)
    assert (curves.env_steps[0], curves.env_steps[-1]) == (20.0, 70.0)
    assert curves.scores[:, 0].tolist() == [1.5, 2.0]
    assert curves.updates[:, -1].tolist() == [35.0, 35.0]
    total = curves_of(sessions, "env_steps")
    assert (total.env_steps[0], total.env_steps[-1]) == (40.0, 140.0)
    np.testing.assert_allclose(total.scores, curves.scores)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"session_env_steps": 5}, r"session_env_steps of session 1 falls, .* no curve can be drawn over it\.$"),
        ({"session_updates": 0}, "session_updates of session 1 falls"),
        ({"env_steps": 3}, "env_steps of session 1 falls"),
        ({"session_env_steps": float("nan")}, "its episodes.jsonl is damaged"),
        ({"session_env_steps": "x"}, "its episodes.jsonl is damaged"),
        ({"session_updates": 10**400}, "its episodes.jsonl is damaged"),
        ({"session": 2}, "Session 1 of .* has finished one game, and its curve takes two"),
        ({}, None),
    ],
)
def test_curves_that_would_be_nonsense_are_refused(tmp_path: Path, changes: dict[str, Any], said: str | None) -> None:
    lines = [line(1.0, 10, 2), line(2.0, 20, 2), line(1.0, 20), line(2.0, 30) | changes]
    run = read_run(make_trial(tmp_path / "run", lines))
    if said is None:
        assert len(sessions_of(run)) == 2
        return
    with pytest.raises(UserError, match=said):
        sessions_of(run)


def test_a_run_without_sessions_is_refused(tmp_path: Path) -> None:
    folder = make_trial(tmp_path / "run", two())
    config = json.loads((folder / "config.json").read_text())
    del config["sessions"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="is not the folder of a run of sessions"):
        sessions_of(read_run(folder))


def test_each_session_is_drawn_over_both_axes() -> None:
    sessions = [games([1.0, 2.0], [10.0, 20.0], [15.0, 40.0]), games([4.0, 8.0], [10.0, 30.0], [20.0, 50.0])]
    figure = sessions_figure(sessions, "Pendulum-v1: 2 sessions")
    left, right = figure.axes
    assert figure.get_suptitle() == "Pendulum-v1: 2 sessions"
    assert (left.get_xlabel(), right.get_xlabel()) == OVER
    assert left.get_ylabel() == "score, and mean of the last 100 games"
    assert [text.get_text() for text in figure.legends[0].texts] == ["session 1", "session 2"]
    for axes, begin, end in ((left, 10.0, 30.0), (right, 20.0, 50.0)):
        dots, curves = axes.lines[::2], axes.lines[1::2]
        assert [dot.get_ydata().tolist() for dot in dots] == [[1.0, 2.0], [4.0, 8.0]]
        assert [(curve.get_xdata()[0], curve.get_xdata()[-1]) for curve in curves] == [(begin, end)] * 2
        assert [curve.get_ydata()[-1] for curve in curves] == [1.5, 6.0]
        assert len({curve.get_color() for curve in curves}) == 2
    assert [dot.get_xdata().tolist() for dot in right.lines[::2]] == [[15.0, 40.0], [20.0, 50.0]]


def test_sessions_of_one_colour_differ_in_their_lines() -> None:
    figure = sessions_figure([games([1.0, 2.0], [10.0, 20.0], [10.0, 20.0])] * 9, "nine")
    curves = figure.axes[0].lines[1::2]
    assert len({(curve.get_color(), str(curve.get_linestyle())) for curve in curves}) == 9
    assert len(figure.legends[0].texts) == 9


def test_units_suit_what_is_drawn() -> None:
    sessions = [games([1.0, 2.0], [10.0, 1e6], [15.0, 16e6])] * 2
    left, right = sessions_figure(sessions, "long").axes
    assert (left.get_xlabel(), right.get_xlabel()) == (OVER[0], "million env steps of all sessions")
    assert [axes.xaxis.get_major_formatter()(value) for axes, value in ((left, 2e5), (right, 5e6))] == ["200", "5"]


def test_mean_and_band_are_drawn_over_both_axes() -> None:
    """At the end the sessions are at 1.5 and 6: a mean of 3.75, and a sample standard deviation of 4.5 / root of 2."""
    sessions = [games([1.0, 2.0], [10.0, 20.0], [15.0, 40.0]), games([4.0, 8.0], [10.0, 30.0], [20.0, 50.0])]
    together = np.array([15.0, 20.0, 40.0, 50.0]), np.array([1.0, 2.5, 2.3, 3.75])
    figure = trial_figure(sessions, together, "Pendulum-v1: 2 sessions")
    left, right = figure.axes
    assert figure.get_suptitle() == "Pendulum-v1: 2 sessions"
    assert (left.get_xlabel(), right.get_xlabel()) == OVER
    assert left.get_ylabel() == "mean of the last 100 games"
    words = ["mean of the sessions, 100 games of each", "one standard deviation", "100 games of all"]
    assert [text.get_text() for text in figure.legends[0].texts] == words
    assert (len(left.lines), len(right.lines)) == (1, 2)
    assert right.lines[1].get_ydata().tolist() == together[1].tolist()
    for axes, end in ((left, 30.0), (right, 50.0)):
        assert (axes.lines[0].get_xdata()[-1], axes.lines[0].get_ydata()[-1]) == (end, 3.75)
        (band,) = axes.collections
        edge = [y for x, y in band.get_paths()[0].vertices if x == end]
        assert (min(edge), max(edge)) == pytest.approx((3.75 - 4.5 / np.sqrt(2), 3.75 + 4.5 / np.sqrt(2)))


def test_one_session_has_no_band() -> None:
    alone = games([1.0, 2.0], [10.0, 20.0], [10.0, 20.0])
    figure = trial_figure([alone], (alone.env_steps, alone.score), "one")
    assert [len(axes.collections) for axes in figure.axes] == [0, 0]
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "mean of the sessions, 100 games of each",
        "100 games of all",
    ]


def test_a_run_gets_pictures_and_measures_afterwards(tmp_path: Path) -> None:
    """By the command, of a run that was interrupted or failed: it needs no weights and no summary."""
    run = make_trial(tmp_path / "run", two())
    done = fastdqn_says("plot", str(run), "--what", "sessions")
    assert (done.returncode, done.stdout) == (0, f"{run}: written: sessions.png, trial.png, trial.json\n")
    assert sorted(path.name for path in run.iterdir()) == sorted(["config.json", "episodes.jsonl", *FILES])
    assert all((run / name).read_bytes()[:4] == b"\x89PNG" for name in FILES[::2])
    found = json.loads((run / "trial.json").read_text())
    assert (found.pop("sessions"), found["random"] < 0.0) == (2, True)
    assert found == {"random": found["random"], **measures(curves_of(sessions_of(read_run(run))), found["random"])}
    assert None not in found.values()


def test_the_command_names_runs_without_curves(tmp_path: Path) -> None:
    run, short = make_trial(tmp_path / "run", two()), make_trial(tmp_path / "short", two(3))
    why = f"Session 2 of {short} has finished one game, and its curve takes two."
    alone = fastdqn_says("plot", str(short), "--what", "sessions")
    assert (alone.returncode, alone.stderr) == (2, f"error: {why}\n")
    both = fastdqn_says("plot", str(tmp_path), "--what", "sessions")
    assert (both.returncode, both.stderr) == (0, f"left out: {why}\n")
    assert (run / "trial.png").exists()
    for words in (("--out", "x.png"), ("--over", "minutes"), ("--each",), ("--mean-of", "3")):
        done = fastdqn_says("plot", str(run), "--what", "sessions", *words)
        assert done.returncode == 2
        assert done.stderr.startswith("error: --what sessions writes into the folder of the run; ")


def test_a_run_without_curves_says_so_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_trial(tmp_path / "run", two(3))
    run: Any = SimpleNamespace(folder=folder, game="Pendulum-v1")
    finish_trial(run)
    said = f"no pictures of the sessions: Session 2 of {folder} has finished one game, and its curve takes two.\n"
    assert capsys.readouterr().out == said
    assert not list(folder.glob("*.png"))


def test_a_run_that_has_ended_may_load_the_environment_that_it_has_played(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(trial, "report_trial", lambda *words: told.append(words) or "")
    run: Any = SimpleNamespace(folder=Path("run"), game="mine:Mine-v0")
    finish_trial(run)
    assert told == [(Path("run"), "mine:Mine-v0")]


@pytest.mark.parametrize("patience", [0.0, 1e9])
def test_after_ctrl_c_random_play_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    run = make_trial(tmp_path / "run", two())
    monkeypatch.setattr(process, "_first", 2)
    monkeypatch.setattr(trial, "PATIENCE", patience)
    monkeypatch.setattr(evaluate, "LOOK_SECONDS", 0.0)  # it looks after each step
    said = report_trial(run)
    found = json.loads((run / "trial.json").read_text())
    assert all((run / name).exists() for name in FILES)
    assert (found["random"] is None) == (found["strength"] is None) == (patience == 0.0)
    assert said.endswith(f"fastdqn plot {run} --what sessions makes the measures") == (patience == 0.0)


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    run = make_trial(tmp_path / "run", two())
    (run / "trial.png").mkdir()
    with pytest.raises(RunError, match=r"^Cannot write to .*run: Is a directory\.$"):
        report_trial(run)


def test_the_best_weights_are_those_of_the_best_hundred_games(tmp_path: Path) -> None:
    weights = {"w": torch.zeros(1)}
    best = Best(tmp_path, weights)
    stop = StopTest(Limits(None, None, None))
    for _ in range(99):
        stop.add(50.0)
    best.look(stop)  # of fewer games
    best.save()
    assert not list(tmp_path.iterdir())
    for mean, value in ((1.0, 1.0), (3.0, 2.0), (2.0, 3.0)):
        weights["w"].fill_(value)
        for _ in range(100):
            stop.add(mean)
        best.look(stop)
    state = best.state()
    assert read_weights(tmp_path, "best.safetensors")["w"].tolist() == [2.0]
    other = Best(tmp_path, weights)
    other.load(state)
    other.look(stop)  # a mean of 2
    assert other.mean == 3.0
    assert other.state()["weights"]["w"].tolist() == [2.0]


@pytest.fixture
def shown() -> Iterator[str]:
    """The name of a game that can be watched."""
    with registered(Shown=Shown):
        yield "Shown-v0"


def test_evaluate_and_watch_take_the_best_weights(tmp_path: Path, shown: str) -> None:
    run = make_trial(tmp_path / "run", two(), "--game", shown)
    newest = load_agent(run, CPU, untrained=True).learner.network.state_dict()
    write_weights(run / "weights.safetensors", newest)
    words = ("--weights", "best")
    evaluated = fastdqn_says("evaluate", str(run), "--games", "2", *words)
    why = f"error: {run} has no best.safetensors; runs of sessions keep it, from when 100 games count.\n"
    assert (evaluated.returncode, evaluated.stderr) == (2, why)
    write_weights(run / "best.safetensors", {name: tensor + 1.0 for name, tensor in newest.items()})
    for best in (False, True):
        found = load_agent(run, CPU, best=best).learner.network.state_dict()
        assert all(torch.equal(tensor, newest[name] + float(best)) for name, tensor in found.items())
    scores = [_scores(run, *chosen) for chosen in ((), words)]
    assert scores[0] != scores[1]
    video = ("--out", str(tmp_path / "x.gif"), "--max-env-steps", "3")
    watched = fastdqn_says("watch", str(run), *video, *words)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.startswith(f"{run}, best weights: a game of 3 env steps")
    refused = fastdqn_says("watch", str(run), *video, *words, "--untrained")
    assert refused.stderr == "error: --weights best and --untrained contradict each other; give one of them.\n"


def _scores(run: Path, *words: str) -> list[float]:
    """Return what two games score, from the file that `fastdqn evaluate` has written."""
    done = fastdqn_says("evaluate", str(run), "--games", "2", *words)
    assert done.returncode == 0, done.stderr
    name = f"{'best-' if words else ''}evaluation-training.json"
    assert name in done.stdout
    return json.loads((run / name).read_text())["scores"]
