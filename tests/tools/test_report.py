"""Reports: aggregates against rliable's published figures and a plain bootstrap, and what is only a part."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fastdqn.envs.scores import REFERENCES, human_normalised
from fastdqn.errors import UserError
from fastdqn.tools.report.metrics import NAMES, aggregates_of, intervals_of, profile_band, profile_of
from fastdqn.tools.report.page import own_intervals
from fastdqn.tools.report.picture import draw_report
from fastdqn.tools.report.published import published
from fastdqn.tools.report.read import read_report
from fastdqn.tools.sweep.plan import PUBLISHED, atari_26
from tests.helpers.scripts import ROOT, fastdqn_says
from tests.helpers.sweeps import make_results

Scores = dict[str, NDArray[np.float64]]


@pytest.fixture(scope="module")
def raw() -> dict[str, dict[str, list[float]]]:
    said = json.loads((ROOT / "tests" / "data" / "atari100k_runs.json").read_text())
    return {agent: said[agent] for agent in ("DrQ(eps)", "SPR")}


def normalised(runs: dict[str, list[float]]) -> Scores:
    return {game: np.array([human_normalised(game, score) for score in scores]) for game, scores in runs.items()}


def test_aggregates_are_rliables(raw: dict[str, dict[str, list[float]]]) -> None:
    """The notebook of Agarwal et al. 2021 prints these medians and means of 100 runs; the IQMs are a figure's."""
    for agent, median, mean, iqm in (("DrQ(eps)", 0.3129, 0.4647, 0.280), ("SPR", 0.3956, 0.6158, 0.337)):
        found = aggregates_of(normalised(raw[agent]))
        assert round(float(found.median), 4) == median
        assert round(float(found.mean), 4) == mean
        assert round(float(found.iqm), 3) == iqm
        key = {"DrQ(eps)": "drq-eps", "SPR": "spr"}[agent]
        assert {name: round(float(getattr(found, name)), 4) for name in NAMES} == published()[key].of_runs
        for game, scores in raw[agent].items():
            assert published()[key].scores[game] == pytest.approx(np.mean(scores), abs=0.051), (agent, game)


def test_aggregates_by_hand() -> None:
    scores = {"a": np.array([0.0, 2.0]), "b": np.array([0.5, 0.5]), "c": np.array([3.0, 1.0])}
    found = aggregates_of(scores)  # means 1, 0.5, 2; sorted 0 | 0.5 0.5 1 2 | 3
    assert (float(found.median), float(found.mean), float(found.iqm)) == (1.0, 3.5 / 3, 1.0)
    assert float(found.gap) == pytest.approx((1 + 0 + 0.5 + 0.5 + 0 + 0) / 6)
    for one, iqm in (
        ([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -50.0], 3.5),  # two cut at each end
        ([1.0, 2.0, 9.0], 4.0),  # a quarter of three is less than one
    ):
        assert float(aggregates_of({"a": np.array(one)}).iqm) == iqm
    uneven = aggregates_of({"a": np.array([1.0]), "b": np.array([0.0, 2.0, 4.0])})
    assert (float(uneven.mean), float(uneven.gap)) == (1.5, pytest.approx((0 + 1 / 3) / 2))  # means 1 and 2
    # Each game counts as two runs: "a" as 1 1, "b" as two thirds of 0, 2 and 4 each; a run's weight is cut at each end.
    assert float(uneven.iqm) == pytest.approx((5 / 3 * 1 + 1 / 3 * 2) / 2)


def test_a_game_with_more_runs_counts_no_more(raw: dict[str, dict[str, list[float]]]) -> None:
    """Games in which each run is there twice come to what they come to once; all runs pooled do not."""
    once = normalised({game: scores[:2] for game, scores in raw["SPR"].items()})
    twice = {game: np.tile(runs, 2) if number < 10 else runs for number, (game, runs) in enumerate(once.items())}
    found, before = aggregates_of(twice), aggregates_of(once)
    # whole runs are cut at each end: 13 of 52, and 18 of 72
    assert [float(one) for one in found] == pytest.approx([float(one) for one in before])
    pooled = np.sort(np.concatenate(list(twice.values())))
    assert abs(float(pooled[18:-18].mean()) - float(before.iqm)) > 0.01


def test_the_bootstrap_is_stratified() -> None:
    """Against a plain one over all draws there are; one that draws games, too, would be far wider."""
    scores = {"a": np.array([0.0, 1.0]), "b": np.array([10.0, 14.0])}
    every = [
        (np.mean(a) + np.mean(b)) / 2
        for a in itertools.product([0.0, 1.0], repeat=2)
        for b in itertools.product([10.0, 14.0], repeat=2)
    ]
    low, high = np.quantile(np.repeat(every, 1_000), [0.025, 0.975]).tolist()
    found = intervals_of(scores, draws=20_000)["mean"]
    assert (found.value, found.low, found.high) == (6.25, pytest.approx(low), pytest.approx(high))
    assert low == 5.0  # a control: with games drawn too, both could be game a, and the mean 0
    uneven = intervals_of({"a": np.array([1.0, 1.0]), "b": np.array([2.0, 2.0, 2.0])})
    assert uneven["iqm"] == pytest.approx((1.5, 1.5, 1.5))  # what is no run is never drawn
    alone = intervals_of({"a": np.array([1.0]), "b": np.array([2.0, 3.0])})
    assert alone["mean"] == (1.75, None, None)


def test_the_interval_of_three_runs_holds_the_mean_of_a_hundred(raw: dict[str, dict[str, list[float]]]) -> None:
    spr = normalised(raw["SPR"])
    truth = float(aggregates_of(spr).mean)
    held = 0
    for begin in range(0, 99, 3):
        found = intervals_of({game: runs[begin : begin + 3] for game, runs in spr.items()}, draws=500)["mean"]
        held += (found.low or 0.0) <= truth <= (found.high or 0.0)
    assert held >= 22  # of 33; of so few runs the percentile bootstrap holds less often than 95 in 100


def test_profiles_by_hand() -> None:
    scores = {"a": np.array([0.0, 2.0]), "b": np.array([1.0, 1.0, 3.0])}
    levels = np.array([-1.0, 0.0, 1.0, 2.0, 3.0])
    assert profile_of(scores, levels).tolist() == pytest.approx([1.0, 0.75, (0.5 + 1 / 3) / 2, 1 / 6, 0.0])
    low, high = profile_band(scores, levels)
    assert (low[0], high[0], low[-1], high[-1]) == (1.0, 1.0, 0.0, 0.0)
    assert (low <= profile_of(scores, levels)).all()
    assert (high >= profile_of(scores, levels)).all()


def test_published_scores_are_whole() -> None:
    known = published()
    assert len(atari_26()) == 26
    for one in known.values():
        assert tuple(sorted(one.scores)) == atari_26()
        assert one.mark in ("R", "2", "M")
        assert one.source
    for game in atari_26():
        assert (known["random"].scores[game], known["human"].scores[game]) == REFERENCES[game]
    figures = {"der-2019": (0.1614, 0.2845), "der-2021": (0.1894, 0.3504), "bbf": (0.917, 2.247)}
    for key, (median, mean) in figures.items():  # as their authors, or rliable, print them
        found = aggregates_of(known[key].normalised(atari_26()))
        assert (float(found.median), float(found.mean)) == (
            pytest.approx(median, abs=5e-4),
            pytest.approx(mean, abs=1e-3),
        )
    assert 'fastdqn = ["py.typed", "data/*", "data/demo/*"]' in (ROOT / "pyproject.toml").read_text()
    assert PUBLISHED.parent == ROOT / "fastdqn" / "data"


def test_a_whole_report(raw: dict[str, dict[str, list[float]]], tmp_path: Path) -> None:
    folder = make_results(tmp_path / "sweep", {game: runs[:3] for game, runs in raw["DrQ(eps)"].items()})
    done = fastdqn_says("report", str(folder))
    assert done.returncode == 0, done.stderr
    assert "PARTIAL" not in done.stdout
    page = (folder / "report.md").read_text()
    assert "PARTIAL" not in page
    assert "## Aggregates over the 26 games" in page
    assert "| SPR [R] | 100 | 0.337 | 0.396 | 0.616 | 0.577 | 6 |" in page
    mine = intervals_of({game: runs[:3] for game, runs in normalised(raw["DrQ(eps)"]).items()})["iqm"]
    assert f"| der | 3 | {mine.value:.3f} ({mine.low:.3f}-{mine.high:.3f}) |" in page
    assert "| agent | runs | a run with its evaluation, median | all runs |" in page
    assert "| der | 78 | 30.0 min | 39.0 h | 78.0 | 2 of a processor | abc |" in page
    alien = raw["DrQ(eps)"]["alien"][:3]
    row = next(line for line in page.splitlines() if line.startswith("| Alien |"))
    assert row.startswith(
        f"| Alien | **{np.mean(alien):,.1f}** ({min(alien):,.1f}-{max(alien):,.1f}) | 227.8 | 7,127.7 |"
    )
    rows = list(csv.DictReader((folder / "report.csv").read_text().splitlines()))
    assert len(rows) == 78
    assert {row["whole"] for row in rows} == {"yes"}
    assert float(rows[0]["human_normalised"]) == pytest.approx(
        human_normalised(rows[0]["game"], float(rows[0]["score"])), abs=1e-6
    )
    assert (folder / "report.png").read_bytes()[:4] == b"\x89PNG"


def test_what_is_an_aggregate_of_means_is_drawn_hollow(
    raw: dict[str, dict[str, list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DER's of 2019 are of means, but for the median and mean over games, which are the same; SPR's are of runs."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **__: drawn.append(figure) or path.touch())
    folder = make_results(tmp_path / "sweep", {game: runs[:2] for game, runs in raw["DrQ(eps)"].items()})
    report = read_report([folder])
    draw_report(report, own_intervals(report), tmp_path / "report.png")
    panels = drawn[0].axes[: len(NAMES)]
    rows = [label.get_text() for label in panels[0].get_yticklabels()]
    for key, hollow in (("der-2019", {"iqm", "gap"}), ("spr", set[str]())):
        place = rows.index(published()[key].label)
        for name, panel in zip(NAMES, panels, strict=True):
            (mark,) = [line for line in panel.lines if line.get_marker() == "o" and list(line.get_ydata()) == [place]]
            assert (mark.get_markerfacecolor() == "white") == (name in hollow)


def test_a_part_never_passes_as_whole(
    raw: dict[str, dict[str, list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda _, title, **how: titles.append(title))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **how: path.touch())  # which takes its time
    runs = raw["SPR"]
    cases = {
        "games": ({game: runs[game][:2] for game in ("pong", "boxing")}, "2 of 26 games", "2 of the 26 games alone"),
        "game": ({game: runs[game][:1] for game in runs if game != "pong"}, "25 of 26 games: Pong is missing", "25 of"),
        "seeds": ({game: runs[game][: 1 + (game == "pong")] for game in runs}, "from 1 to 2 runs", "the 26 games"),
    }
    for name, (scores, said, over) in cases.items():
        folder = make_results(tmp_path / name, scores)
        done = fastdqn_says("report", str(folder), "--out", str(tmp_path / f"out-{name}"))
        assert done.returncode == 0, done.stderr
        page = (tmp_path / f"out-{name}" / "report.md").read_text()
        for text in (done.stdout, page):
            assert "PARTIAL" in text
            assert said in text
        assert "| der (PARTIAL) |" in page
        assert f"## Aggregates over {over}" in page
        assert {row["whole"] for row in csv.DictReader((tmp_path / f"out-{name}" / "report.csv").open())} == {"no"}
    assert titles == [f"Atari-100k, PARTIAL: {few}" for few in ("2 of 26 games", "25 of 26 games", "not all runs")]
    plan = {"format": 1, "script": "12_atari_100k", "tasks": []}
    whole = make_results(tmp_path / "planned", {game: runs[game][:1] for game in runs})
    for seed, game in itertools.product(range(2), runs):
        asked = {"game": game, "agent": "der", "seed": str(seed)}
        plan["tasks"].append({"name": f"{game}-der-{seed}", "asked": asked})
    (whole / "plan.json").write_text(json.dumps(plan))
    assert "26 of the 52 runs of the sweep have a result" in fastdqn_says("report", str(whole)).stdout


def plan_of(folder: Path, script: str, *asked: dict[str, str]) -> None:
    tasks = [{"name": f"run-{i}", "asked": one} for i, one in enumerate(asked)]
    (folder / "plan.json").write_text(json.dumps({"format": 1, "script": script, "tasks": tasks}))


def test_what_a_sweep_planned_and_has_not(raw: dict[str, dict[str, list[float]]], tmp_path: Path) -> None:
    """An agent without any result is named; games that are none of the benchmark's are not counted."""
    folder = make_results(tmp_path, {game: scores[:1] for game, scores in raw["SPR"].items()})
    make_results(folder, {"space_invaders": [100.0]})
    games = [*atari_26()[:-1], "UpNDown", "SpaceInvaders"]  # as anybody may spell them
    both = [{"game": game, "agent": agent, "seed": "0"} for agent in ("der", "drq-eps") for game in games]
    plan_of(folder, "12_atari_100k", *both)
    report = read_report([folder])
    assert [(one.label, one.lacks) for one in report.entries] == [("der", [])]
    assert "drq-eps is left out: none of its 26 runs has a result" in report.notes
    own = make_results(tmp_path / "own", {"pong": [1.0]}, asked={"game": "pong", "seed": "0"})  # the script's agent
    plan_of(own, "12_atari_100k", *({"game": game, "seed": "0"} for game in ("pong", "boxing")))
    report = read_report([own])
    assert report.entries[0].lacks[-1] == "1 of the 2 runs of the sweep have a result"
    assert not report.notes
    same = make_results(tmp_path / "same", {"pong": [1.0]}, asked={"agent": "der", "seed": "0"})  # and its game
    plan_of(same, "12_atari_100k", *({"agent": "der", "seed": str(seed)} for seed in range(3)))
    assert read_report([same]).entries[0].lacks[-1] == "1 of the 3 runs of the sweep have a result"


def test_runs_of_two_scripts_are_two_agents(tmp_path: Path) -> None:
    first, second = tmp_path / "12", tmp_path / "10"
    make_results(first, {"pong": [1.0], "boxing": [2.0]})
    make_results(second, {"pong": [3.0], "boxing": [4.0]}, script="10_rainbow")
    plan_of(first, "12_atari_100k", *({"game": game, "agent": "der", "seed": "0"} for game in ("pong", "boxing")))
    report = read_report([first, second])
    assert [one.label for one in report.entries] == ["10_rainbow der", "12_atari_100k der"]
    assert [one.raw("pong") for one in report.entries] == [[3.0], [1.0]]
    assert all("runs of the sweep" not in lack for one in report.entries for lack in one.lacks)
    varied = make_results(tmp_path / "varied", {"pong": [5.0]}, asked={"game": "pong", "agent": "der", "n-step": "5"})
    labels = [one.label for one in read_report([first, varied]).entries]
    assert labels == ["der, n-step 5", "der, n-step default"]


def test_a_number_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    for game, (rate, steps, init) in {"pong": ("1e-4", "5e1", "1e"), "boxing": ("0.0001", "50", "1e")}.items():
        asked = {"agent": "der", "learning-rate": rate, "target-sync": steps, "init": init}
        make_results(tmp_path / "one", {game: [1.0]}, asked=asked)
    other = make_results(tmp_path / "other", {"qbert": [1.0]}, asked={"agent": "der", "learning-rate": "2e-4"})
    labels = [one.label for one in read_report([tmp_path / "one", other]).entries]
    assert labels == [
        "der, init 1e, learning-rate 0.0001, target-sync 50",
        "der, init default, learning-rate 0.0002, target-sync default",
    ]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {}, None),
        ({"gradient_threads": 1, "gamma": 1}, {"init": "pytorch", "gamma": 1.0}, None),  # gone, new, and the same
        ({}, {"trace_decay": None}, None),  # of which PPO has another default
        ({"gamma": 0.98}, {"gamma": 0.98, "init": "xavier"}, 'init is "pytorch" and "xavier"'),
        ({"gamma": 0.98}, {"gamma": 0.99}, "gamma is 0.98 and 0.99"),
        ({"max_norm": None}, {"max_norm": 10.0}, "max_norm is 10.0 and null"),
    ],
)
def test_runs_that_were_not_trained_alike_are_named(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], said: str | None
) -> None:
    """Those of one game, or of two."""
    for game, other in (("pong", "pong"), ("pong", "boxing")):
        folder = tmp_path / other
        make_results(folder, {game: [1.0]}, options=first)
        make_results(folder, {other: [1.0, 2.0]}, options=second, name="other", seed=7)
        notes = read_report([folder]).notes
        assert notes == ([] if said is None else [f"der: its runs were not trained alike: {said}"])


def test_a_run_that_has_lost_updates_is_named(tmp_path: Path) -> None:
    """It was resumed without its replay, and filled it once more."""
    folder = make_results(tmp_path, {"pong": [1.0]}, updates=98_400)
    make_results(folder, {"boxing": [1.0]}, updates=96_800)
    assert "not trained alike: they made from 96,800 to 98,400 updates" in read_report([folder]).notes[0]
    make_results(folder, {"boxing": [1.0]}, updates=98_390)
    assert read_report([folder]).notes == []


def test_minutes_are_those_of_the_evaluation_too(tmp_path: Path) -> None:
    folder = make_results(tmp_path, {"pong": [1.0]}, evaluation_minutes=6.0, evaluations={"evaluation": {"mean": 1.0}})
    (entry,) = read_report([folder]).entries
    assert (entry.median_minutes, entry.hours, entry.core_hours) == (36.0, 0.6, 1.2)
    make_results(folder, {"boxing": [1.0]}, evaluations={"evaluation": {"mean": 1.0, "games": 100}})
    assert read_report([folder]).notes == [
        "of 1 run the minutes are those of the training alone: nobody noted the evaluation's"
    ]


def test_two_results_of_one_run_are_named(tmp_path: Path) -> None:
    folder = make_results(tmp_path, {"pong": [1.0, 2.0]})
    make_results(folder, {"pong": [1.0]}, name="pong-0")
    with pytest.raises(UserError, match=r"Results of der have the same game and seed \(pong-0, pong-der-0\): "):
        read_report([folder])


def test_what_is_no_atari_100k_is_said(tmp_path: Path) -> None:
    folder = make_results(tmp_path / "a", {"pong": [1.0, 2.0]}, env_steps=5_000, score_of="training")
    make_results(folder, {"space_invaders": [100.0]}, agent="other")
    (folder / "results" / "damaged.json").write_text("{")
    strange = (
        *(("options", None), ("cores", "two"), ("score", 10**400), ("env_steps", 10**400), ("evaluation_minutes", "x")),
        *(("evaluations", [1]), ("evaluations", {"evaluation": 5}), ("evaluations", {"evaluation": {"games": [1]}})),
        *(("options", {"learning_rate": [1, 2]}), ("updates", "many"), ("commit", "\x1b[31m"), ("cpu", 5)),
    )
    for number, (name, value) in enumerate(strange):  # sealed by whoever wrote them
        make_results(folder, {"boxing": [1.0]}, agent=f"of-{number}", **{name: value})
    said = fastdqn_says("report", str(folder)).stdout
    assert "runs of 5,000 env steps: the published agents had 100,000" in said
    assert "means of the last 100 games of the training" in said
    assert "left out, as Atari-100k has no such game: Space Invaders" in said
    assert "damaged.json is damaged: it is no JSON" in said
    assert said.count("is damaged: it does not say what a result says") == len(strange)
    for words, mistake in (
        ((str(tmp_path / "none"),), "there is no such folder"),
        ((str(tmp_path),), "There is no result of a game of Atari-100k"),
        ((), "Name the folder of a sweep"),
    ):
        done = fastdqn_says("report", *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert mistake in done.stderr


def test_many_agents_stay_in_their_rows_and_differ(
    raw: dict[str, dict[str, list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, ...]] = []
    plot = Axes.plot

    def note(self: Any, x: Any, y: Any, *how: Any, **style: Any) -> Any:
        drawn.append((y, how, style))
        return plot(self, x, y, *how, **style)

    monkeypatch.setattr(Axes, "plot", note)
    scores = {game: raw["DrQ(eps)"][game][:2] for game in ("alien", "pong")}
    for number in range(9):
        make_results(tmp_path, scores, agent=f"a{number}")
    done = fastdqn_says("report", str(tmp_path))
    assert done.returncode == 0, done.stderr
    dots = np.concatenate([np.asarray(y, float) for y, how, _ in drawn if how == (".",)])
    assert np.abs(dots - dots.round()).max() < 0.45
    means = [(style["color"], how) for _, how, style in drawn if "mean" in str(style.get("label"))]
    profiles = [(style["color"], style["linestyle"]) for _, _, style in drawn if str(style.get("label")) in NINE]
    assert len(set(means)) >= len(profiles) == len(set(map(str, profiles))) == 9


NINE = {f"a{number}" for number in range(9)}


def test_what_a_result_does_not_say_of_its_machine(tmp_path: Path) -> None:
    scores = {"alien": [300.0]}
    make_results(tmp_path / "a", scores, gpu="a GPU")
    make_results(tmp_path / "b", scores, agent="der-2021", cores=None, cpu=None, commit=None)
    done = fastdqn_says("report", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "a" / "report.md").read_text()
    assert "| 2 of a processor, a GPU | abc |" in page
    assert "None" not in page


def test_results_of_one_name_in_two_files_are_two(tmp_path: Path) -> None:
    """Of two machines, say, whose runs had the same names and other seeds."""
    for name, seed in (("a", 0), ("b", 1)):
        make_results(tmp_path / name, {"pong": [1.0]}, seed=seed)
        (tmp_path / name / "results" / "pong-der-0.json").rename(tmp_path / f"{name}.json")
    (entry,) = read_report([tmp_path]).entries
    assert [one["seed"] for one in entry.results] == [0, 1]


def test_a_strangers_words_are_words_in_the_page(tmp_path: Path) -> None:
    agent = "x|<script>![y](http://z/w.png)"
    make_results(tmp_path, {"pong": [1.0]}, agent="x", asked={"game": "pong", "agent": agent, "seed": "0"})
    (entry,) = read_report([tmp_path]).entries
    assert fastdqn_says("report", str(tmp_path)).returncode == 0
    page = (tmp_path / "report.md").read_text()
    assert entry.label in ("x", agent)
    for mark in ("x|<", "<script>", "![y]"):
        assert mark not in page
