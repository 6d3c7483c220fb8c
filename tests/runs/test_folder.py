"""A run's folder: its name, its config.json, and those that cannot be made or read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest

from fastdqn.errors import RunError, UserError
from fastdqn.runs.folder import (
    FORMAT,
    LOCK,
    LOOK_SECONDS,
    RUNNING,
    UNFINISHED,
    hold,
    is_words,
    let_go,
    process_named,
    read_config,
    read_object,
    reason_of,
    remove_unfinished,
    running_in,
    version,
    write_json,
    write_whole,
)
from tests.helpers.older import older_run
from tests.helpers.runs import make_run
from tests.helpers.scripts import ROOT

GOOD: dict[str, Any] = {
    "format": FORMAT,
    "version": "0.2.0",
    "script": "09_cuda_graph",
    "wrappers": "vector",
    "run": {"seed": 3},
    "game": {"name": "pong"},
}


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    folders = {make_run(tmp_path).folder for _ in range(3)}
    assert len(folders) == 3


def test_runs_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot write to .*runs") as caught:
        make_run(tmp_path / "runs")
    assert "\n" not in str(caught.value)


def test_a_config_of_this_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    assert read_config(tmp_path) == GOOD


def test_a_run_of_the_game_that_is_an_agent_now_is_read_as_one_of_that_agent(tmp_path: Path) -> None:
    said = {**GOOD, "game": {"name": "pong-fast", "frame_skip": 4}, "dqn": {"gamma": 0.98}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    game, dqn = {"name": "pong", "frame_skip": 4}, {"agent": "pong-fast", "gamma": 0.98}
    assert read_config(tmp_path) == {**said, "game": game, "dqn": dqn}


def test_a_run_of_an_older_version_is_refused_by_its_version(tmp_path: Path) -> None:
    run = older_run(tmp_path)
    with pytest.raises(UserError, match=rf"was written by fastdqn 0\.1\.0, in a format that .*{version()}, does not"):
        read_config(run)
    (run / "environment.json").unlink()
    with pytest.raises(UserError, match=r"was written by fastdqn before 0\.2\.0, in a format"):
        read_config(run)


def test_a_run_of_another_format_is_refused_by_the_version_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, "format": FORMAT + 1, "version": "7.5.0"}))
    with pytest.raises(UserError, match=r"was written by fastdqn 7\.5\.0, in a format that"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not the folder of a run: it has no config.json"),
        ("", "is damaged"),
        ("[]", "is damaged: it is no JSON object"),
        ("{}", "is damaged: it names no script"),
        (json.dumps({**GOOD, "run": {}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "run": {"seed": None}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "wrappers": 3}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "game": "pong"}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "game": {"name": None}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "run": {"seed": float("inf")}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "dqn": 5}), "is damaged: dqn must be a group of options"),
        (json.dumps({**GOOD, "dqn": {"agent": ["x"]}}), "is damaged: the options of dqn must be plain values"),
        (json.dumps({**GOOD, "script": None}), "is damaged: it names no script, game, wrappers or seed"),
    ],
)
def test_a_config_that_says_too_little_is_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=sentence) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_one_process_at_a_time_holds_a_run(tmp_path: Path) -> None:
    """Whoever is killed holds nothing any more, and whatever its file says about who it was."""
    program = (
        "import pathlib, sys, time\n"
        "from fastdqn.runs.folder import hold\n"
        f"lock = hold(pathlib.Path({str(tmp_path)!r}))\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    assert running_in(tmp_path) is None
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert running_in(tmp_path) == f"process {other.pid}"
        with pytest.raises(UserError, match=f"is still going on, in process {other.pid}"):
            hold(tmp_path)
        other.kill()
    assert (tmp_path / RUNNING).exists()
    assert running_in(tmp_path) is None
    lock = hold(tmp_path)
    assert running_in(tmp_path) == f"process {os.getpid()}"
    let_go(tmp_path, lock)
    assert running_in(tmp_path) is None


def test_json_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"score": 1})

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write_text", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, full)
            with pytest.raises(OSError, match="No space"):
                write_json(path, {"score": 2})
        assert json.loads(path.read_text()) == {"score": 1}
        assert list(tmp_path.iterdir()) == [path]
    write_json(path, {"score": 2})
    assert json.loads(path.read_text()) == {"score": 2}


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"whole")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    living = f"report.md.{os.getppid()}{UNFINISHED}"
    for name in (f"a{UNFINISHED}", f"b.{gone.pid}{UNFINISHED}", f"c.{os.getpid()}{UNFINISHED}", living):
        (tmp_path / name).write_bytes(b"ha")
    (tmp_path / f"d.{10**30}{UNFINISHED}").write_bytes(b"ha")  # no number of a process
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [living, "weights.safetensors"]


def test_two_processes_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "curves.png"

    def first(unfinished: Path) -> None:
        unfinished.write_text("AAAA")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", os.getppid)
            write_whole(path, second)

    def second(unfinished: Path) -> None:
        unfinished.write_text("BB")
        assert sorted(one.read_text() for one in tmp_path.iterdir()) == ["AAAA", "BB"]

    monkeypatch.setattr(psutil, "pid_exists", lambda _: True)
    write_whole(path, first)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("curves.png", "AAAA")]


def test_who_looks_at_the_same_time_is_not_taken_for_the_run(tmp_path: Path) -> None:
    """Whoever looks whether a run is going on has its lock for a moment."""
    let_go(tmp_path, hold(tmp_path))
    other = filelock.FileLock(tmp_path / LOCK, thread_local=False)
    other.acquire()
    release = threading.Timer(LOOK_SECONDS / 5.0, other.release)
    release.start()
    assert running_in(tmp_path) is None
    release.join()


@pytest.mark.parametrize(
    "wrong",
    [{"script": "09\x1b[31m"}, {"version": "0.2.0\n"}, {"game": {"name": "a:b\u2028"}}, {"dqn": {"agent": "x\ny"}}],
)
def test_words_that_would_move_a_terminal_are_damage(tmp_path: Path, wrong: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, **wrong}))
    damage = r"(it names no script, game,|the options of \w+ must be words)"
    with pytest.raises(UserError, match=rf"The config\.json of the run .* is damaged: {damage}"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, "run": {"seed": 3, "runs_dir": "a\nb"}}))
    read_config(tmp_path)  # a folder may be called that
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, "format": 99, "version": "\x1b[31m"}))
    with pytest.raises(UserError, match=r"was written by another program, in a format"):
        read_config(tmp_path)


def test_what_is_nested_without_end_is_no_traceback(tmp_path: Path) -> None:
    for name in ("summary.json", "running.json", "environment.json"):
        (tmp_path / name).write_text("[" * 100_000)
    assert reason_of(tmp_path) is None
    assert process_named(tmp_path / RUNNING) == "another process"
    with pytest.raises(ValueError, match="nested too deeply"):
        read_object(tmp_path / "summary.json")


def test_half_a_character_is_damage() -> None:
    """It can be shown by nobody, and written into no report."""
    assert not is_words("\ud800")
    assert is_words("Größe 🙂")


def test_nothing_is_written_through_a_link_in_a_strangers_folder(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "thesis.tex"
    (run / "checkpoints").mkdir(parents=True)
    mine.write_text("all of it")
    for name in ("running.lock", "notes.jsonl", "checkpoints/000000000090.checkpoint"):
        (run / name).symlink_to(mine)
        with pytest.raises(UserError, match="is a link, and what a run writes"):
            hold(run)
        running_in(run)
        (run / name).unlink()
    (run / f"running.json{UNFINISHED}").symlink_to(mine)
    write_json(run / RUNNING, {"pid": 1})
    assert mine.read_text() == "all of it"
    assert not (run / RUNNING).is_symlink()
