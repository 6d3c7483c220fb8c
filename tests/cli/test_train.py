"""`fastdqn train`: the scripts by number or name, from the checkout and from what a wheel holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastdqn.cli import train
from fastdqn.errors import UserError
from tests.helpers.scripts import ROOT, SHORT, fastdqn, fastdqn_says, only_run, records, summary

SCRIPTS = sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py"))


def test_every_script_is_listed_with_what_it_is_about() -> None:
    done = fastdqn("train")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines() if line[2:4].isdecimal()] == SCRIPTS
    assert "one process plays, another trains." in done.stdout
    assert fastdqn("train", "--help").stdout == done.stdout


@pytest.mark.parametrize("name", ["9", "09", "09_cuda_graph", "09_cuda_graph.py"])
def test_numbers_and_names(name: str) -> None:
    assert train.script_called(name) == ROOT / "experiments" / "09_cuda_graph.py"


@pytest.mark.parametrize(
    ("name", "said"),
    [("99", "fastdqn train lists them."), ("rainbow", "did you mean 10_rainbow?"), ("", "lists them.")],
)
def test_no_such_script(name: str, said: str) -> None:
    with pytest.raises(UserError, match=r"^There is no script called ") as caught:
        train.script_called(name)
    assert str(caught.value).endswith(said)


def test_mistakes_end_with_2_and_one_sentence(tmp_path: Path) -> None:
    for words, said in ((("99",), "There is no script"), (("--game", "pong"), "The script comes first")):
        done = fastdqn_says("train", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert done.stderr.startswith(f"error: {said}")
    done = fastdqn_says("train", "1", "--game", "pnog", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "did you mean pong" in done.stderr
    done = fastdqn_says("train", "1", "--help", cwd=tmp_path)
    assert done.stdout.startswith("usage: fastdqn train 01_baseline [OPTIONS]\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel holds."""
    pytest.importorskip("setuptools", minversion="77")
    return built_into(tmp_path_factory.mktemp("built"))


def built_into(folder: Path) -> Path:
    words = ("egg_info", "--egg-base", str(folder), "build_py", "--build-lib", str(folder / "lib"))
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "lib"


def test_a_wheel_holds_every_script_and_only_fastdqn(built: Path) -> None:
    held = sorted(path.stem for path in (built / "fastdqn" / "experiments").glob("[0-9]*.py"))
    assert held == SCRIPTS
    assert [path.name for path in built.iterdir()] == ["fastdqn"]


def test_what_is_gone_from_the_checkout_is_gone_from_the_next_wheel(built: Path) -> None:
    stale = [built / "fastdqn" / "experiments" / "99_gone.py", built / "fastdqn" / "gone.py"]
    for path in stale:
        path.write_text("")
    assert (built_into(built.parent), [path for path in stale if path.exists()]) == (built, [])


def test_training_without_the_repository(built: Path, tmp_path: Path) -> None:
    """A script that spawns a player, in an empty folder; then it is resumed."""

    def run(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "fastdqn", "train", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(built)},
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("03", *SHORT, "--threads", "1")
    made = only_run(tmp_path / "runs")
    assert made.name.endswith("-pong-03_parallel")
    assert summary(made)["env_steps"] == 200
    assert summary(made)["first_update"] > 0.5  # since the process began, imports included
    assert json.loads((made / "environment.json").read_text())["command"][:2] == ["fastdqn train 03_parallel", SHORT[0]]
    run("3", "--resume", "latest", "--max-env-steps", "240")
    assert records(made, "speed.jsonl")[-1]["env_steps"] == 240


def test_version_names_fastdqn_torch_and_the_place() -> None:
    done = fastdqn("--version")
    assert done.stdout.count("\n") == 1
    for part in ("fastdqn 0.", ", torch 2.", f", from {ROOT / 'fastdqn'}"):
        assert part in done.stdout
    assert fastdqn("train", "--version").returncode == 2
