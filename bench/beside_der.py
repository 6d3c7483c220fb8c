"""Compares runs of Data-efficient Rainbow with its published scores: would three runs a game come to other numbers?

    python bench/beside_der.py sweeps/der

Of `der` one mean a game is published, without its runs. How far three runs (or as many as there are) may be from it is
borrowed from CURL, of which 100 runs of each game are published (bench/curl.json): so many of them are drawn from each
game, some thousand times, and what their mean differs by from that of all 100 is added to the published mean of `der`.
These are the means of a `der` that repeats the published one; an aggregate, or a game, is inside if it is between the
2.5th and the 97.5th percentile of what such a `der` has. CURL learns from as many env steps by a kindred agent; that
its runs differ as those of `der` do is an assumption, and the published means are taken as exact. So of 26 games more
than one or two may be outside by chance; they are named. The interquartile mean is that of the means of the games, as
of published agents without runs. With few runs the intervals are wide: inside is a weak claim.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.programs import ROOT, exit_code
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import title_of
from fastdqn.errors import UserError
from fastdqn.tools.report.metrics import aggregates_of
from fastdqn.tools.report.published import normalised, published
from fastdqn.tools.report.read import Entry, read_report

DRAWS = 4_000
AGENT = "der"
PUBLISHED = "der-2019"
NAMES = ("median", "mean", "iqm")

Runs = Mapping[str, NDArray[np.float64]]


@dataclasses.dataclass(frozen=True)
class BesideOptions:
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional] = (ROOT / "sweeps" / "der",)
    """Folders of sweeps, or of results."""


def main(words: Sequence[str]) -> int:
    return exit_code(lambda: show(parsed(BesideOptions, words, BesideOptions(), __doc__ or "")))


def show(options: BesideOptions) -> int:
    print("\n".join(compare(entry_of(options.folders))))
    return 0


def entry_of(folders: Sequence[Path]) -> Entry:
    """Return the runs of the agent.

    Raises:
        UserError: there are none.
    """
    entries = [one for one in read_report(folders).entries if one.results[0]["agent"] == AGENT]
    if len(entries) != 1:
        raise UserError(f"These folders hold {len(entries)} kinds of runs of {AGENT}; one is compared.")
    return entries[0]


def compare(entry: Entry) -> list[str]:
    """Return what is to be said of the runs, line by line."""
    games = entry.games
    counts = {game: len(entry.raw(game)) for game in games}
    theirs, ours = published()[PUBLISHED].normalised(games), entry.normalised()
    curl = {game: np.array([normalised(game, score) for score in curl_runs()[game]]) for game in games}
    drawn = repeated(curl, counts, {game: float(there.mean()) for game, there in theirs.items()})
    means = {game: np.array([runs.mean()]) for game, runs in ours.items()}
    lines = [
        f"{sum(counts.values())} runs of {AGENT} in {len(games)} games of 26, normalised scores. An interval: "
        "95% of what as many runs have that repeat the published ones and differ as CURL's do.",
        "",
        "aggregate of means   published   here     interval            ",
    ]
    found, expected = aggregates_of(means), aggregates_of(theirs)
    for name in NAMES:
        here, there = float(getattr(found, name)), float(getattr(expected, name))
        low, high = np.quantile(drawn[name], (0.025, 0.975)).tolist()
        verdict = "inside" if low <= here <= high else "OUTSIDE"
        lines.append(f"{name:20} {there:9.3f} {here:6.3f}     {low:.3f} to {high:.3f}   {verdict}")
    outside = [line for game in games if (line := outlier(entry, game, drawn[game]))]
    lines += ["", f"games outside their interval: {len(outside)} of {len(games)}", *outside]
    return lines


def outlier(entry: Entry, game: str, drawn: NDArray[np.float64]) -> str | None:
    """Return a line about a game whose mean is outside, None for one inside."""
    there, here = published()[PUBLISHED].scores[game], float(np.mean(entry.raw(game)))
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    value = normalised(game, here)
    if low <= value <= high:
        return None
    said = f"normalised {value:.3f}, not {low:.3f} to {high:.3f}"
    return f"  {title_of(game)}: {here:,.1f} in the mean of {len(entry.raw(game))}, published {there:,.1f} ({said})"


def repeated(
    runs: Runs, counts: Mapping[str, int], published: Mapping[str, float], draws: int = DRAWS
) -> dict[str, NDArray[np.float64]]:
    """Return the means of so many runs a game that repeat published means and differ as `runs` do, and the aggregates
    of these means, (draws,) each, by the names of games and aggregates.
    """
    rng = np.random.default_rng(0)
    means = {
        game: published[game] + rng.choice(of, (draws, counts[game])).mean(1) - of.mean() for game, of in runs.items()
    }
    every = np.stack(list(means.values()), axis=1)  # (draws, games)
    found = [aggregates_of(dict(zip(means, row[:, None], strict=True))) for row in every]
    return {**{name: np.array([float(getattr(one, name)) for one in found]) for name in NAMES}, **means}


def curl_runs() -> dict[str, list[float]]:
    """Return the scores of CURL's runs by game."""
    return json.loads((ROOT / "bench" / "curl.json").read_text(encoding="utf-8"))["runs"]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
