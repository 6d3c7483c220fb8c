"""bench/fps.py: what it accepts, what it counts as a figure, and one real run of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from PIL import Image
from rich.console import Console

from bench import fps, fps_figures, fps_ladder, programs
from bench.ceilings import Ceiling, options_of
from bench.fps_table import draw, print_table
from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError
from tests.helpers.scripts import ROOT, answer


def line(elapsed: float, env_steps: int, updates: int) -> dict[str, Any]:
    return {"elapsed": elapsed, "env_steps": env_steps, "updates": updates, "samples": updates * 128}


def test_steady_state_by_hand() -> None:
    """Updates begin at 10 s; with 3 s of warm-up the window is 13 s to 23 s: 400 env steps and 100 updates."""
    lines = [line(5, 900, 0), line(10, 1000, 1), line(11, 1004, 2), line(13, 1040, 10), line(23, 1440, 110)]
    result = fps_figures.steady_state(lines, 3.0, "x")
    assert result == {
        "env_steps_per_s": 40.0,
        "updates_per_s": 10.0,
        "samples_per_step": 32.0,
        "batch_size": 128,
        "measured_seconds": 10.0,
    }


def test_whole_rollouts_are_counted() -> None:
    """1,000 env steps every 2 s: from the second to the last of them, not to the end, at which one is half learnt."""
    counts = [(1000, 1), (1000, 8), (2000, 17), (2000, 24), (3000, 33), (3000, 40), (4000, 49), (4000, 56)]
    result = fps_figures.steady_state([line(10 + i, *both) for i, both in enumerate(counts)], 0.0, "x")
    assert (result["env_steps_per_s"], result["updates_per_s"], result["measured_seconds"]) == (500.0, 8.0, 4.0)


@pytest.mark.parametrize(
    "lines",
    [
        [line(5, 900, 0), line(9, 5000, 0)],  # never trained
        [line(10, 1000, 1), line(11, 1100, 5)],  # over before the warm-up was
        [line(10, 1000, 1), line(20, 2000, 1), line(30, 3000, 1)],  # stopped training
    ],
)
def test_no_update_is_an_error_and_no_number(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(RunError, match="made no update"):
        fps_figures.steady_state(lines, 3.0, "x")


def test_gains_are_medians_of_ratios_within_a_turn() -> None:
    assert fps_figures.median_ratio([20.0, 30.0, 90.0], [10.0, 10.0, 100.0]) == 2.0


def test_sweep_values() -> None:
    assert fps.sweep_values("steps=1..6") == ("steps", ["1", "2", "3", "4", "5", "6"])
    assert fps.sweep_values("batch_size=16,32") == ("batch-size", ["16", "32"])
    for bad in ("steps", "steps=", "=3", "steps=6..1", "steps=1...3"):
        with pytest.raises(UserError, match="--sweep"):
            fps.sweep_values(bad)


def test_only_names_scripts_by_number() -> None:
    assert [row.label for row in fps.chosen("01, 03")] == ["01_baseline", "03_parallel"]
    rows = fps.chosen("20, 21 --players 2 --num-envs 4, 21")
    assert [row.label for row in rows] == ["20_a2c", "21_a3c_data --players 2 --num-envs 4", "21_a3c_data"]
    assert [row.extra for row in rows] == [(), ("--players", "2", "--num-envs", "4"), ()]
    with pytest.raises(UserError, match="no such script"):
        fps.chosen("99")
    assert [row.extra for row in fps.rows_of(fps.BenchOptions(sweep="steps=1..2"))] == [
        ("--steps", "1"),
        ("--steps", "2"),
    ]
    with pytest.raises(UserError, match="one script"):
        fps.rows_of(fps.BenchOptions(sweep="steps=1..2", only="02,03"))
    for options, said in (
        (fps.BenchOptions(only="09,09"), "09_cuda_graph would be timed twice"),
        (fps.BenchOptions(only="1,10"), "10_rainbow would be timed twice"),
        (fps.BenchOptions(sweep="steps=1,1"), "steps=1 would be timed twice"),
        (fps.BenchOptions(only="09 --game breakout"), "give --game to the bench"),
        (fps.BenchOptions(only="09", extra=("--game=breakout",)), "give --game to the bench"),
        (fps.BenchOptions(only="01 'x"), "a quotation mark has no end"),
    ):
        with pytest.raises(UserError, match=said):
            fps.rows_of(options)


def test_names_of_any_length_leave_room_for_the_bars(tmp_path: Path) -> None:
    named = "09_cuda_graph --num-envs 16 --batch-size 8 --steps 16 --crowded-threads 1, beside 1 busy process"
    row = {"family": "dqn", "env_steps_per_s": 2.0, "env_steps_per_s_all": [1.0, 3.0], "samples_per_step": 8.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw([{**row, "row": named, "gain_over_first": 1.0}], tmp_path / "bars.png", {"gpu": "a GPU", "cores": 2})
    with Image.open(tmp_path / "bars.png") as picture:
        width, height = picture.size
    assert width < 8.5 * 120
    assert height < 3 * 120


def test_every_script_of_the_ladder_is_timed() -> None:
    scripts = sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py"))
    assert [rung.script for rung in fps_ladder.LADDER] == scripts


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the bench in this process; the scripts that it times have processes of their own."""
    return answer(fps.main, "--out", str(folder), *words, cwd=folder)


@pytest.mark.parametrize(
    ("script", "samples"),
    [pytest.param("01_baseline", 8.0, marks=pytest.mark.slow), pytest.param("20_a2c", 1.0, marks=pytest.mark.slow)],
)
def test_a_real_run(tmp_path: Path, script: str, samples: float) -> None:
    words = ("--only", script, "--seconds", "5", "--warmup", "0.5", "--repeats", "1", "--replay-initial", "100")
    done = run(tmp_path, *words, "--", "--batch-size", "8", "--threads", "1")
    assert done.returncode == 0, done.stderr
    for text in (script, "of env-only", "ceiling:", "machine:", "samples/env step"):
        assert text in done.stdout
    (results,) = tmp_path.glob("*.jsonl")
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    kinds: dict[str, list[dict[str, Any]]] = {}
    for text in results.read_text().splitlines():
        value = json.loads(text)
        kinds.setdefault(value["kind"], []).append(value)
    (row,) = kinds["row"]
    assert (row["row"], row["env_steps_per_s"] > 1) == (script, True)
    assert row["samples_per_step"] == pytest.approx(samples, rel=0.15)
    assert 0 < row["share_of_env_only"] < 1
    assert 0 < row["share_of_update_only"] < 2
    assert row["peak_rss_bytes"] > 100_000_000
    assert {c["what"] for c in kinds["ceiling"]} == {"env", "update"}
    assert kinds["environment"][0]["packages"]["torch"]


@pytest.mark.slow
def test_a_script_that_fails_fails_the_bench(tmp_path: Path) -> None:
    words = ("--only", "01", "--seconds", "2", "--warmup", "0", "--repeats", "1", "--", "--learning-rate", "0")
    done = run(tmp_path, *words)
    assert done.returncode == 1
    assert "--learning-rate must be more than 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_row_that_fails_does_not_cost_the_others(tmp_path: Path) -> None:
    words = ("--only", "09", "--sweep", "learning-rate=0,1e-4", "--seconds", "2", "--warmup", "0", "--repeats", "2")
    done = run(tmp_path, *words, "--", "--threads", "1")
    assert done.returncode == 1
    assert done.stderr.count("--learning-rate must be more than 0") == 1  # it is not tried again
    assert "learning-rate=0.0001" in done.stdout or "learning-rate=1e-4" in done.stdout
    (file,) = tmp_path.glob("*.jsonl")
    rows = [record for record in map(json.loads, file.read_text().splitlines()) if record["kind"] == "row"]
    assert len(rows) == 1
    assert len(rows[0]["env_steps_per_s_all"]) == 2


@pytest.mark.parametrize(
    "words",
    [("--only", "77"), ("--repeats", "0"), ("--sweep", "x"), ("--device", "cuda:9"), ("--cuda", "--device", "cpu")],
)
def test_bad_input_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_each_row_has_its_own_ceilings() -> None:
    options = fps.BenchOptions(extra=("--num-envs", "16", "--double"))
    plain, fast = (fps_ladder.Row(rung.script, rung) for rung in fps_ladder.LADDER if rung.script[:2] in ("01", "11"))
    trial = {"batch_size": 32, "games": 16}
    assert fps.ceilings_of(plain, trial, options)["env"] == ("--wrappers", "classic")
    assert fps.ceilings_of(fast, trial, options) == {
        "env": ("--wrappers", "vector", "--num-envs", "16"),
        "update": ("--form", "fast", "--batch-size", "32", "--double"),
    }
    for word, double in (("--double", True), ("--no-double", False)):
        row = fps_ladder.Row("09", fast.rung, ("--variant", "rainbow", word))
        words = ["--what", "update", *fps.ceilings_of(row, trial, fps.BenchOptions())["update"]]
        assert options_of(parsed(Ceiling, words, Ceiling(), "")).dqn.double is double  # ceilings.py takes them
    of_agent = fps_ladder.Row("11", fast.rung, ("--agent", "nature"))  # as many games as it has played
    assert fps.ceilings_of(of_agent, trial, fps.BenchOptions())["env"] == ("--wrappers", "vector", "--num-envs", "16")
    options = fps.BenchOptions(extra=("--num-envs=4", "--threads", "1", "--precision=bf16"))
    trial["games"] = 4
    assert fps.ceilings_of(fast, trial, options) == {
        "env": ("--wrappers", "vector", "--num-envs", "4"),
        "update": ("--form", "fast", "--batch-size", "32", "--threads", "1", "--precision", "bf16"),
    }


def test_what_the_ceilings_cannot_be_asked_for_has_none() -> None:
    """A share of another network's speed, or of another algorithm's, would be a false one."""
    rungs = {rung.script[:2]: rung for rung in fps_ladder.LADDER}
    trial = {"batch_size": 256, "players": 1, "games": 4}
    counts = {"samples_per_step": 1.0, **trial, "profile": {}, "env_steps_per_s": 10.0, "updates_per_s": 1.0}
    counts |= {"peak_rss_bytes": 1e9, "peak_device_bytes": 0}
    stamp = {"gpu": None, "cpu": "c", "cores": 2, "commit": "d", "packages": defaultdict(str)}
    others = (("10", ("--noisy",)), ("10", ("--no-distributional",)), ("09", ("--frame-skip=2",)))
    for number, words in (("33", ("--algorithm", "ppo")), ("31", ("--hidden=64",)), *others):
        row = fps_ladder.Row(number, rungs[number], words)
        assert fps.ceilings_of(row, trial, fps.BenchOptions()) == {}
        (line,) = fps.summarise([row], {number: [counts]}, {}, fps.BenchOptions())
        assert line["share_of_env_only"] is line["share_of_update_only"] is None
        console = Console(record=True, width=150, file=io.StringIO())
        print_table(console, [line], {}, stamp)
        text = console.export_text()
        assert text.count(" - ") == 2
        assert "samples/env step" in text


def test_all_that_play_are_counted() -> None:
    """Each rank has games of its own."""
    assert fps_figures.playing({}) == 1
    assert fps_figures.playing({"players": {"players": 4}, "vector": {"num_envs": 8}}) == 4
    assert fps_figures.playing({"sessions": {"sessions": 3}, "ranks": {"processes": 2}}) == 6


def test_players_share_the_games_of_a_ceiling() -> None:
    rungs = {rung.script[:2]: fps_ladder.Row(rung.script, rung) for rung in fps_ladder.LADDER}
    options = fps.BenchOptions(extra=("--env-threads", "2"))
    trial = {"batch_size": 128, "players": 4, "games": 32}
    assert fps.ceilings_of(rungs["22"], trial, options) == {
        "env": ("--wrappers", "vector", "--num-envs", "32", "--env-threads", "4"),
        "update": ("--form", "a2c", "--batch-size", "128"),
    }
    trial = {"batch_size": 256, "players": 1, "games": 8}
    assert fps.ceilings_of(rungs["41"], trial, options) == {
        "env": ("--wrappers", "vector", "--num-envs", "8", "--env-threads", "2"),
        "update": ("--form", "ppo", "--batch-size", "256"),
    }


def test_what_does_not_play_atari_plays_its_own_game() -> None:
    rung = next(rung for rung in fps_ladder.LADDER if rung.script == "31_sac")
    trial = {"batch_size": 256, "players": 1, "games": 4}
    for asked, played in (("pong", "Pendulum-v1"), ("HalfCheetah-v5", "HalfCheetah-v5")):
        assert fps.ceilings_of(fps_ladder.Row("31", rung), trial, fps.BenchOptions(game=asked)) == {
            "env": ("--wrappers", "vector", "--num-envs", "4", "--form", "sac", "--game", played),
            "update": ("--form", "sac", "--batch-size", "256", "--game", played),
        }
    assert fps_ladder.LADDER[0].game_of("breakout") == "breakout"


def test_another_algorithm_is_no_gain_over_the_row_above() -> None:
    """A2C plays ten times what 01 plays, 41 half of that; 31 is another one again. Gains are those within a family."""
    rungs = {rung.script[:2]: fps_ladder.Row(rung.script, rung) for rung in fps_ladder.LADDER}
    rows = [rungs["01"], rungs["20"], rungs["41"], rungs["31"]]
    counts = {"samples_per_step": 1.0, "batch_size": 8, "players": 1, "games": 8, "profile": {}}
    speeds = (100.0, 1000.0, 500.0, 300.0)
    trials = {row.label: [{"env_steps_per_s": speed, **counts}] for row, speed in zip(rows, speeds, strict=True)}
    asked = {pair for row in rows for pair in fps.ceilings_of(row, trials[row.label][0], fps.BenchOptions()).items()}
    lines = fps.summarise(rows, trials, {key: [2000.0] for key in asked}, fps.BenchOptions())
    assert [line["gain_over_previous"] for line in lines] == [1.0, 1.0, 0.5, 1.0]
    assert [line["gain_over_first"] for line in lines] == [1.0, 1.0, 0.5, 1.0]


def test_beside_busy_processes() -> None:
    """Each row is followed by itself in company, which is compared with it; the next one with the quiet one."""
    rows = fps.beside(fps.chosen("08, 09 --batch-size 8"), 2)
    assert [row.label for row in rows[:2]] == ["08_overlap", "08_overlap, beside 2 busy processes"]
    assert [(row.extra, row.busy) for row in rows[2:]] == [(("--batch-size", "8"), 0), (("--batch-size", "8"), 2)]
    counts = {"samples_per_step": 8.0, "batch_size": 32, "players": 1, "games": 8, "profile": {}}
    speeds = (100.0, 40.0, 200.0, 150.0)
    trials = {row.label: [{"env_steps_per_s": speed, **counts}] for row, speed in zip(rows, speeds, strict=True)}
    asked = {pair for row in rows for pair in fps.ceilings_of(row, trials[row.label][0], fps.BenchOptions()).items()}
    lines = fps.summarise(rows, trials, {key: [2000.0] for key in asked}, fps.BenchOptions())
    assert [one["gain_over_previous"] for one in lines] == [1.0, 0.4, 2.0, 0.75]


def test_busy_processes_compute_and_end() -> None:
    before = set(psutil.Process().children())
    with programs.busy_processes(2):
        ours = [process for process in psutil.Process().children() if process not in before]
        deadline = time.monotonic() + 30
        while (
            not (computed := all(process.cpu_times().user > 0.05 for process in ours)) and time.monotonic() < deadline
        ):
            time.sleep(0.05)
    assert len(ours) == 2
    assert computed
    assert not any(process.is_running() for process in ours)


def test_what_takes_too_long_has_failed_and_is_gone() -> None:
    """It and what it has started, so that the next script is alone; what is quick is heard out."""
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']); "
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(RunError, match=r"it had not ended after 2 s\."):
        programs.said_by([sys.executable, "-c", child + "time.sleep(99)"], "it", 2)
    assert set(psutil.Process().children(recursive=True)) <= before
    with pytest.raises(RunError, match="it failed with exit code 3:\nno"):
        programs.said_by([sys.executable, "-c", "import sys; print('no', file=sys.stderr); sys.exit(3)"], "it", 60)
    assert programs.said_by([sys.executable, "-c", "print(5)"], "it", 60) == "5\n"


def test_a_ceiling_that_failed_is_no_share() -> None:
    words = {"env": ("a",), "update": ("b",)}
    ceilings = {("env", ("a",)): [10.0, 20.0], ("update", ("b",)): [10.0]}
    assert fps_figures.share_of(ceilings, "env", words, [5.0, 5.0]) == pytest.approx(0.375)
    assert fps_figures.share_of(ceilings, "update", words, [5.0, 5.0]) is None
    assert fps_figures.share_of(ceilings, "env", {}, [5.0, 5.0]) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_cuda_is_not_quietly_the_cpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--cuda", "--seconds", "1")
    assert done.returncode == 2
    assert "sees no CUDA device" in done.stderr
