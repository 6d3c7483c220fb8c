"""What a run of several sessions, a trial, leaves behind: a picture of each session, one of all, and five measures.

The measures are those of SLM Lab (Keng & Graesser 2017; its documentation, "Performance Metrics"). With str_i, the mean
score of a session's last 100 games at point i less that of random play:

- strength: the mean of str_i;
- efficiency: sum(str_i / t_i) / sum(str_i), with the session's env steps t_i (sample efficiency) or updates (training
  efficiency);
- stability: 1 - |sum of min(str_i+1 - str_i, 0)| / sum(str_i), the sum below without its last;
- consistency: 1 - 2 sum(deviation of str_i over sessions) / sum(mean of str_i over sessions).

All but the last are means over sessions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn.envs.games import title_of
from fastdqn.errors import UserError
from fastdqn.runs.folder import saving, write_json
from fastdqn.runs.limits import WINDOW_EPISODES
from fastdqn.tools.evaluate import evaluate, load_agent
from fastdqn.tools.plot import COLORS, WIDTH
from fastdqn.tools.reading import whole_lines

POINTS = 100
"""Of a curve, evenly spaced in env steps."""
RANDOM_GAMES = 20
"""From whose mean a score counts."""

Curve = NDArray[np.float64]


class Curves(NamedTuple):
    """Sessions at the same points."""

    env_steps: Curve  # (points,), of each session
    updates: Curve  # (sessions, points)
    scores: Curve  # (sessions, points), the mean of a session's last games


def report_trial(run: Path, device: torch.device, seed: int) -> None:
    """Draw sessions.png and trial.png and write trial.json into the folder of a run, if every session has finished
    games.

    Raises:
        UserError: a picture cannot be written.
        RunError: the file cannot be.
    """
    lines = whole_lines((run / "episodes.jsonl").read_text(encoding="utf-8"))
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    count = config["sessions"]["sessions"]
    sessions = [[line for line in lines if line["session"] == number] for number in range(1, count + 1)]
    if any(len(of_one) < 2 for of_one in sessions):
        return
    curves = curves_of(sessions)
    score = evaluate(load_agent(run, device), "training", 1, seed, episodes=RANDOM_GAMES, epsilon=1.0)
    random = float(score.as_dict("")["mean"])
    with saving(run):
        write_json(run / "trial.json", {"sessions": count, "random": random, **measures(curves, random)})
    title = f"{title_of(config['game']['name'])}: {count} session{'s' if count > 1 else ''}"
    title = f"{title}, {config['sessions']['distributed']}, seed {seed}"
    draw_sessions(sessions, curves, title, run / "sessions.png")
    draw_trial(lines, curves, title, run / "trial.png")


def curves_of(sessions: list[list[dict[str, Any]]]) -> Curves:
    """Return the moving averages of sessions, each given by its finished games, where all have some."""
    columns = [
        (_column(lines, "session_env_steps"), _column(lines, "session_updates"), moving_average(lines))
        for lines in sessions
    ]
    first, last = max(steps[0] for steps, _, _ in columns), max(steps[-1] for steps, _, _ in columns)
    grid: Curve = np.linspace(float(first), float(last), POINTS)
    updates = np.stack([np.interp(grid, steps, made) for steps, made, _ in columns])
    return Curves(grid, updates, np.stack([np.interp(grid, steps, means) for steps, _, means in columns]))


def moving_average(lines: list[dict[str, Any]], games: int = WINDOW_EPISODES) -> Curve:
    """Return the mean score of the last `games` games at each of them, of all where there are fewer yet."""
    total = np.concatenate(([0.0], np.cumsum(_column(lines, "score"))))
    end = np.arange(1, len(lines) + 1)
    begin = np.maximum(end - games, 0)
    return (total[end] - total[begin]) / (end - begin)


def measures(curves: Curves, random: float) -> dict[str, float | None]:
    """Return the five measures of a trial; None for one that is not defined, as consistency of one session is not, nor
    a share of strength where there is none above random play's."""
    strengths = curves.scores - random
    totals, before = _above_zero(strengths.sum(axis=1)), _above_zero(strengths[:, :-1].sum(axis=1))
    drops = np.abs(np.minimum(np.diff(strengths, axis=1), 0.0).sum(axis=1))
    average = _above_zero(strengths.mean(axis=0).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {
            "strength": strengths.mean(),
            "sample_efficiency": ((strengths / curves.env_steps).sum(axis=1) / totals).mean(),
            "training_efficiency": ((strengths / np.maximum(curves.updates, 1.0)).sum(axis=1) / totals).mean(),
            "stability": (1.0 - drops / before).mean(),
            "consistency": 1.0 - 2.0 * strengths.std(axis=0).sum() / average if len(strengths) > 1 else np.nan,
        }
    return {name: float(value) if np.isfinite(value) else None for name, value in found.items()}


def draw_sessions(sessions: list[list[dict[str, Any]]], curves: Curves, title: str, out: Path) -> None:
    """Draw the games of each session as dots, and their moving averages as lines.

    Raises:
        UserError: the picture cannot be written.
    """
    figure, (axes,) = _panels(1, title)
    for i, (lines, scores) in enumerate(zip(sessions, curves.scores, strict=True)):
        color = COLORS[i % len(COLORS)]
        x = _column(lines, "session_env_steps")
        axes.plot(x, _column(lines, "score"), ".", color=color, markersize=3, alpha=0.4, markeredgewidth=0)
        axes.plot(curves.env_steps, scores, color=color, label=f"session {i + 1}")
    axes.set_xlabel("env steps of a session")
    axes.set_ylabel(f"score, and mean of the last {WINDOW_EPISODES} games")
    axes.legend(frameon=False, fontsize=9, ncols=4)
    _write(figure, out)


def draw_trial(lines: list[dict[str, Any]], curves: Curves, title: str, out: Path) -> None:
    """Draw the mean of the sessions and a band of one standard deviation over the env steps of a session, and the games
    of all over those in total.

    Raises:
        UserError: the picture cannot be written.
    """
    figure, (left, right) = _panels(2, title)
    mean, deviation = curves.scores.mean(axis=0), curves.scores.std(axis=0)
    left.plot(curves.env_steps, mean, color=COLORS[0])
    left.fill_between(curves.env_steps, mean - deviation, mean + deviation, color=COLORS[0], alpha=0.2, linewidth=0)
    left.set_xlabel("env steps of a session")
    left.set_ylabel(f"mean of the last {WINDOW_EPISODES} games")
    left.set_title("mean and deviation of sessions", fontsize=10)
    right.plot(_column(lines, "env_steps"), moving_average(lines), color=COLORS[1])
    right.set_xlabel("env steps in total")
    right.set_title("games of all sessions", fontsize=10)
    _write(figure, out)


def _panels(count: int, title: str) -> tuple[Any, list[Any]]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    plots: Any = pyplot
    figure, grid = plots.subplots(1, count, figsize=(WIDTH, 3.6), squeeze=False, layout="constrained")
    figure.suptitle(title, fontsize=12)
    for axes in grid[0]:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    return figure, list(grid[0])


def _write(figure: Any, out: Path) -> None:
    from matplotlib import pyplot

    try:
        figure.savefig(out, dpi=150)
    except (OSError, ValueError) as error:
        raise UserError(f"The picture {out} cannot be written: {error}.") from error
    finally:
        pyplot.close(figure)


def _above_zero(values: Any) -> Curve:
    return np.where(values > 0.0, values, np.nan)


def _column(lines: list[dict[str, Any]], name: str) -> Curve:
    return np.array([line[name] for line in lines], np.float64)
