"""Aggregates of runs in many games, with intervals (Agarwal et al. 2021, Deep Reinforcement Learning at the Edge of the
Statistical Precipice).

Scores are normalised, 0 for random play and 1 for a person. `Scores` are those of runs by game, (runs,) each; games may
have different numbers of runs, and count the same all the same: where one has fewer, each of its runs counts for more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = Mapping[str, NDArray[np.float64]]
DRAWS = 2_000
LEVEL = 0.95
_AT_ONCE = 250  # draws, so that they fit into little memory
NAMES = ("iqm", "median", "mean", "gap")


class Aggregates(NamedTuple):
    """What runs in many games come to; each a number, or an array (draws,)."""

    iqm: NDArray[np.float64]  # the interquartile mean: of the middle half of all runs in all games
    median: NDArray[np.float64]  # over games, of the means of their runs
    mean: NDArray[np.float64]  # over games, of the same
    gap: NDArray[np.float64]  # the optimality gap: by how much runs stay below 1 on average


class Interval(NamedTuple):
    """An estimate, and what it may be; without an interval where there is only one run of a game."""

    value: float
    low: float | None
    high: float | None


class _Padded(NamedTuple):
    """Scores as a rectangle."""

    values: NDArray[np.float64]  # (games, most runs), 0 where a game has fewer
    there: NDArray[np.bool_]  # (games, most runs)


def aggregates_of(scores: Scores) -> Aggregates:
    """Return the aggregates of runs, () each."""
    padded = _padded(scores)
    return Aggregates(*(one[0] for one in _aggregates(padded.values[None], padded.there)))


def intervals_of(scores: Scores, draws: int = DRAWS) -> dict[str, Interval]:
    """Return the aggregates and their 95% intervals by the stratified percentile bootstrap: in each draw every game has
    as many runs as before, drawn from its own with replacement (section 4.1 there).

    One run of a game says nothing of how runs differ: then there are no intervals.
    """
    padded = _padded(scores)
    exact = aggregates_of(scores)
    if padded.there.sum(1).min() < 2:
        return {name: Interval(float(getattr(exact, name)), None, None) for name in NAMES}
    found = [_aggregates(drawn, padded.there) for drawn in _drawn(padded, draws)]
    tail = (1.0 - LEVEL) / 2.0
    intervals: dict[str, Interval] = {}
    for name in NAMES:
        all_of_them = np.concatenate([getattr(one, name) for one in found])
        low, high = np.quantile(all_of_them, [tail, 1.0 - tail]).tolist()
        intervals[name] = Interval(float(getattr(exact, name)), low, high)
    return intervals


def profile_of(scores: Scores, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the performance profile (levels,): the share of runs above each level, a mean over games (sec. 4.2)."""
    shares = [(runs[:, None] > levels[None, :]).mean(0) for runs in scores.values()]
    return np.mean(shares, axis=0)


def profile_band(scores: Scores, levels: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends (levels,) of the pointwise 95% band of `profile_of`, by the same bootstrap."""
    padded = _padded(scores)
    counts = padded.there.sum(1)
    found: list[NDArray[np.float64]] = []
    for drawn in _drawn(padded, DRAWS):
        above = [((drawn > level) & padded.there).sum(2) / counts for level in levels]
        found.append(np.stack([share.mean(1) for share in above], axis=1))
    tail = (1.0 - LEVEL) / 2.0
    low, high = np.quantile(np.concatenate(found), [tail, 1.0 - tail], axis=0)
    return low, high


def _padded(scores: Scores) -> _Padded:
    if not scores or min(len(runs) for runs in scores.values()) < 1:
        raise ValueError("every game needs a run")
    most = max(len(runs) for runs in scores.values())
    values, there = np.zeros((len(scores), most)), np.zeros((len(scores), most), bool)
    for row, runs in enumerate(scores.values()):
        values[row, : len(runs)], there[row, : len(runs)] = runs, True
    return _Padded(values, there)


def _drawn(padded: _Padded, draws: int) -> Iterator[NDArray[np.float64]]:
    """Yield blocks (draws, games, most runs) of scores, drawn within each game."""
    rng = np.random.default_rng(0)  # a report of the same results is the same
    games = np.arange(len(padded.values))[None, :, None]
    counts = padded.there.sum(1)[None, :, None]
    for begin in range(0, draws, _AT_ONCE):
        block = min(_AT_ONCE, draws - begin)
        yield padded.values[games, rng.integers(0, counts, (block, *padded.values.shape))]


def _aggregates(values: NDArray[np.float64], there: NDArray[np.bool_]) -> Aggregates:
    """Return the aggregates (draws,) of scores (draws, games, most runs), of which those `there` count."""
    counts = there.sum(1)
    means = np.where(there, values, 0.0).sum(2) / counts
    below = np.where(there, np.maximum(1.0 - values, 0.0), 0.0).sum(2) / counts
    return Aggregates(_middle(values, there), np.median(means, 1), means.mean(1), below.mean(1))


def _middle(values: NDArray[np.float64], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the interquartile means (draws,), as above. With as many runs of each game they are SciPy's `trim_mean`,
    which cuts whole runs; otherwise a run may be cut in part.
    """
    runs, counts = there.sum(), there.sum(1)
    every = values[:, there]  # (draws, runs of all games)
    order = np.argsort(every, axis=1)
    weights = np.repeat(runs / len(counts) / counts, counts)[order]  # together as many as there are runs
    ends = weights.cumsum(1)
    low, high = int(0.25 * runs), runs - int(0.25 * runs)
    kept = np.clip(ends, low, high) - np.clip(ends - weights, low, high)
    return (kept * np.take_along_axis(every, order, 1)).sum(1) / (high - low)
