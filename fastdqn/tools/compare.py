"""Comparing runs: a line for each; for runs that differ in the seed alone also the interquartile mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdqn.tools.plot import RunData, grouped

BOOTSTRAPS = 2000
LEVEL = 0.95


class Interval(NamedTuple):
    """An estimate and what it may be."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: NDArray[np.float64]) -> float:
    """Return the mean of the middle half of all scores: a quarter is cut off at each end (Agarwal et al. 2021).

    Where a quarter is no whole number of scores, so many are cut off as are whole, as scipy's and rliable's do.
    """
    ordered = np.sort(scores, axis=None)
    cut = int(0.25 * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def bootstrap(scores: NDArray[np.float64], seed: int = 0) -> Interval:
    """Return the interquartile mean of `scores` (runs,) and its 95% interval by the percentile bootstrap over runs.

    Agarwal et al. 2021, section 4.1; with one game the stratified bootstrap is this one.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(scores.size, size=(BOOTSTRAPS, scores.size))
    means = np.array([interquartile_mean(scores[row]) for row in drawn])
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail]).tolist()
    return Interval(interquartile_mean(scores), low, high)


class Line(NamedTuple):
    """What a table says of a run."""

    label: str
    seed: int
    ended: str
    minutes: float
    env_steps: int
    env_steps_per_s: float | None
    score: float  # mean of the last 100 games


def lines_of(runs: Sequence[RunData]) -> list[tuple[Line, ...]]:
    """Return the lines of `runs`, those of one group together."""
    groups: list[tuple[Line, ...]] = []
    for label, members in grouped(runs).items():
        lines: list[Line] = []
        for run in sorted(members, key=lambda one: int(one.config["run"]["seed"])):
            summary, last = run.summary or {}, run.episodes[-1]
            elapsed = summary.get("elapsed", last["elapsed"])
            lines.append(
                Line(
                    label,
                    int(run.config["run"]["seed"]),
                    str(summary.get("reason") or "unfinished"),
                    elapsed / 60.0,
                    int(summary.get("env_steps", last["env_steps"])),
                    summary.get("median_env_steps_per_s"),
                    float(last["mean_100"]),
                )
            )
        groups.append(tuple(lines))
    return groups


def score_of(lines: Sequence[Line]) -> Interval:
    """Return the interquartile mean of a group's final scores over its seeds, with its interval."""
    return bootstrap(np.array([line.score for line in lines]))
