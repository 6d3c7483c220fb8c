"""bench/beside_cleanrl.py: how CleanRL's scripts are run, what is compared, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import beside_cleanrl, fps
from bench.fps_ladder import Row
from bench.sides import Side
from fastdqn.errors import RunError
from tests.helpers.scripts import ROOT

SCRIPT = """
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

import cleanrl_utils.helper


class Buffer:
    def __init__(self):
        self.buffer_actions = np.zeros(4, dtype=np.int64)

    def add(self, idx, action):
        self.buffer_actions[idx] = action


if __name__ == "__main__":
    game = sys.argv[sys.argv.index("--env-id") + 1]
    env = gym.wrappers.FrameStack(gym.wrappers.GrayScaleObservation(gym.make(game)), 4)
    writer = SummaryWriter("runs/one")
    buffer = Buffer()
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight])
    observation, _ = env.reset(seed=1)
    assert observation.shape == (4, 210, 160)
    buffer.add(2, np.array([3]))
    assert buffer.buffer_actions.tolist() == [0, 0, 3, 0]
    for step in range(4, 4 * PASSES + 1, 4):
        weight.grad = torch.ones(1)
        optimizer.step()
        if step % 100 == 0:
            print("SPS:", step)
            writer.add_scalar("charts/SPS", step, step)
            writer.add_scalar("losses/td_loss", 0.5, step)
            time.sleep(0.02)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder like CleanRL's, whose scripts make an update every 4 env steps."""
    folder = tmp_path / "checkout"
    for name in ("cleanrl", "cleanrl_utils"):
        (folder / name).mkdir(parents=True)
    (folder / "cleanrl_utils" / "helper.py").touch()
    for pair in beside_cleanrl.PAIRS.values():
        text = SCRIPT.replace("PASSES", "10_000")
        (folder / "cleanrl" / f"{pair.theirs}.py").write_text(text, encoding="utf-8")
    return folder


def main_with(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["beside_cleanrl.py", *words])
    return beside_cleanrl.main()


def test_bad_input_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkout: Path, tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "results")]
    for words, said in (
        ([str(tmp_path)], "is no checkout of CleanRL: it has no cleanrl/dqn_atari.py."),
        ([str(checkout), "--only", "sac"], "there is no such algorithm; there are dqn, rainbow, ppo."),
        ([str(checkout), "--game", "pongg"], "There is no Atari game called 'pongg'"),
        ([str(checkout), "--repeats", "0"], "--repeats and --seconds must be above 0."),
        ([], "It needs CLEANRL"),
        ([str(checkout)], "give --game to the bench, before --."),
    ):
        extra = ["--", "--game", "breakout"] if "before --" in said else []
        assert main_with(monkeypatch, *words, *out, *extra) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_their_script_runs_with_what_is_installed(checkout: Path, tmp_path: Path) -> None:
    """It has its wrappers and its buffer; what it writes is elsewhere; updates are counted, not believed."""
    path = checkout / "cleanrl" / "dqn_atari.py"
    path.write_text(SCRIPT.replace("PASSES", "50"), encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, str(ROOT / "bench" / "cleanrl_script.py"), str(checkout), str(folder), "dqn_atari"]
    side = Side("theirs", [*command, "--env-id", "PongNoFrameskip-v4"], tmp_path)
    side.process.wait(60)
    side.check()
    lines = side.lines()
    assert [(line["kind"], line["env_steps"], line["updates"]) for line in lines] == [
        ("speed", 100, 25),
        ("speed", 200, 50),
    ]
    assert 0.0 < lines[0]["elapsed"] < lines[1]["elapsed"]
    assert list((folder / "runs" / "one").glob("events.*"))
    assert not (checkout / "runs").exists()
    with pytest.raises(RunError, match="theirs has ended before the turn was over"):
        side.speeds_for(3600.0)
    side.end()


def test_a_side_without_an_update_is_not_waited_for(tmp_path: Path) -> None:
    side = Side("theirs", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path)
    with pytest.raises(RunError, match=r"theirs has made no update within 0\.1 s"):
        side.speeds_for(1.0, 0.1)
    side.end()


def ours_at(monkeypatch: pytest.MonkeyPatch, samples: float) -> list[Row]:
    """Let our scripts learn from so many samples for each env step, without running them; return those asked for."""
    asked: list[Row] = []

    def time_script(row: Row, options: fps.BenchOptions, device: str) -> dict[str, Any]:
        assert (options.game, device) == ("breakout", "cpu")
        asked.append(row)
        return {"env_steps_per_s": 1e5, "updates_per_s": 1.0, "samples_per_step": samples}

    monkeypatch.setattr(fps, "time_script", time_script)
    return asked


def test_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkout: Path, tmp_path: Path
) -> None:
    """Theirs for real, of 8 samples for each env step; the table has medians, and ratios within a turn."""
    monkeypatch.setattr(beside_cleanrl, "WARMUP", 0.1)
    asked = ours_at(monkeypatch, 8.0)
    words = [str(checkout), "--only", "dqn", "--seconds", "0.2", "--repeats", "2", "--game", "breakout"]
    assert main_with(monkeypatch, *words, "--out", str(tmp_path)) == 0
    first, second = (f"09_cuda_graph --batch-size 8 --steps {n} --num-envs {n}" for n in (4, 16))
    assert [row.label for row in asked] == [first, second, second, first]
    (path,) = tmp_path.glob("*-beside-cleanrl.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = {line["row"]: line for line in lines if line["kind"] == "row"}
    assert set(rows) == {"dqn_atari", first, second}
    theirs = rows["dqn_atari"]
    assert theirs["samples_per_step"] == pytest.approx(8.0)
    assert rows[first]["ratios"] == [1e5 / speed for speed in theirs["env_steps_per_s"]]
    assert lines[0]["options"]["cleanrl"] == "checkout"  # and not the path of somebody's home
    said = capsys.readouterr().out
    assert "dqn_atari (CleanRL)" in said
    assert f"turn 2/2: {first} 100,000.0 env steps/s" in said


def test_what_learns_from_more_samples_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkout: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(beside_cleanrl, "WARMUP", 0.1)
    ours_at(monkeypatch, 4.0)
    words = [str(checkout), "--only", "dqn", "--seconds", "0.2", "--repeats", "1", "--game", "breakout"]
    assert main_with(monkeypatch, *words, "--out", str(tmp_path)) == 1
    assert "learns from 4.00 samples for each env step, CleanRL's script from 8.00" in capsys.readouterr().err


def test_a_commit_of_what_is_no_checkout(tmp_path: Path) -> None:
    assert beside_cleanrl.commit_of(tmp_path) is None


def test_help_of_their_script() -> None:
    command = [sys.executable, str(ROOT / "bench" / "cleanrl_script.py")]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert (shown.returncode, "CHECKOUT FOLDER dqn_atari" in shown.stdout) == (0, True)
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 2
