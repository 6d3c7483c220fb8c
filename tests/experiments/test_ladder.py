"""The scripts themselves: they repeat, keep their ratios, and learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastdqn.schedules import updates_due
from tests.helpers.scripts import CATCH, PARALLEL, SHORT, VECTOR, fingerprint, records, summary, train

SCRIPTS = ("01_baseline", "02_play_steps", *PARALLEL, *VECTOR)
SLOW = [pytest.param(script, marks=pytest.mark.slow) for script in (VECTOR[0], VECTOR[2])]
LEARNT = 0.45
"""Mean score of the last 100 games of Catch: a random player has about -0.6, one that looks no further than a move
-0.1, a perfect one at epsilon 0.02 0.95; those that learn have 0.56 to 0.9, as seed and rounding will have it."""


@pytest.mark.parametrize("n_step", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_01_and_02_repeat_and_02_with_one_step_is_01(tmp_path: Path, n_step: int) -> None:
    """Breakout loses its lives, and so has episodes and rewards, within the few env steps."""
    words = (*SHORT, "--game", "breakout", "--replay-size", "150", "--n-step", str(n_step))
    first = fingerprint(train("01_baseline", tmp_path / "a", *words))
    assert first[2]["updates"] == 101 or n_step > 1  # at env steps 100 to 200
    assert first == fingerprint(train("02_play_steps", tmp_path / "c", *words, "--steps", "1"))
    if n_step > 1:
        return
    assert first == fingerprint(train("01_baseline", tmp_path / "b", *words))
    assert first[0] != fingerprint(train("01_baseline", tmp_path / "d", *words, "--seed", "1"))[0]
    four = fingerprint(train("02_play_steps", tmp_path / "e", *words))
    assert four == fingerprint(train("02_play_steps", tmp_path / "f", *words))
    assert (four[2]["updates"], four[2]["samples"]) == (26, 26 * 16)
    assert four[0] != first[0]


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("03_parallel", 1),
        *(pytest.param(script, 3, marks=pytest.mark.slow) for script in PARALLEL[:2]),
        (PARALLEL[2], 3),
    ],
)
def test_a_player_process_keeps_the_ratio_exactly(tmp_path: Path, script: str, steps: int) -> None:
    run = train(script, tmp_path, *SHORT, "--steps", str(steps), "--replay-initial", "99", "--max-env-steps", "198")
    result = summary(run)
    assert result["env_steps"] == 198
    assert result["updates"] == (198 - 99) // steps + 1  # at env steps 99 to 198
    assert result["samples"] == result["updates"] * 4 * steps
    for line in records(run, "speed.jsonl"):
        if line["updates"]:
            due = (line["env_steps"] - 99) / steps
            assert due - 1 <= line["updates"] <= due + 1
    assert result["reason"] == "max-env-steps"


def test_the_ratio_holds_with_a_slow_player(tmp_path: Path) -> None:
    words = (
        *(*SHORT, "--game", "tests.helpers.toys:SlowCounter", "--frame-skip", "4"),
        *("--replay-size", "5000", "--replay-initial", "40", "--max-env-steps", "120"),
    )
    result = summary(train("03_parallel", tmp_path, *words))
    assert (result["env_steps"], result["updates"]) == (120, 21)


@pytest.mark.parametrize("script", [VECTOR[1], VECTOR[3], *SLOW])
def test_vector_scripts_repeat_and_keep_ratio_and_schedules(tmp_path: Path, script: str) -> None:
    """Five games of Breakout at once: the same run twice; updates and epsilon at 02's env steps."""
    words = (*SHORT, "--game", "breakout", "--num-envs", "5", "--steps", "4", "--n-step", "3", "--env-threads", "2")
    words += ("--epsilon-decay", "300", "--frame-size", "42")
    first = fingerprint(train(script, tmp_path / "a", *words))
    run = train(script, tmp_path / "b", *words)
    assert first == fingerprint(run)
    result = summary(run)
    assert 200 <= result["env_steps"] < 205
    overlapped = script in ("08_overlap", "09_cuda_graph")
    until = result["env_steps"] - (5 if overlapped else 0)  # those of the last step are due in the next
    assert abs(result["updates"] - len(updates_due(0, until, 4, 100))) <= (1 if overlapped else 0)
    assert result["samples"] == result["updates"] * 16
    for line in records(run, "speed.jsonl"):
        if line["env_steps"]:
            assert line["epsilon"] == pytest.approx(max(0.02, 1 - line["env_steps"] / 300), abs=5 / 300)
        if line["updates"] and line["policy_lag"] is not None:
            assert line["policy_lag"] in ((0, 1, 2) if overlapped else (0,))
    if overlapped:
        assert any(line["policy_lag"] for line in records(run, "speed.jsonl"))


def test_10_without_parts_learns_what_09_learns(tmp_path: Path) -> None:
    """Reports and all: they draw from random numbers of their own."""
    words = (*SHORT, "--game", "breakout", "--num-envs", "5", "--steps", "4", "--frame-size", "42")
    first = fingerprint(train("09_cuda_graph", tmp_path / "a", *words))
    assert first == fingerprint(train("10_rainbow", tmp_path / "b", *words, "--report-env-steps", "30"))


def test_where_the_time_goes(tmp_path: Path) -> None:
    run = train("09_cuda_graph", tmp_path, *SHORT, "--batch-size", "16", "--profile")
    profile = summary(run)["profile"]
    assert {"acting", "emulator", "replay", "update", "logging", "the rest"} == set(profile)
    assert sum(profile.values()) == pytest.approx(1.0)
    assert max(profile, key=profile.__getitem__) == "update"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(script, marks=() if script == SCRIPTS[-1] else pytest.mark.slow)
        for script in SCRIPTS
        if script[:2] not in ("03", "04", "08")
    ],
)
def test_each_script_learns_catch(tmp_path: Path, script: str) -> None:
    """03 and 04 have the loop of 05, 08 that of 09, and without a GPU nothing else that learns."""
    enough = ("--max-env-steps", "1600") if script == "01_baseline" else ()  # it makes four times the updates
    small = ("--frame-size", "42", "--max-env-steps", "2400") if script in VECTOR else ()  # seed 0 begins late on some
    run = train(script, tmp_path, *CATCH, *enough, *small)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[:100]) / 100 < 0.0  # it was not easy to begin with
    assert sum(scores[-100:]) / 100 >= (0.6 if script in VECTOR else LEARNT)
    assert summary(run)["updates"] >= 395


@pytest.mark.slow
def test_without_bootstrapping_catch_is_not_learnt(tmp_path: Path) -> None:
    """The control of the test above: gamma 0 sees the last move alone, and must fail it clearly."""
    run = train("02_play_steps", tmp_path, *CATCH, "--gamma", "0")
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[-100:]) / 100 < LEARNT - 0.2


@pytest.mark.slow
def test_memory_grows_by_the_frames_alone(tmp_path: Path) -> None:
    """Frames among an update's temporaries once made the heap grow by 5 MB an update; 100 env steps bring 0.8 MB.

    What the first updates leave in the allocator adds to it once, up to 50 MB in all on a busy machine.
    """
    run = train("04_cuda_async", tmp_path, "--replay-initial", "500", "--train-seconds", "14")
    trained = [line for line in records(run, "speed.jsonl") if line["updates"] > 10]
    first, last = trained[0], trained[-2]  # at the last one the player may be gone
    updates = last["updates"] - first["updates"]
    assert updates > 15
    assert (last["rss_bytes"] - first["rss_bytes"]) / updates < 3e6


@pytest.mark.slow
def test_a_run_that_solves_its_game_stops_by_itself(tmp_path: Path) -> None:
    """A stop score below what random play reaches: solved as soon as 100 games are over."""
    run = train("05_opencv_wrappers", tmp_path, *CATCH, "--stop-score", "-2", "--max-env-steps", "None")
    result = summary(run)
    assert (result["solved"], result["reason"], result["episodes"]) == (True, "solved", 100)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("script", "words"),
    [
        *((script, ()) for script in SCRIPTS[:2]),
        *((script, ("--player-device", player)) for script in PARALLEL for player in ("same", "cpu")),
        *((script, ("--num-envs", "8", "--epsilon-decay", "0")) for script in VECTOR),
        ("09_cuda_graph", ("--agent", "pong-fast", "--num-envs", "8", "--steps", "4", "--final-learning-rate", "1e-5")),
        ("09_cuda_graph", ("--agent", "nature", "--num-envs", "8", "--final-learning-rate", "1e-5")),
    ],
)
def test_scripts_run_on_cuda(tmp_path: Path, script: str, words: tuple[str, ...]) -> None:
    words = ("--cuda", *SHORT, *words)
    result = summary(train(script, tmp_path, *words))
    assert result["device"] == "cuda:0"
    assert result["updates"] >= 23
    assert result["peak_device_bytes"] > 10_000_000
