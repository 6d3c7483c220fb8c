"""Pictures: what is drawn of which runs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from fastdqn.errors import RunError, UserError
from fastdqn.tools.labels import grouped
from fastdqn.tools.plot import COLORS, Axis, common_grid, draw_curves, draw_speeds, style_of
from fastdqn.tools.reading import read_run
from tests.helpers.folders import make_folder, make_run
from tests.helpers.scripts import ROOT


def drawn(folder: Path, *runs: dict[str, Any], games: int = 100, over: Axis | None = None) -> tuple[list[str], str]:
    """Return the words of the picture of such runs, and its SVG, in which every line has its colour and dashes."""
    made = [make_run(folder / str(i), **what) for i, what in enumerate(runs)]
    draw_curves(grouped(made), folder / "picture.svg", games, over)
    text = (folder / "picture.svg").read_text()
    return re.findall(r"<!-- (.*) -->", text), text


def bands(text: str) -> int:
    return text.count('id="FillBetweenPolyCollection') + text.count('id="PolyCollection')


def test_fifty_labels_have_fifty_styles() -> None:
    assert len({str(style_of(number)) for number in range(50)}) == 50


def test_one_game_is_drawn_over_time_and_env_steps(tmp_path: Path) -> None:
    words, text = drawn(tmp_path, {})
    assert {"Pong: learning curves", "over time", "over env steps", "minutes since the start", "09"} <= set(words)
    assert {"thousand env steps", "score, mean of the last 100 games", "dot: a game"} <= set(words)
    assert text.count('id="axes_') == 2
    assert bands(text) == 0
    for over, one in (("elapsed", "minutes since the start"), ("env_steps", "thousand env steps")):
        words, text = drawn(tmp_path / over, {}, over=over)
        assert text.count('id="axes_') == 1
        assert one in words


def test_several_games_have_a_panel_each_and_one_legend(tmp_path: Path) -> None:
    games = ("pong", "breakout", "space_invaders", "qbert", "mod:Catch")
    words, text = drawn(
        tmp_path, *({"game": {"name": name}, "seed": seed} for name in games for seed in range(2 + (name == "pong")))
    )
    assert text.count('id="axes_') == 5
    assert {"Learning curves", "Pong", "Breakout", "Space Invaders", "Q*bert", "Catch"} <= set(words)
    assert [word for word in words if word.startswith("09")] == ["09 (mean of 2 to 3 runs)"]
    assert bands(text) == 5
    assert words.count("thousand env steps") == 3  # under the lowest panel of each column


def test_bands_are_over_finished_runs_of_different_seeds(tmp_path: Path) -> None:
    same = {"seed": 0, "time": "2026-01-01T00:00:00+00:00"}
    words, text = drawn(tmp_path / "same", {}, same)
    assert bands(text) == 0
    assert "09" in words
    failed = {"seed": 1, "ended": "failed"}
    words, text = drawn(tmp_path / "failed", {}, failed, {"seed": 2, "ended": None}, {"seed": 3, "ended": None})
    assert bands(text) == 0
    assert {"09", "09: failed", "09: broken off (2 runs)"} <= set(words)
    assert text.count("stroke-dasharray: 2,1.5") == 8  # three in each of two panels, two in the legend
    words, text = drawn(tmp_path / "two", {}, {"seed": 1}, {"seed": 2, "ended": "failed"})
    assert bands(text) == 2
    assert {"09 (mean of 2 runs)", "09: failed", "band: lowest to highest run"} <= set(words)


def test_more_labels_than_colours_differ_in_their_lines(tmp_path: Path) -> None:
    words, text = drawn(tmp_path, *({"dqn": {"n_step": n}} for n in range(1, 10)))
    assert [word for word in words if word.endswith("returns")] == [f"09, {n}-step returns" for n in range(1, 10)]
    assert all(color.lower() in text.lower() for color in COLORS[:-1])
    assert "stroke-dasharray" in text


def test_a_run_that_has_not_counted_a_game_yet_is_no_trouble(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", scores=(1.0,), ended=None)
    run.episodes[0]["mean_100"] = None
    draw_curves(grouped([run]), tmp_path / "x.png")
    other = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=1)
    other[1].episodes[:] = [{**line, "mean_100": None} for line in other[1].episodes]
    draw_curves(grouped(other), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_a_single_game_is_a_point(tmp_path: Path) -> None:
    """A line of one point would not be seen; curves of several games have none."""
    one = {"scores": [3.0]}
    for runs, points in (((one,), 2), (({**one, "seed": 1}, {**one, "seed": 2}), 2), (({},), 0)):
        _, text = drawn(tmp_path / str(len(runs)) / str(points), *runs, games=1)
        assert (
            len(re.findall(r'<use xlink:href="#m\w+" x="[^"]+" y="[^"]+" style="fill: #0072b2; stroke', text)) == points
        )


def test_units_suit_what_is_drawn(tmp_path: Path) -> None:
    words, _ = drawn(tmp_path, {"scores": (1.0,) * 200})
    assert {"million env steps", "hours since the start"} <= set(words)


def test_the_mean_of_other_games_is_called_so(tmp_path: Path) -> None:
    assert "score, mean of the last 10 games" in drawn(tmp_path / "ten", {}, games=10)[0]
    assert "score of each game" in drawn(tmp_path / "one", {}, games=1)[0]


def test_speeds(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "run")
    runs = [make_run(tmp_path / "other", seed=1)]
    with pytest.raises(UserError, match="has no speeds"):
        draw_speeds(grouped(runs), tmp_path / "speed.svg")
    (folder / "speed.jsonl").write_text('{"elapsed": 1.0, "env_steps_per_s": null}\n')
    with pytest.raises(UserError, match="has no speeds yet"):
        draw_speeds(grouped([read_run(folder)]), tmp_path / "speed.svg")
    for where in (folder, runs[0].folder):
        (where / "speed.jsonl").write_text(
            '{"elapsed": 1.0, "env_steps_per_s": null}\n{"elapsed": 2.0, "env_steps_per_s": 3.0}\n'
        )
    draw_speeds(grouped(runs), tmp_path / "speed.svg")
    words = re.findall(r"<!-- (.*) -->", (tmp_path / "speed.svg").read_text())
    assert {"Pong: speed", "env steps/s", "minutes since the start", "09"} <= set(words)
    twice = [make_run(tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    for run in twice:
        (run.folder / "speed.jsonl").write_text('{"elapsed": 2.0, "env_steps_per_s": 3.0}\n')
    draw_speeds(grouped(twice), tmp_path / "speed.svg")
    assert "09 (2 runs)" in (tmp_path / "speed.svg").read_text()  # each is drawn, and no mean of them


def test_a_run_that_is_left_out_needs_no_speeds(tmp_path: Path) -> None:
    kept, older = make_run(tmp_path / "kept"), make_run(tmp_path / "older", time="2020-01-01T00:00:00+00:00")
    (kept.folder / "speed.jsonl").write_text('{"elapsed": 2.0, "env_steps_per_s": 3.0}\n')
    draw_speeds(grouped([kept, older]), tmp_path / "speed.svg")
    assert (tmp_path / "speed.svg").exists()


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        draw_curves(grouped([make_run(tmp_path / "run")]), tmp_path / "curve.xyz")


def test_common_grid_by_hand() -> None:
    a = (np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    b = (np.array([5.0, 20.0]), np.array([1.0, 1.0]))
    grid, curves = common_grid([a, b])
    assert (grid[0], grid[-1]) == (5.0, 20.0)
    assert curves[0, 0] == 5.0
    assert curves[0, -1] == 10.0  # a run that has ended counts on with its last value
    assert curves[1].tolist() == [1.0] * len(grid)


def test_a_full_disk_leaves_the_picture_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "picture.svg"
    drawn(tmp_path, {})
    before = out.read_bytes()

    def full(_figure: Any, path: Path, **_: Any) -> None:
        path.write_bytes(before[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(RunError, match=r"picture\.svg cannot be written: No space left on device"):
        draw_curves(grouped([make_run(tmp_path / "other")]), out)
    assert out.read_bytes() == before
    assert not list(tmp_path.glob("*.unfinished"))


def test_pictures_have_settings_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a backend that Matplotlib has not any more, nor LaTeX that is missing, nor a formula in a name."""
    monkeypatch.setenv("MPLBACKEND", "Qt4Agg")
    code = "import os, pathlib; from fastdqn.tools.pictures import drawing, save_picture\nwith drawing():\n"
    code += "  from matplotlib.figure import Figure; figure = Figure(); figure.subplots().plot([1, 2])\n"
    code += f"  save_picture(figure, pathlib.Path({str(tmp_path / 'drawn.png')!r}), 50)\n"
    code += "assert os.environ['MPLBACKEND'] == 'Qt4Agg'"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert (tmp_path / "drawn.png").stat().st_size > 500
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    words, _ = drawn(tmp_path, {"game": {"name": "mod:b$\\foo$"}})
    assert any("$\\foo$" in word for word in words)


def test_a_picture_leaves_a_notebooks_own_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 7.0)
    before, backend, open_ones = dict(matplotlib.rcParams), matplotlib.get_backend(), pyplot.get_fignums()
    environment = dict(os.environ)
    draw_curves(grouped([make_run(tmp_path / "one")]), tmp_path / "picture.png")
    assert dict(matplotlib.rcParams) == before
    assert (matplotlib.get_backend(), pyplot.get_fignums()) == (backend, open_ones)
    assert dict(os.environ) == environment
