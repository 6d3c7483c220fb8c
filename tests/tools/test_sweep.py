"""Sweeps: what they consist of, that each run ends once, and what becomes of results that are no good."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from rich.console import Console

from fastdqn import cgroup
from fastdqn.cli import rehearsal
from fastdqn.cli import sweep as cli_sweep
from fastdqn.cli.rehearsal import mistake
from fastdqn.errors import UserError
from fastdqn.tools.sweep.cluster import RayWorkers
from fastdqn.tools.sweep.jobs import Job, progress_of, runs_in, words_of
from fastdqn.tools.sweep.local import slots_of
from fastdqn.tools.sweep.plan import LONGEST, Axes, Task, atari_26, axes_of, said_by, tasks_of
from fastdqn.tools.sweep.results import _evaluation_minutes, read_result
from fastdqn.tools.sweep.show import Shown, duration, left_of
from tests.helpers.scripts import ROOT, fastdqn_says, with_root
from tests.helpers.waiting import wait_until

FAKE = str(ROOT / "tests" / "helpers" / "fake.py")


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "fastdqn", "sweep", FAKE, "--into", str(folder), *words]


def environment(folder: Path) -> dict[str, str]:
    return {**with_root(), "LEDGER": str(folder.parent / "ledger")}


def swept(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Sweep in this process, which saves the time of its imports; the runs are processes all the same."""
    with mock.patch.dict(os.environ, environment(folder)):
        return fastdqn_says("sweep", FAKE, "--into", str(folder), *words)


def ledger(folder: Path) -> list[str]:
    return (folder.parent / "ledger").read_text().splitlines()


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: read_result(path) for path in (folder / "results").glob("*.json")}


def test_axes_and_names() -> None:
    axes = axes_of("pong,ALE/Boxing-v5", "der,drq-eps", "4..5", ["learning_rate=1e-4,2e-4", "double=on,off"])
    fixed = ("--max-env-steps=9", "--threads", "1", "--no-noisy", "--no-checkpoint-replay")
    tasks = tasks_of(axes, fixed)
    assert len(tasks) == len({task.name for task in tasks}) == 2 * 2 * 2 * 2 * 2
    assert tasks[0].name == "pong-der-learning-rate=1e-4-double=on-4"
    assert tasks[-1].name == "boxing-drq-eps-learning-rate=2e-4-double=off-5"  # whatever the spelling
    assert tasks[-1].asked == {  # --threads changes nothing of what comes of it
        "game": "boxing",
        "agent": "drq-eps",
        "seed": "5",
        "learning-rate": "2e-4",
        "double": "off",
        "max-env-steps": "9",
        "noisy": "off",
        "checkpoint-replay": "off",  # does, where a run is resumed
    }
    assert tasks[-1].words == (
        *("--game", "boxing", "--agent", "drq-eps", "--seed", "5", "--learning-rate", "2e-4", "--no-double"),
        *fixed,
    )
    assert [task.name for task in tasks_of(axes_of(None, None, "3", ()), ())] == ["0", "1", "2"]
    assert axes_of("atari-26", None, "0,7", ()) == Axes(atari_26(), (), (0, 7), {})
    assert len(set(atari_26())) == 26
    assert axes_of("Pong,atari-26", None, "1", ()).games == ("Pong", *(game for game in atari_26() if game != "pong"))
    own = axes_of("space:Invaders", None, "1", ())
    assert tasks_of(own, ())[0].words[:2] == ("--game", "space:Invaders")  # one's own, however it is called
    assert axes_of("breakout,breakout-small", None, "1", ()).games == ("breakout", "breakout-small")  # other settings
    assert [task.name for task in tasks_of(Axes(("a", "b"), (), (0, 1), {}), ())] == ["a-0", "b-0", "a-1", "b-1"]


@pytest.mark.parametrize(
    ("games", "seeds", "vary", "fixed", "said"),
    [
        ("pong,pong", "1", (), (), "--games has a value twice"),
        ("pong,boxing,PongNoFrameskip-v4", "1", (), (), "--games has one game twice .*: pong and PongNoFrameskip-v4"),
        ("pong", "1", ("gamma=1e-3,0.001",), (), "--vary gamma has a value twice"),
        ("pong", "1", ("gamma=nan,nan",), (), "--vary gamma has a value twice"),
        ("pong,", "1", (), (), "--games has an empty value"),
        ("pong", "many", (), (), "--seeds takes a number"),
        ("pong", "0", (), (), "names no seed: 0 is their number; the seed 0 alone is 0..0."),
        ("pong", "3..1", (), (), "names no seed: the first is above the last."),
        ("pong", "1,1", (), (), "a seed twice"),
        ("pong", "1", ("gamma",), (), "--vary takes an option and its values"),
        ("pong", "1", ("seed=1,2",), (), "a sweep has --games, --agents and --seeds"),
        ("pong", "1", ("gamma=1", "gamma=2"), (), "gamma twice"),
        ("pong", "1", ("gamma=1,2",), ("--gamma", "3"), "varied and fixed at once"),
        ("pong", "1", (), ("--resume=latest",), "--resume after -- contradicts the sweep"),
        ("pong", "1", (), ("pong",), "'pong' after -- belongs to no option"),
        ("a/b,a_b", "1", (), (), "would be called a_b-0"),
        ("pong", "20261121", (), (), "20,261,121 seeds, more than a sweep's 10,000; the seed 20261121 alone is"),
        ("pong", "0..999999999999", (), (), r"1,000,000,000,000 seeds, more than a sweep's 10,000\.$"),
    ],
)
def test_mistakes(games: str, seeds: str, vary: tuple[str, ...], fixed: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        tasks_of(axes_of(games, None, seeds, vary), fixed)


def test_a_game_has_one_name_in_all_spellings() -> None:
    for spellings in (("pong", "Pong", "ALE/Pong-v5"), ("Pendulum-v1", "pendulum-v1"), ("my.module:Catch",)):
        tasks = [tasks_of(axes_of(said, None, "1", ()), ())[0] for said in spellings]
        assert len({(task.name, task.asked["game"]) for task in tasks}) == 1


def test_minutes_of_an_evaluation_that_nobody_noted_are_not_said() -> None:
    assert _evaluation_minutes([{"seconds": 60.0}, {"seconds": 30}]) == {"evaluation_minutes": 1.5}
    assert _evaluation_minutes([]) == {"evaluation_minutes": 0.0}
    assert _evaluation_minutes([{"seconds": 60.0}, {}]) == {}


def test_words_in_one_spelling() -> None:
    assert said_by(["--a_b", "1", "--c=2", "--no-d", "--e"]) == {"a-b": "1", "c": "2", "d": "off", "e": "on"}
    assert said_by(["--stop-score", "-18"]) == {"stop-score": "-18"}


def test_time_left() -> None:
    assert left_of(10.0, [0.5, 0.25], 6, 2) == 10.0 * (6 - 0.75) / 2
    assert left_of(10.0, [0.25], 1, 2) == 7.5  # the last run has a core to itself, and is no faster for it
    assert left_of(10.0, [], 4, 4) == 10.0
    assert [duration(s) for s in (59.0, 61.0, 3_600.0, 5_400.0, 200_000.0)] == [
        *("59 s", "1 min", "1 h 0 min", "1 h 30 min", "2 d 7 h"),
    ]


def test_a_run_that_was_resumed_is_not_taken_for_a_fast_one() -> None:
    shown = Shown(2)
    shown.update({"a": (1.0, 0.8)}, None, 2, 1)
    assert shown._left is None
    shown.update({"a": (61.0, 0.85)}, None, 2, 1)  # a twentieth in 61 seconds
    assert shown._left == pytest.approx(61.0 / 60.0 / 0.05 * (2 - 0.85))


def test_a_result_names_every_machine_and_commit_of_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--", "--seconds", "0")
    assert swept(folder, *words).returncode == 0
    (machine,) = folder.glob("runs/pong-0/*/environment.json")
    said = json.loads(machine.read_text())
    before = [{"cpu": "older", "commit": "a"}, {"cpu": "older", "commit": "b"}]
    machine.write_text(json.dumps({**said, "commit": "b", "earlier": before}))
    (folder / "results" / "pong-0.json").unlink()
    assert swept(folder, *words).returncode == 0
    found = results(folder)["pong-0"]
    assert (found["cpu"], found["commit"], found["gpu"]) == ("older, then fake", "a, then b", None)
    for odd in (5, None, ["x"]):  # of a file that somebody has changed
        machine.write_text(json.dumps({**said, "earlier": odd}))
        (folder / "results" / "pong-0.json").unlink()
        assert swept(folder, *words).returncode == 0
        assert results(folder)["pong-0"]["cpu"] == "fake"


def test_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 6, 8}, raising=False)
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: 2.0)  # a container's
    assert slots_of(None, 1) == [(3,), (5,)]
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: None)
    assert slots_of(None, 1) == [(3,), (5,), (6,), (8,)]
    assert slots_of(None, 2) == [(3, 5), (6, 8)]
    assert slots_of(1, 1) == [(3,)]
    assert slots_of(5, 1)[-1] == (3,)  # more runs than cores


@pytest.mark.parametrize(
    ("said", "cores", "told"),
    [((), 2, ["--threads", "2"]), (("--threads", "1"), 2, []), (("--threads=1",), 2, []), ((), (0, 3), [])],
)
def test_a_run_that_is_bound_to_no_cores_is_told_its_threads(
    said: tuple[str, ...], cores: int | tuple[int, ...], told: list[str]
) -> None:
    """PyTorch would take all cores of a machine of a cluster, in each of its runs."""
    job = Job("fake", Path(FAKE), Task("pong-0", {}, ("--game", "pong", *said)), Path("there"), False)
    assert words_of(job, ["--resume"], cores) == ["--game", "pong", *said, "--resume", "--runs-dir=there", *told]


def test_a_sweep_ends_each_run_once(tmp_path: Path) -> None:
    """One run fails and the rest are done; the same command does that one alone; results alone are enough."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong,boxing", "--agents", "a", "--seeds", "2", "--jobs", "2")
    spoil = tmp_path / "spoil"
    spoil.write_text("")
    first = swept(folder, *words, "--", "--threads", "1", "--spoilt-by", str(spoil), "--fail", "pong-a-1")
    assert first.returncode == 1, first.stderr
    assert "failed: pong-a-1: ValueError: it went wrong\n" in first.stderr
    assert first.stderr.splitlines()[-1].startswith("error: 1 of 4 runs failed, 3 with a result")
    assert sorted(results(folder)) == ["boxing-a-0", "boxing-a-1", "pong-a-0"]
    spoil.unlink()
    fixed = ("--", "--spoilt-by", str(spoil), "--fail", "pong-a-1")  # without --threads, which changes no result
    whole = swept(folder, *words, *fixed)
    assert whole.returncode == 0
    assert f"4 runs, all with a result; fastdqn compare {folder} shows them" in whole.stdout
    assert sorted(line for line in ledger(folder) if line.endswith("begins")) == [
        *("boxing-a-0 begins", "boxing-a-1 begins", "pong-a-0 begins", "pong-a-1 begins"),
    ]
    found = results(folder)["pong-a-1"]
    assert (found["score"], found["score_of"], found["env_steps"], found["cpu"]) == (2.0, "final", 10, "fake")
    assert found["cores"] == 1  # that it had, whatever its machine has
    assert {"agent": "a", "learning_rate": 1e-4, "gamma": 0.99, "name": "pong", "seed": 1}.items() <= found[
        "options"
    ].items()
    assert (found["minutes"], found["evaluation_minutes"]) == (pytest.approx(0.1 / 60, abs=1e-3), 0.5)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder / "results", elsewhere / "results")
    again = swept(elsewhere, *words, *fixed)
    assert (again.returncode, again.stderr) == (0, "")
    assert "4 with a result, 0 left" in again.stdout
    assert again.stdout.endswith("4 runs, all with a result\n")  # its runs are elsewhere: there is nothing to compare
    assert len(ledger(folder)) == 8
    more = swept(elsewhere, "--games", "pong", "--agents", "a", "--seeds", "3", *fixed)
    assert "3 runs of fake" in more.stdout
    assert ledger(folder)[8:] == ["pong-a-2 begins", "pong-a-2 ends"]
    other = swept(elsewhere, *words, *fixed, "--learning-rate", "1")
    assert other.returncode == 2
    assert "has no --learning-rate, which is asked for; give the same options, or name another" in other.stderr
    (elsewhere / "plan.json").unlink()
    other = swept(elsewhere, *words, *fixed, "--learning-rate", "1")
    assert other.returncode == 2
    assert "are of another sweep than is asked for now" in other.stderr


def test_results_that_are_no_good_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--seeds", "4", "--", "--seconds", "0")
    assert swept(folder, *words).returncode == 0
    place = folder / "results"
    (place / "pong-0.json").write_text((place / "pong-0.json").read_text()[:100])
    changed = json.loads((place / "pong-1.json").read_text())
    (place / "pong-1.json").write_text(json.dumps({**changed, "score": 99.0}))
    shutil.copy(place / "pong-3.json", place / "pong-2.json")
    (folder / "plan.json").write_text("{")
    shutil.rmtree(folder / "runs")
    again = swept(folder, *words)
    assert again.returncode == 0, again.stderr
    said = again.stderr.splitlines()
    assert len(said) == 4
    assert "plan.json is damaged; it is now plan.json.set-aside" in said[0]
    assert (
        "pong-0.json is damaged: it is no JSON object; it is now pong-0.json.set-aside, and the run is done again."
        in said[1]
    )
    assert "pong-1.json is damaged: its checksum is wrong; it is now pong-1.json.set-aside" in said[2]
    assert "pong-2.json is the result of another run: it has --seed 3, not 2" in said[3]
    assert {name: one["seed"] for name, one in results(folder).items()} == {
        f"pong-None-{i}"[:5] + str(i): i for i in range(4)
    }
    assert len(list(place.glob("*.set-aside"))) == 3


def test_a_run_without_a_score_has_failed(tmp_path: Path) -> None:
    """It has finished no game, and was not evaluated: there is no number to write down."""
    done = swept(tmp_path / "sweep", "--games", "pong", "--", "--mute", "--seconds", "0")
    assert done.returncode == 1
    assert "has no score: it has finished no game, and was not evaluated" in done.stderr
    assert "Traceback" not in done.stderr
    assert results(tmp_path / "sweep") == {}


def test_ctrl_c_and_a_second_sweep(tmp_path: Path) -> None:
    """A second sweep on the folder is refused; Ctrl-C keeps everything, and the run resumes from its last step."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong,boxing", "--jobs", "1", "--", "--seconds", "4")
    first = subprocess.Popen(
        command(folder, *words), env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: list(folder.glob("runs/pong-0/*/checkpoints/*.checkpoint")), 30.0)
    second = swept(folder, *words)
    assert second.returncode == 2
    assert f"is going on already, in process {first.pid}" in second.stderr
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate(timeout=10)
    assert first.returncode == 130
    assert "stopped with 0 of 2 runs done; the same command continues where they were" in out
    assert not processes_of(folder)
    done = swept(folder, *words[:-1], "0.1")
    assert "has --seconds 4, not 0.1" in done.stderr
    assert swept(folder, *words).returncode == 0
    resumed = [line for line in ledger(folder) if "resumes" in line]
    assert len(resumed) == 1
    assert int(resumed[0].split()[-1]) >= 2
    assert sorted(line for line in ledger(folder) if "ends" in line) == ["boxing-None-0 ends", "pong-None-0 ends"]


def test_a_sweep_whose_runs_were_all_refused_takes_other_options(tmp_path: Path) -> None:
    """Until a run has begun; then a run is what it was planned to be. So it is where nothing was tried yet, say on a
    machine that has the plan alone.
    """
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--jobs", "1", "--", "--seconds", "0.1")
    assert swept(folder, *words, "--refuse", "pong-None-0").returncode == 1
    assert swept(folder, *words, "--refuse", "boxing-None-0").returncode == 0
    changed = swept(folder, *words, "--refuse", "none")
    assert changed.returncode == 2
    assert "has --refuse boxing-None-0, not none; give the same options" in changed.stderr
    for place in ("runs", "results"):
        shutil.rmtree(folder / place)
    assert swept(folder, *words, "--refuse", "none").returncode == 2


@pytest.mark.slow
def test_a_sweep_is_refused_before_it_begins(tmp_path: Path) -> None:
    words = ("sweep", "09", "--games", "pong,boxing", "--seeds", "3", "--into", str(tmp_path / "sweep"))
    done = fastdqn_says(*words, "--vary", "gamma=0.9,2")
    assert done.returncode == 2
    assert done.stderr == "error: --gamma must be between 0 and 1, not 2. No run has begun.\n"
    assert not (tmp_path / "sweep" / "runs").exists()
    assert not (tmp_path / "sweep" / "plan.json").exists()  # the values that are meant may still be given


def test_help_after_two_dashes_is_the_script_s(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fastdqn", "sweep", "12", "--into", str(tmp_path / "new"), "--", "--help"]
    said = subprocess.run(words, capture_output=True, text=True, env=with_root())
    assert (said.returncode, said.stderr) == (0, "")
    assert "usage: fastdqn sweep 12_atari_100k ... -- [OPTIONS]" in said.stdout
    assert "--learning-rate" in said.stdout
    assert not (tmp_path / "new").exists()


def test_scripts_that_cannot_be_asked_are_not(tmp_path: Path) -> None:
    assert mistake(Path(FAKE), [["--moon", "1"]]) is None
    (tmp_path / "broken.py").write_text("from fastdqn.cli.scripts import start\nraise ValueError\n")
    assert mistake(tmp_path / "broken.py", [["--moon", "1"]]) is None


def test_the_first_mistake_is_found_and_too_many_kinds_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "experiments" / "02_play_steps.py"
    good, bad, worse = ["--steps=4"], ["--gamma=7"], ["--steps=0"]
    assert mistake(script, [good, good]) is None
    assert "--gamma must be between 0 and 1, not 7" in (mistake(script, [good, bad, worse]) or "")
    monkeypatch.setattr(rehearsal, "SECONDS", 0.01)
    monkeypatch.setattr("fastdqn.tools.sweep.control.run_sweep", lambda *asked: asked[4](asked[2]))
    cli_sweep.sweep(cli_sweep.Sweep("02", tmp_path / "sweep", seeds="2"), [])
    assert "Not all options could be checked beforehand within two minutes" in capsys.readouterr().err


def processes_of(folder: Path, word: str = "") -> list[psutil.Process]:
    """Return the living processes that have a path in `folder` on their command line, and this word."""
    found = []
    for one in psutil.process_iter(["cmdline", "status"]):
        words = one.info["cmdline"] or []
        alive = one.info["status"] != psutil.STATUS_ZOMBIE
        if alive and any(str(folder) in said for said in words) and (not word or word in words):
            found.append(one)
    return found


def test_a_killed_worker_is_resumed(tmp_path: Path) -> None:
    """Within the same sweep, from its checkpoint; and a killed sweep takes its workers along, which keep theirs."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--jobs", "1", "--", "--seconds", "3")
    first = subprocess.Popen(command(folder, *words), env=environment(folder), stdout=subprocess.PIPE, text=True)
    wait_until(lambda: list(folder.glob("runs/pong-0/*/checkpoints/*2.checkpoint")), 30.0)
    (worker,) = processes_of(folder, "fastdqn.cli.worker")
    worker.kill()
    wait_until(lambda: any("resumes" in line for line in ledger(folder)), 30.0)
    first.kill()
    out, _ = first.communicate()
    assert "pong-0: its process was killed; it is resumed" in out
    wait_until(lambda: not processes_of(folder), 10.0)
    assert swept(folder, *words).returncode == 0
    at = [int(line.split()[-1]) for line in ledger(folder) if "resumes" in line]
    assert len(at) == 2
    assert 2 <= at[0] <= at[1]
    assert [line for line in ledger(folder) if "resumes" not in line] == ["pong-None-0 begins", "pong-None-0 ends"]


def test_a_worker_that_is_stopped_twice_writes_its_checkpoint(tmp_path: Path) -> None:
    """A service manager stops all processes, and the sweep asks its workers, too."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--jobs", "1", "--", "--seconds", "20")
    slow = {**environment(folder), "FAKE_SAVES": "2"}
    first = subprocess.Popen(command(folder, *words), env=slow, stdout=subprocess.DEVNULL)
    wait_until(lambda: list(folder.glob("runs/pong-0/*/speed.jsonl")), 30.0)
    for one in (*processes_of(folder, "fastdqn.cli.worker"), psutil.Process(first.pid)):
        one.terminate()
    assert first.wait(20) == 143
    assert not processes_of(folder)
    assert len(list(folder.glob("runs/pong-0/*/checkpoints/*.checkpoint"))) == 1


def test_a_run_that_does_not_stop_is_killed_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    changed = "from fastdqn.tools.sweep import control, jobs; control.STOP_SECONDS = jobs.STOP_SECONDS = 3.0"
    python = [sys.executable, "-c", f"{changed}; import runpy; runpy.run_module('fastdqn', run_name='__main__')"]
    words = ("--games", "pong,boxing", "--jobs", "2", "--", "--seconds", "6")
    first = subprocess.Popen(
        [*python, *command(folder, *words)[3:]],
        env={**environment(folder), "FAKE_SAVES": "60", "FAKE_SAVES_OF": "boxing"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(list(folder.glob("runs/*/*/speed.jsonl"))) == 2, 30.0)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=20)
    assert first.returncode == 130
    assert "boxing-0: it had not stopped after 3 seconds, and was killed." in said
    assert "pong-0" not in said  # it has stopped
    assert not processes_of(folder)


def test_a_run_that_cannot_be_resumed_begins_anew(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--", "--seconds", "0.5")
    assert swept(folder, *words).returncode == 0
    (run,) = [path.parent for path in folder.glob("runs/pong-0/*/config.json")]
    (folder / "results" / "pong-0.json").unlink()
    (folder / "runs" / "pong-0" / "ended.json").unlink()
    (run / "checkpoints").mkdir()
    for step in (2, 4):
        (run / "checkpoints" / f"{step:012}.checkpoint").write_text("{")
    again = swept(folder, *words)
    assert again.returncode == 0
    log = (folder / "runs" / "pong-0" / "output.log").read_text()
    assert log.count("is damaged") == 2  # the newest, and the one before
    assert "pong-0: it began anew, as its checkpoints cannot be resumed: error: The checkpoint" in again.stdout
    assert ledger(folder) == ["pong-None-0 begins", "pong-None-0 ends"] * 2
    assert results(folder)["pong-0"]["score"] == 1.0


def test_a_run_that_is_refused_keeps_its_checkpoints(tmp_path: Path) -> None:
    """A refusal for another reason than the checkpoint is a failure: nothing begins anew in its place."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--jobs", "1", "--", "--seconds", "2")
    first = subprocess.Popen(command(folder, *words), env=environment(folder), stdout=subprocess.DEVNULL)
    wait_until(lambda: list(folder.glob("runs/pong-0/*/checkpoints/*.checkpoint")), 30.0)
    first.send_signal(signal.SIGINT)
    assert first.wait(10) == 130
    with mock.patch.dict(os.environ, {"FAKE_REFUSES": "pong-None-0"}):
        refused = swept(folder, *words)
    assert refused.returncode == 1
    assert "failed: pong-0: it was refused" in refused.stderr
    assert swept(folder, *words).returncode == 0
    lines = ledger(folder)
    assert (lines[0], lines[-1], len(lines)) == ("pong-None-0 begins", "pong-None-0 ends", 3)
    assert lines[1].startswith("pong-None-0 resumes at")


def test_the_same_command_right_after_a_kill_waits_for_the_first_checkpoint(tmp_path: Path) -> None:
    """The run of the killed sweep is going to write one: it must find its folder."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--jobs", "1", "--", "--seconds", "4")
    first = subprocess.Popen(command(folder, *words), env=environment(folder), stdout=subprocess.DEVNULL)
    wait_until(lambda: (folder.parent / "ledger").exists(), 30.0)
    first.kill()
    assert swept(folder, *words).returncode == 0
    first.wait()
    lines = ledger(folder)
    assert (lines[0], lines[-1], len(lines)) == ("pong-None-0 begins", "pong-None-0 ends", 3)
    assert lines[1].startswith("pong-None-0 resumes at")


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of resources")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """No file may be longer than a result: the run ends well, its result cannot be written, and is not lost."""
    folder = tmp_path / "sweep"
    words = ("--games", "pong", "--", "--seconds", "0.1")

    def tighten() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))

    done = subprocess.run(
        command(folder, *words),
        capture_output=True,
        text=True,
        env=environment(folder),
        preexec_fn=tighten,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith(
        f"error: Cannot write to {folder}: File too large; the sweep has ended, nothing is lost"
    )
    assert not list(folder.glob("results/*"))
    assert swept(folder, *words).returncode == 0
    assert ledger(folder) == ["pong-None-0 begins", "pong-None-0 ends"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_faults_of_all_kinds(tmp_path: Path) -> None:
    """200 runs of a second; workers and the sweep are killed, the disk is full, results are damaged."""
    harmed(tmp_path / "sweep", ("--jobs", "12"), games=20, seeds=10)


@pytest.mark.engines
def test_ray_runs_so_many_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    folder = tmp_path / "sweep"
    words = ("--games", "a,b,c", "--seeds", "2", "--jobs", "2", "--engine", "ray", "--", "--seconds", "2")
    running = subprocess.Popen(command(folder, *words), env=environment(folder), stdout=subprocess.DEVNULL)
    seen = []
    while running.poll() is None:
        seen.append(len(processes_of(folder, "fastdqn.cli.worker")))
        time.sleep(0.1)
    assert running.returncode == 0
    assert max(seen) == 2
    assert len(results(folder)) == 6


@pytest.mark.engines
def test_ray_says_how_far_runs_are(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    task = Task("pong-0", {}, ("--seconds", "20"))
    seen: list[dict[str, tuple[float, float]]] = []
    with RayWorkers(None, 1, 1) as workers:
        workers.submit(Job("fake", Path(FAKE), task, tmp_path / "pong-0"))
        workers.submit(Job("fake", Path(FAKE), task._replace(name="pong-1"), tmp_path / "pong-1"))

        def far_enough() -> bool:
            seen.append(workers.running())
            return bool(seen[-1]) and seen[-1]["pong-0"][1] >= 0.3

        wait_until(far_enough, 120.0)
    assert {name for going in seen for name in going} == {"pong-0"}  # the other one waits
    made = [going["pong-0"] for going in seen if going]
    assert made == sorted(made)
    assert made[0][1] < 0.3
    assert 3.0 < made[-1][0] < 120.0


@pytest.mark.engines
@pytest.mark.timeout(3600)
def test_faults_of_all_kinds_with_ray(tmp_path: Path) -> None:
    """As many runs, and the same faults but for the full disk, which Ray's own files would not fit on."""
    pytest.importorskip("ray")
    harmed(tmp_path / "sweep", ("--jobs", "4", "--engine", "ray"), games=20, seeds=10)


def harmed(folder: Path, how: tuple[str, ...], games: int, seeds: int) -> None:
    """Do a sweep in the face of all kinds of faults, again and again until it is whole and each kind has been; each run
    must end once.
    """
    rng = random.Random(1)
    names = [f"game{i}" for i in range(games)]
    words = ("--games", ",".join(names), "--seeds", str(seeds), *how, "--", "--seconds", "1")
    ray = "ray" in how  # whose own files would be too long for such a disk, and which needs its time to begin
    counts = dict.fromkeys(("worker", "sweep", "result", *(() if ray else ("disk",))), 0)
    for _ in range(60):
        full = not ray and rng.random() < 0.2
        limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))) if full else None
        running = subprocess.Popen(
            command(folder, *words),
            env=environment(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
        )
        if full:
            counts["disk"] += 1
        if ray:
            wait_until(lambda: processes_of(folder, "fastdqn.cli.worker") or running.poll() is not None, 240.0)  # noqa: B023
        end = time.monotonic() + rng.uniform(6.0, 25.0)
        while running.poll() is None and time.monotonic() < end:
            time.sleep(rng.uniform(0.3, 1.5))
            workers = processes_of(folder, "fastdqn.cli.worker")
            if workers and not full:
                with contextlib.suppress(psutil.NoSuchProcess):
                    rng.choice(workers).kill()
                counts["worker"] += 1
        if running.poll() is None:
            running.kill()
            counts["sweep"] += 1
        _, err = running.communicate()
        assert "Traceback" not in err, err
        if running.returncode == 0 and min(counts.values()) > 0:
            break
        done = sorted(folder.glob("results/*.json"))
        if running.returncode == 0 or rng.random() < 0.5:  # a whole sweep has something to do again
            for path in rng.sample(done, len(done) // 2 if running.returncode == 0 else min(1, len(done))):
                path.write_text(path.read_text()[: rng.randrange(200)])
                counts["result"] += 1
    assert running.returncode == 0, err
    print(counts)
    assert min(counts.values()) > 0, counts
    found = results(folder)
    assert {name: one["score"] for name, one in found.items()} == {
        f"{name}-{seed}": seed + 1.0 for name in names for seed in range(seeds)
    }
    ended = [line for line in ledger(folder) if line.endswith(" ends")]
    assert len(ended) == len(set(ended))  # no run has been finished twice
    assert len(ended) >= games * seeds - 3  # a few may have been killed between their summary and this line
    begun, resumed = (sum(word in line for line in ledger(folder)) for word in (" begins", " resumes at "))
    assert begun - games * seeds < resumed  # one that is killed before its first checkpoint begins anew, any other not
    wait_until(lambda: not processes_of(folder), 20.0)
    left = list(folder.rglob("*"))
    assert not [path for path in left if path.name in (".probe", "sweep.json") or path.suffix == ".unfinished"]


def test_the_newest_run_of_a_job_is_the_one_that_was_started_last(tmp_path: Path) -> None:
    """Whatever its name says: a clock may be put back."""
    for number, name in enumerate(("20261025-023000-pong", "20261025-020500-pong")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (1e9 + number, 1e9 + number))
    assert [run.name for run in runs_in(tmp_path)] == ["20261025-023000-pong", "20261025-020500-pong"]


@pytest.mark.parametrize(
    ("limits", "share"),
    [
        ({"max_env_steps": 1_000, "max_minutes": None}, 0.1),
        ({"max_env_steps": 1_000, "max_minutes": 10.0}, 0.9),
        ({"max_env_steps": None, "max_minutes": 20.0}, 0.45),
        ({"max_env_steps": None, "max_minutes": None}, 0.0),
    ],
)
def test_progress_is_towards_the_limit_that_comes_first(tmp_path: Path, limits: dict[str, Any], share: float) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"run": limits}))
    (tmp_path / "run" / "speed.jsonl").write_text('{"env_steps": 100, "elapsed": 540.0}\n')
    assert progress_of(tmp_path) == pytest.approx(share)


def test_nothing_is_removed_or_written_through_links_in_a_sweep(tmp_path: Path) -> None:
    """A sweep may come from a stranger: a link in it would lead to files of one's own."""
    mine = tmp_path / "mine"
    (mine / "run" / "checkpoints").mkdir(parents=True)
    (mine / "run" / "config.json").write_text("{}")
    (mine / "run" / "checkpoints" / "1.checkpoint").write_text("dear")
    (mine / "notes").write_text("dear, too")
    words = ("--games", "pong", "--", "--seconds", "0")
    job = tmp_path / "sweep" / "runs" / "pong-0"
    for number, (link, target) in enumerate(
        (
            *((job, mine), (job / "output.log", mine / "notes"), (job / "r", mine / "run")),
            *((tmp_path / "sweep" / ".probe", mine / "notes"), (tmp_path / "sweep" / "results", mine)),
            (tmp_path / "sweep" / "results" / "pong-0.json", mine / "notes"),
        )
    ):
        shutil.rmtree(tmp_path / "sweep", ignore_errors=True)
        link.parent.mkdir(parents=True)
        link.symlink_to(target)
        if link == job / "r":
            (job / "ended.json").write_text(json.dumps({"run": "r"}))
        done = swept(tmp_path / "sweep", *words)
        assert done.returncode == (1 if number < 3 else 2), done.stderr
        assert f"{link} is a link, and what a run writes would go where it leads" in done.stderr
        assert "Traceback" not in done.stderr
        assert (mine / "run" / "checkpoints" / "1.checkpoint").read_text() == "dear"
        assert (mine / "notes").read_text() == "dear, too"
        assert sorted(path.name for path in mine.iterdir()) == ["notes", "run"]


def test_a_long_name_is_one_that_a_file_may_have() -> None:
    """With endings; and it stays one run's own."""
    options = [f"option-number-{i}=0.00000001,0.00000002" for i in range(7)]
    tasks = tasks_of(axes_of("pong", None, "1", options), ())
    assert len({task.name for task in tasks}) == len(tasks) == 2**7
    assert {len(task.name) for task in tasks} == {LONGEST}
    assert all(task.name.startswith("pong-option-number-0=0.0000000") for task in tasks)
    (short,) = tasks_of(axes_of("pong", None, "1", options[:1]), ())[:1]
    assert short.name == "pong-option-number-0=0.00000001-0"


def test_what_does_not_fit_the_terminal_is_counted() -> None:
    shown = Shown(100)
    with mock.patch.object(shown, "_console", Console(height=10, width=80)):
        for count, rows in ((7, 7), (8, 8), (9, 7)):
            going = {f"run-{i}": (1.0, 0.5) for i in range(count)}
            with shown._console.capture() as captured:
                shown._console.print(shown._picture(going))
            lines = captured.get().splitlines()
            assert sum(line.startswith("run-") for line in lines) == rows
            assert len(lines) <= 10
            assert lines[-1].startswith("0 of 100 done")
            assert ("and 2 more" in lines) == (count > rows)
