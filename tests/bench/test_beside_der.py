"""bench/beside_der.py: how far a few runs may be from a published mean, and what is outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import beside_der
from fastdqn.tools.report.published import published
from tests.helpers.sweeps import make_results


def test_runs_of_curl_are_rliables() -> None:
    """The notebook of Agarwal et al. 2021 prints this median and mean of 100 runs."""
    runs = {game: np.array([beside_der.normalised(game, s) for s in of]) for game, of in beside_der.curl_runs().items()}
    assert {len(of) for of in runs.values()} == {100}
    found = beside_der.aggregates_of(runs)
    for name, value in published()["curl"].of_runs.items():
        assert float(getattr(found, name)) == pytest.approx(value, abs=1e-3), name


def test_means_of_few_runs_differ_as_they_must() -> None:
    """Three of two values that are as likely: means are 0, 1/3, 2/3 and 1 in 1, 3, 3 and 1 of 8 draws."""
    runs, published = {"a": np.array([0.0, 1.0]), "b": np.full(9, 5.0)}, {"a": 10.0, "b": 20.0}
    found = beside_der.repeated(runs, {"a": 3, "b": 1}, published, draws=8_000)
    values, counts = np.unique(found["a"].round(3), return_counts=True)
    assert values.tolist() == [9.5, 9.833, 10.167, 10.5]
    assert (counts / 8_000).tolist() == pytest.approx([1 / 8, 3 / 8, 3 / 8, 1 / 8], abs=0.02)
    assert (found["b"] == 20.0).all()
    assert found["mean"].tolist() == pytest.approx(((found["a"] + 20.0) / 2).tolist())


@pytest.mark.parametrize("number", [1, 3])
def test_runs_that_repeat_the_published_ones_are_inside(number: int) -> None:
    """Of agents with the published means whose runs differ as CURL's do, 95% are inside, by each aggregate."""
    games = list(beside_der.curl_runs())
    curl = {game: np.array([beside_der.normalised(game, s) for s in of]) for game, of in beside_der.curl_runs().items()}
    theirs = {game: float(of.mean()) for game, of in published()[beside_der.PUBLISHED].normalised(games).items()}
    drawn = beside_der.repeated(curl, dict.fromkeys(games, number), theirs)
    rng, inside = np.random.default_rng(1), dict.fromkeys(beside_der.NAMES, 0)
    for _ in range(300):
        own = {game: theirs[game] + rng.choice(of, number).mean(keepdims=True) - of.mean() for game, of in curl.items()}
        found = beside_der.aggregates_of(own)
        for name in inside:
            low, high = np.quantile(drawn[name], (0.025, 0.975))
            inside[name] += low <= float(getattr(found, name)) <= high
    assert min(inside.values()) >= 0.9 * 300, inside


@pytest.mark.parametrize("worse", [False, True])
def test_what_is_outside_is_named(worse: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = published()[beside_der.PUBLISHED].scores
    changed = {game: score * 3 if worse and game != "freeway" else score for game, score in scores.items()}
    make_results(tmp_path, {game: [score] * 3 for game, score in changed.items()})
    assert beside_der.main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "78 runs of der in 26 games of 26" in out
    assert out.count("OUTSIDE") == (3 if worse else 0)
    assert ("Freeway" in out, "Krull: 8,5" in out) == (False, worse)
    assert ("games outside their interval: 0 of 26" in out) == (not worse)


def test_there_must_be_runs_of_der(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_results(tmp_path, {"pong": [1.0]}, "100k-fast")
    assert beside_der.main([str(tmp_path)]) == 2
    assert "hold 0 kinds of runs of der" in capsys.readouterr().err
