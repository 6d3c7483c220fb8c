"""Runs that trained Pong to the end: what their folders in bench/results say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.pages import Page, grid, machine, software, spread
from fastdqn.options.game import GameOptions

FRESH = 100
"""Fresh games that the clock's rules ask for; few tell little."""
SHORT = 2.0
"""Minutes that are said with two decimals."""


class Setting(NamedTuple):
    """A way to train Pong on one kind of machine: folders of runs, one a seed."""

    command: str
    prefix: str
    seeds: tuple[int, ...]

    @property
    def runs(self) -> list[str]:
        return [f"{self.prefix}{seed}" for seed in self.seeds]


class Run(NamedTuple):
    """The folder of a run that has ended."""

    name: str
    summary: dict[str, Any]
    stamp: dict[str, Any]
    config: dict[str, Any]

    @property
    def network(self) -> str:
        return network_of(self.config)

    @property
    def minutes(self) -> float:
        return self.summary["elapsed"] / 60


def run_of(page: Page, name: str) -> Run:
    summary, stamp, config = (page.read(f"{name}/{file}.json")[0] for file in ("summary", "environment", "config"))
    return Run(name, summary, stamp, config)


def why_no_record(run: Run) -> str | None:
    """Return why the time of a run is no record by the clock's rules, None for one that is."""
    game, usual = run.config["game"], vars(GameOptions())
    if other := [name for name, value in game.items() if name not in ("name", "crop") and value != usual[name]]:
        return f"is of another presentation of the game ({', '.join(other)})"
    if not run.summary["solved"]:
        return "did not solve Pong"
    if run.summary.get("confirmed") is not True:
        return "is not confirmed by fresh games"
    if run.summary["fresh"]["games"] < FRESH:
        return f"has fewer than {FRESH} fresh games"
    if "resumed_at_env_step" in run.stamp:
        return "was resumed"
    if run.stamp["commit"].endswith("+"):
        return "is of code that was not committed"
    return None


def network_of(config: dict[str, Any]) -> str:
    """Return the network's name, Nature's where there is no option. What it sees is said if it is not the whole screen
    at 84x84.
    """
    name = str(config.get("agent", {}).get("network", "nature"))
    side = config.get("vector", {}).get("frame_size")
    return f"{name}, playing area at {side}x{side}" if config.get("game", {}).get("crop") else name


def means(runs: Sequence[Run], name: str) -> str:
    """Return the median and range, over runs, of the mean score of the games that were played after each."""
    scores = [run.summary[name]["mean"] for run in runs if name in run.summary]
    if len(scores) < len(runs):
        return "-"
    return spread(scores, 2)


def runs_of(page: Page, settings: Sequence[Setting]) -> str:
    """Return a table with a row for each run."""
    heads = (
        "run",
        "seed",
        "minutes",
        "env steps",
        "samples",
        "last 100 games",
        "fresh games",
        "Nature's protocol",
        "network",
        "machine",
    )
    heads += ("threads", "commit")
    runs = [run_of(page, name) for setting in settings for name in setting.runs]
    rows: list[list[str]] = []
    for run in runs:
        counts = [time_of(run), f"{run.summary['env_steps']:,}", f"{run.summary['samples']:,}"]
        counts += [f"{run.summary['mean_100']:.2f}", *(played_after(run, name) for name in ("fresh", "nature"))]
        place = [run.network, machine(run.stamp), str(run.stamp["threads"]), str(run.stamp["commit"])]
        rows.append([page.data(run.name, run.name), str(run.summary["seed"]), *counts, *place])
    return grid(heads, rows, f"Each name links its data; {software([run.stamp for run in runs], commits=False)}.")


def time_of(run: Run) -> str:
    """Return the minutes to solve Pong, or in which it was not solved; short times more exactly."""
    minutes = f"{run.minutes:.{1 if run.minutes >= SHORT else 2}f}"
    refuted = ", not confirmed" if run.summary.get("confirmed") is False else ""
    return f"{minutes}{refuted}" if run.summary["solved"] else f"not in {minutes}"


def played_after(run: Run, name: str) -> str:
    """Return mean and standard error of the games that were played after a run."""
    found = run.summary.get(name)
    if found is None:
        return "-"
    return f"{found['mean']:.2f}" + ("" if found["standard_error"] is None else f" +- {found['standard_error']:.2f}")
