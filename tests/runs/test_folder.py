"""A run's folder: its name, its config.json, and those that cannot be made or read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastdqn.errors import RunError, UserError
from fastdqn.runs.folder import FORMAT, read_config, version
from tests.helpers.older import older_run
from tests.helpers.runs import make_run

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
        ("[]", "is damaged: it names no script"),
        ("{}", "is damaged: it names no script"),
        (json.dumps({**GOOD, "run": {}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "run": {"seed": None}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "wrappers": 3}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "game": "pong"}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "game": {"name": None}}), "is damaged: it names no script, game, wrappers or seed"),
        (json.dumps({**GOOD, "script": None}), "is damaged: it names no script, game, wrappers or seed"),
    ],
)
def test_a_config_that_says_too_little_is_one_sentence(tmp_path: Path, content: str | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=sentence) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value)
