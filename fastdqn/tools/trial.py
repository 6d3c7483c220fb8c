"""What a run of several sessions, a trial, leaves behind: a picture of each session, one of all, and five measures.

The measures are those of SLM Lab (Keng & Graesser 2017; kengz/SLM-Lab, slm_lab/experiment/analysis.py). With str_i, the
mean score of a session's last 100 games at point i less that of random play:

- strength: the mean of str_i (calc_strength);
- efficiency: sum(str_i / t_i) / sum(str_i), with the session's env steps t_i (sample efficiency) or updates (training
  efficiency); points before the first update are left out of the first sum (calc_efficiency, as it computes);
- stability: 1 - |sum of min(str_i+1 - str_i, 0)| / sum(str_i), the sum below without its last (calc_stability);
- consistency: 1 - 2 sum(sample standard deviation of str_i over sessions) / sum(mean of str_i over sessions)
  (calc_consistency).

All but the last are means over sessions (calc_trial_metrics).

Deviates: SLM Lab's points are its checkpoints, with the reward of the newest games alone, and the shortest session ends
them. Here they lie evenly between where all sessions have finished a game and the last game of all, and a session that
has ended keeps its last value: sessions finish games at env steps of their own, and a single score is noise. Efficiency
and stability depend on the points: compare them among trials of one length.
Deviates: random play is played here; SLM Lab has a table, or takes 0.
Deviates: a share of strength that is not above 0 has a sign that means nothing, and one session has no deviation. SLM
Lab gives numbers for both; here the measure is None, also where it is so of one session alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn import process, terminal
from fastdqn.envs.games import named_again, title_of
from fastdqn.errors import RunError, UserError
from fastdqn.runs.folder import write_json, write_whole
from fastdqn.runs.limits import WINDOW_EPISODES
from fastdqn.runs.run import Run
from fastdqn.tools.evaluate import Agent, evaluate, load_agent
from fastdqn.tools.pictures import drawing
from fastdqn.tools.plot import COLORS, WIDTH, style_of, tidy
from fastdqn.tools.reading import RunData, moving_average, read_run

POINTS = 100
"""Of a curve, evenly spaced in env steps."""
RANDOM_GAMES = 20
"""From whose mean a score counts."""
PATIENCE = 2.0
"""Seconds that random play may take after Ctrl-C."""

Curve = NDArray[np.float64]
Axis = Literal["session_env_steps", "env_steps"]
AXES: dict[Axis, str] = {"session_env_steps": "env steps of a session", "env_steps": "env steps of all sessions"}
"""What curves are drawn over."""


class Games(NamedTuple):
    """The finished games of a session in the order in which they ended, (games,) each."""

    score: Curve
    env_steps: Curve  # of all sessions by then
    session_env_steps: Curve
    session_updates: Curve


class Curves(NamedTuple):
    """Sessions at the same points."""

    env_steps: Curve  # (points,), of each session, or of all
    updates: Curve  # (sessions, points)
    scores: Curve  # (sessions, points), the mean of a session's last games


def finish_trial(run: Run) -> None:
    """Leave pictures and measures in the folder of a run that has ended, and say so, or why there are none.

    Raises:
        RunError: a file cannot be written.
    """
    try:
        with process.running():
            said = report_trial(run.folder, run.game)
    except UserError as error:
        said = f"no pictures of the sessions: {error}"
    terminal.console().print(said, soft_wrap=True)


def report_trial(folder: Path, own_game: str | None = None) -> str:
    """Draw sessions.png and trial.png and write trial.json into the folder of a run; return what to say of it.

    Where random play has not come to its end some seconds after Ctrl-C, there are no measures.

    Args:
        folder: of the run.
        own_game: the environment of one's own that may be loaded, as the command line says.

    Raises:
        UserError: it is not the folder of a run of sessions, their games make no curves, or it plays an environment of
            one's own that `own_game` does not say.
        RunError: a file cannot be written.
    """
    run = read_run(folder)
    sessions = sessions_of(run)
    agent = load_agent(folder, torch.device("cpu"), own_game, untrained=True)  # which refuses options that are none
    count = len(sessions)
    words = f"{count} session{'s' if count > 1 else ''}, {run.config['sessions']['distributed']}, seed {run.seed}"
    title = f"{title_of(run.game)}: {words}"
    with _writing(folder):
        with drawing():
            _write(sessions_figure(sessions, title), folder / "sessions.png")
            _write(trial_figure(sessions, run.curve("env_steps"), title), folder / "trial.png")
        random = _random_score(agent, run.seed)
        found = {"sessions": count, "random": random, **measures(curves_of(sessions), random)}
        write_json(folder / "trial.json", found)
    own = named_again(run.game)
    again = (
        f"; random play was stopped, and fastdqn plot {terminal.typed(folder)}{own} --what sessions makes the measures"
    )
    return f"{folder}: written: sessions.png, trial.png, trial.json{again if random is None else ''}"


def sessions_of(run: RunData) -> list[Games]:
    """Return the finished games of each session of a run.

    Raises:
        UserError: it is no run of sessions, its episodes.jsonl is damaged, a session has fewer than two games, or
            something that is counted falls.
    """
    count: Any = run.config.get("sessions", {}).get("sessions")
    if not isinstance(count, int):
        raise UserError(f"{run.folder} is not the folder of a run of sessions.")
    return [_games_of(run, number) for number in range(1, count + 1)]


def _games_of(run: RunData, number: int) -> Games:
    """Return the finished games of a session, the first is 1; raise what `sessions_of` raises."""
    lines = [line for line in run.episodes if line.get("session") == number]
    if len(lines) < 2:
        had = "one game" if lines else "no game"
        raise UserError(f"Session {number} of {run.folder} has finished {had}, and its curve takes two.")
    try:
        games = Games(*(np.array([line[name] for line in lines], np.float64) for name in Games._fields))
        if not all(np.isfinite(column).all() for column in games):
            raise ValueError("not finite")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{run.folder} is the folder of a run, but its episodes.jsonl is damaged.") from error
    fallen = [name for name in Games._fields[1:] if (np.diff(getattr(games, name)) < 0.0).any()]
    if fallen:
        raise UserError(
            f"In {run.folder / 'episodes.jsonl'} {fallen[0]} of session {number} falls, as where sessions began anew "
            "after their run was resumed: no curve can be drawn over it."
        )
    return games


def curves_of(sessions: Sequence[Games], over: Axis = "session_env_steps") -> Curves:
    """Return the moving averages of sessions, at points that begin where all have finished a game."""
    steps: list[Curve] = [getattr(games, over) for games in sessions]
    first, last = max(x[0] for x in steps), max(x[-1] for x in steps)
    grid: Curve = np.linspace(float(first), float(last), POINTS)
    updates = [np.interp(grid, x, games.session_updates) for x, games in zip(steps, sessions, strict=True)]
    scores = [np.interp(grid, x, moving_average(games.score)) for x, games in zip(steps, sessions, strict=True)]
    return Curves(grid, np.stack(updates), np.stack(scores))


def measures(curves: Curves, random: float | None) -> dict[str, float | None]:
    """Return the five measures of a trial by name; None for one that is not defined.

    Args:
        curves: over the env steps of a session.
        random: mean score of random play, if it is known.
    """
    strengths = curves.scores - (np.nan if random is None else random)
    totals, before = _above_zero(strengths.sum(axis=1)), _above_zero(strengths[:, :-1].sum(axis=1))
    drops = np.abs(np.minimum(np.diff(strengths, axis=1), 0.0).sum(axis=1))
    found = {
        "strength": strengths.mean(),
        "sample_efficiency": (_per(strengths, curves.env_steps).sum(axis=1) / totals).mean(),
        "training_efficiency": (_per(strengths, curves.updates).sum(axis=1) / totals).mean(),
        "stability": (1.0 - drops / before).mean(),
        "consistency": np.nan,
    }
    if len(strengths) > 1:
        average = _above_zero(strengths.mean(axis=0).sum())
        found["consistency"] = 1.0 - 2.0 * strengths.std(axis=0, ddof=1).sum() / average
    return {name: float(value) if np.isfinite(value) else None for name, value in found.items()}


def sessions_figure(sessions: Sequence[Games], title: str) -> Any:
    """Return a figure of the games of each session as dots, and of their moving averages as lines, over both axes."""
    figure, panels = _panels(title)
    for over, axes in panels.items():
        curves = curves_of(sessions, over)
        for i, (games, scores) in enumerate(zip(sessions, curves.scores, strict=True)):
            color, line = style_of(i)
            dots: dict[str, Any] = {"markersize": 3, "alpha": 0.4, "markeredgewidth": 0, "zorder": 1}
            axes.plot(getattr(games, over), games.score, ".", color=color, **dots)
            axes.plot(curves.env_steps, scores, color=color, linestyle=line, label=f"session {i + 1}")
    return _finished(figure, panels, f"score, and mean of the last {WINDOW_EPISODES} games")


def trial_figure(sessions: Sequence[Games], together: tuple[Curve, Curve], title: str) -> Any:
    """Return a figure of the mean of the sessions and a band of one standard deviation, over both axes.

    Args:
        sessions: their games.
        together: env steps of all sessions, and the mean of the last 100 games of all by then, (games,) both.
        title: of the figure.
    """
    figure, panels = _panels(title)
    for over, axes in panels.items():
        curves = curves_of(sessions, over)
        mean = curves.scores.mean(axis=0)
        axes.plot(curves.env_steps, mean, color=COLORS[0], label="mean of the sessions, 100 games of each")
        if len(sessions) > 1:
            deviation = curves.scores.std(axis=0, ddof=1)
            band: dict[str, Any] = {"color": COLORS[0], "alpha": 0.2, "linewidth": 0}
            words = "one standard deviation"
            axes.fill_between(curves.env_steps, mean - deviation, mean + deviation, label=words, **band)
    panels["env_steps"].plot(*together, color=COLORS[1], label="100 games of all")
    return _finished(figure, panels, f"mean of the last {WINDOW_EPISODES} games")


def _panels(title: str) -> tuple[Any, dict[Axis, Any]]:
    """Return an empty figure, and its panels by what they are drawn over."""
    from matplotlib.figure import Figure

    figure: Any = Figure(layout="constrained")
    figure.suptitle(title, fontsize=12)
    panels: list[Any] = list(figure.subplots(1, len(AXES), sharey=True))
    return figure, dict(zip(AXES, panels, strict=True))


def _finished(figure: Any, panels: Mapping[Axis, Any], y: str) -> Any:
    """Return `figure` with labels of its axes, and a legend of all lines below them."""
    named: dict[str, Any] = {}
    for over, axes in panels.items():
        tidy(axes)
        unit, size = ("million", 1e6) if axes.get_xlim()[1] > 2e6 else ("thousand", 1e3)
        axes.xaxis.set_major_formatter(partial(_tick, size))
        axes.set_xlabel(f"{unit} {AXES[over]}")
        for line, words in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(words, line)
    panels["session_env_steps"].set_ylabel(y)
    columns = min(len(named), 7)
    figure.set_size_inches(WIDTH, 3.9 + 0.2 * math.ceil(len(named) / columns))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(named.values(), named.keys(), **place)
    return figure


def _tick(size: float, value: float, _: int | None = None) -> str:
    """Return what stands at a tick of an axis whose unit is `size`."""
    return f"{value / size:,.10g}"


def _write(figure: Any, out: Path) -> None:
    """Write a picture, whole or not at all."""
    write_whole(out, lambda unfinished: figure.savefig(unfinished, dpi=150, format="png"))


@contextlib.contextmanager
def _writing(folder: Path) -> Generator[None]:
    """Raise RunError for what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise RunError(f"Cannot write to {folder}: {error.strerror or error}.") from error


def _random_score(agent: Agent, seed: int) -> float | None:
    """Return the mean score of random play in an agent's game, None if Ctrl-C ends it before its time."""
    began = time.monotonic()

    def stop() -> str | None:
        return "interrupted" if process.stop_signal() and time.monotonic() - began > PATIENCE else None

    score = evaluate(agent, "training", 1, seed, episodes=RANDOM_GAMES, epsilon=1.0, stop=stop)
    return None if score.stopped else float(score.as_dict("")["mean"])


def _per(strengths: Curve, made: Curve) -> Curve:
    """Return strengths (sessions, points) by env steps or updates, 0 where there is none yet."""
    return np.divide(strengths, made, out=np.zeros_like(strengths), where=made >= 1.0)


def _above_zero(values: Any) -> Curve:
    return np.where(values > 0.0, values, np.nan)
