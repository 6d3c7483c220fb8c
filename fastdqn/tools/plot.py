"""Learning curves: one run or many, over env steps and over wall time, seeds of one kind as a mean and a band."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.errors import UserError
from fastdqn.options.groups import learnt_by
from fastdqn.runs.folder import read_config

GRID = 400  # points of a mean curve
NAMED = ("seed", "name", "agent", "variant")
"""Options that change what is learnt, but are said in another way: by the band, or at the beginning of the label."""


class RunData(NamedTuple):
    """What a run's folder says."""

    folder: Path
    config: dict[str, Any]
    episodes: list[dict[str, Any]]  # in the order in which they finished, at least one
    summary: dict[str, Any] | None  # None while the run is going on

    def curve(self, axis: str, games: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `axis` ("env_steps" or "elapsed") when each game ended, and the mean score of the last `games` games
        by then, of all where there are fewer yet, as two arrays of one length.
        """
        x, score = (np.array([episode[name] for episode in self.episodes], np.float64) for name in (axis, "score"))
        total = np.concatenate(([0.0], np.cumsum(score)))
        end = np.arange(1, len(score) + 1)
        begin = np.maximum(end - games, 0)
        return x, (total[end] - total[begin]) / (end - begin)


def read_run(folder: Path) -> RunData:
    """Return what the folder of a run says.

    Raises:
        UserError: it is not the folder of a run, another version wrote it, or no game has finished in it.
    """
    config = read_config(folder)
    try:
        text = (folder / "episodes.jsonl").read_text(encoding="utf-8")
        summary = folder / "summary.json"
        ended = json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else None
        episodes = _whole_lines(text)
    except OSError as error:
        raise UserError(f"{folder} is not the folder of a run: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{folder} is the folder of a run, but a file in it is damaged: {error}.") from error
    if not episodes:
        raise UserError(f"No game has finished in {folder}.")
    return RunData(folder, config, episodes, ended)


def grouped(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """Return `runs` by what the legend calls them: script, agent, variant and game, and the options in which they
    differ.

    Runs whose options differ in the seed alone are one group.
    """
    learnt = [{name: value for name, value in learnt_by(run.config).items() if name not in NAMED} for run in runs]
    groups: dict[str, list[RunData]] = {}
    for run, options in zip(runs, learnt, strict=True):
        kin = [other for other, one in zip(learnt, runs, strict=True) if _name_of(one) == _name_of(run)]
        names = sorted(name for name in options if any(other.get(name) != options[name] for other in kin))
        told = [f"{name.replace('_', '-')} {options[name]}" for name in names]
        groups.setdefault(", ".join((_name_of(run), *told)), []).append(run)
    return groups


def _name_of(run: RunData) -> str:
    agent, variant = run.config.get("dqn", {}).get("agent"), run.config.get("series", {}).get("variant")
    names = dict.fromkeys((run.config["script"], agent, variant, run.config["game"]["name"]))  # rainbow may be both
    return ", ".join(part for part in names if part)


def draw_curves(groups: Mapping[str, Sequence[RunData]], out: Path, title: str = "", games: int = 100) -> None:
    """Draw the mean score of the last games over minutes and over env steps, one colour a group.

    A group of one run shows every game as a dot. A group of several shows the mean over its runs and the range from the
    lowest to the highest; a run that has ended counts on with its last value.

    Args:
        groups: runs by what the legend calls them.
        out: the picture; PNG, SVG or PDF by its ending.
        games: that are averaged.

    Raises:
        UserError: the picture cannot be written.
    """
    pyplot = _pyplot()
    dots = len(groups) <= 3
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for color, (label, runs) in zip(_colors(len(groups)), groups.items(), strict=True):
        for side, axis, unit in zip(axes, ("elapsed", "env_steps"), (60.0, 1000.0), strict=True):
            if len(runs) == 1:
                x, y = runs[0].curve(axis, games)
                side.plot(x / unit, y, label=label, color=color)
                if dots:
                    side.plot(x / unit, runs[0].curve(axis)[1], ".", markersize=3, alpha=0.35, color=color)
                continue
            grid, curves = common_grid([run.curve(axis, games) for run in runs])
            side.plot(grid / unit, curves.mean(axis=0), label=f"{label} ({len(runs)} runs)", color=color)
            side.fill_between(grid / unit, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.15, linewidth=0)
    axes[0].set_xlabel("minutes since the process began")
    axes[1].set_xlabel("thousand env steps")
    axes[0].set_ylabel(f"score, mean of the last {games} games" if games > 1 else "score of each game")
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower left", fontsize=8, frameon=False)
    for side in axes:
        _tidy(side)
        side.set_xlim(left=0)
    if title:
        figure.suptitle(title, fontsize=10)
    _save(figure, out)


def draw_speeds(groups: Mapping[str, Sequence[RunData]], out: Path) -> None:
    """Draw env steps/s over minutes, one line a run, one colour a group.

    Raises:
        UserError: a run has no speed.jsonl, or the picture cannot be written.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for color, (label, runs) in zip(_colors(len(groups)), groups.items(), strict=True):
        for i, run in enumerate(runs):
            try:
                text = (run.folder / "speed.jsonl").read_text(encoding="utf-8")
            except OSError as error:
                raise UserError(f"{run.folder} has no speeds: {error.strerror}.") from error
            try:
                lines = _whole_lines(text)
            except ValueError as error:
                raise UserError(f"The speeds of {run.folder} are damaged: {error}.") from error
            trained = [line for line in lines if line["env_steps_per_s"] is not None]
            x = [line["elapsed"] / 60.0 for line in trained]
            y = [line["env_steps_per_s"] for line in trained]
            axes.plot(x, y, color=color, linewidth=0.8, label=label if i == 0 else None)
    axes.set_xlabel("minutes since the process began")
    axes.set_ylabel("env steps/s")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    _tidy(axes)
    _save(figure, out)


def common_grid(
    curves: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a common x (points,) and the curves on it, (runs, points); each continues with its last value.

    It begins where every run has finished a game.
    """
    first, last = max(float(x[0]) for x, _ in curves), max(float(x[-1]) for x, _ in curves)
    grid: NDArray[np.float64] = np.linspace(first, last, GRID)
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


def _whole_lines(text: str) -> list[dict[str, Any]]:
    """Return the lines of a .jsonl file, but for one that is still being written.

    Raises:
        ValueError: a line is damaged.
    """
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _pyplot() -> Any:
    """Return pyplot, imported late and for files alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)


def _save(figure: Any, out: Path) -> None:
    """Write the picture and let go of it.

    Raises:
        UserError: it cannot be written.
    """
    try:
        figure.savefig(out, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"The picture {out} cannot be written: {error}.") from error
    finally:
        _pyplot().close(figure)


def _colors(count: int) -> list[Any]:
    from matplotlib import colormaps

    palette = colormaps["tab10"]
    return [palette(i % 10) for i in range(count)]
