"""The command `fastdqn`: evaluation, plots, tables, and every mistake as one sentence."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.helpers.scripts import fastdqn
from tests.helpers.trained import TrainedRuns


def test_help_is_quick_and_complete() -> None:
    fastest = 99.0
    for _ in range(3):
        begin = time.perf_counter()
        done = fastdqn("--help")
        fastest = min(fastest, time.perf_counter() - begin)
    assert fastest < 1.5  # on one busy core; LOG.md has the figure of a quiet one
    for command in ("train", "evaluate", "watch", "plot", "compare", "games"):
        assert f"\n  {command} " in done.stdout
    assert "\n    fastdqn games\n" in done.stdout
    for command, option in (("evaluate", "--protocol"), ("watch", "--values"), ("plot", "--what"), ("games", "NAME")):
        said = fastdqn(command, "--help")
        assert said.returncode == 0
        assert option.lower() in said.stdout.lower()


def test_evaluate_says_and_writes_what_it_found(runs: TrainedRuns) -> None:
    done = fastdqn("evaluate", str(runs["09"]), "--episodes", "3", "--num-envs", "2")
    assert done.returncode == 0, done.stderr
    assert "3 games" in done.stdout
    assert "from random play to a person" in done.stdout
    said = json.loads((runs["09"] / "evaluation-training.json").read_text())
    assert (said["games"], said["protocol"], len(said["scores"])) == (3, "training", 3)
    nothing = fastdqn("evaluate", str(runs["09"]), "--protocol", "nature", "--max-minutes", "0.00001")
    assert "No game has finished" in nothing.stdout


def test_plot_and_compare(runs: TrainedRuns, tmp_path: Path) -> None:
    folders = [str(runs[name]) for name in ("catch0", "catch1")]
    for what in ("score", "speed"):
        done = fastdqn("plot", *folders, "--out", str(tmp_path / f"{what}.png"), "--what", what)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{what}.png").read_bytes()[:4] == b"\x89PNG"
    assert fastdqn("plot", *folders, "--out", str(tmp_path / "x.svg"), "--each").returncode == 0
    table = fastdqn("compare", *folders).stdout
    assert "IQM of 2 runs" in table
    assert table.count("max-env-steps") == 2


def test_games_lists_them() -> None:
    done = fastdqn("games", "invaders")
    assert "space_invaders" in done.stdout
    assert "1,668.7" in done.stdout
    assert " 6 " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "moon"), "moon is not the folder of a run"),
        (("evaluate", "latest"), "no run in the folder runs"),
        (("evaluate", "RUN", "--protocol", "moon"), "invalid choice 'moon'"),
        (("evaluate", "RUN", "--episodes", "0"), "--episodes must be at least 1"),
        (("evaluate", "RUN", "--episodes", "3", "--env-steps", "3"), "contradict each other"),
        (("evaluate", "RUN", "--epsilon", "2"), "--epsilon between 0 and 1"),
        (("evaluate", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "CATCH", "--protocol", "nature"), "has rules of its own"),
        (("evaluate", "SHAPELESS"), "shapeless is damaged"),
        (("evaluate", "GROUPLESS"), "The run's options are damaged"),
        (("plot", "SHAPELESS"), "shapeless is damaged"),
        (("watch", "RUN", "--seed", "-1"), "--seed must be at least 0"),
        (("evaluate", "RUN", "--device", "moon"), "--device moon is not a device"),
        (("evaluate", "RUN", "--protocol", "machado"), "has 18 actions"),
        (("evaluate", "BROKEN"), "is damaged"),
        (("evaluate", "EMPTY"), "is not the folder of a run"),
        (("watch", "RUN", "--out", "game.avi"), "must end in .mp4 or .gif"),
        (("watch", "RUN", "--out", "no/such/folder/game.mp4"), "there is no folder"),
        (("plot",), "at least one run"),
        (("plot", "moon"), "moon is not the folder of a run"),
        (("plot", "EMPTY"), "is not the folder of a run"),
        (("plot", "RUN", "--out", "x.moon"), "cannot be written"),
        (("compare", "moon"), "moon is not the folder of a run"),
        (("games", "moon"), "There is no game with 'moon'"),
        (("dance",), "dance"),
    ],
)
def test_mistakes_are_one_sentence(runs: TrainedRuns, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = fastdqn(*(place_of(word, words[0], runs, tmp_path) for word in words), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def place_of(word: str, command: str, runs: TrainedRuns, folder: Path) -> str:
    """Return the path that a word in capitals stands for, made in `folder` if need be; every other word as it is."""
    if word == "RUN":
        return str(runs["catch0" if command == "plot" else "09"])
    if word == "CATCH":
        return str(runs["catch0"])
    made = folder / word.lower()
    if word == "EMPTY":
        made.mkdir()
    elif word == "BROKEN":
        shutil.copytree(runs["09"], made)
        weights = made / "weights.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
    elif word in ("SHAPELESS", "GROUPLESS"):
        shutil.copytree(runs["catch0"], made)
        config = made / "config.json"
        damage = {"run": 3} if word == "SHAPELESS" else {"dqn": 3}
        config.write_text(json.dumps({**json.loads(config.read_text()), **damage}))
    else:
        return word
    return str(made)
