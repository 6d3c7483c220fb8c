"""Watching an agent: the video of a game."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from fastdqn.envs.own import OwnEnv
from fastdqn.errors import RunError, UserError
from fastdqn.tools.evaluate import load_agent
from fastdqn.tools.watch import Watched, _panel, _screen, _shown, record
from tests.helpers.marks import posix_signals
from tests.helpers.own import Dots, game_of
from tests.helpers.scripts import ROOT, fastdqn
from tests.helpers.trained import TrainedRuns


@pytest.mark.parametrize("name", ["game.mp4", "game.gif"])
def test_watch_records_a_game(runs: TrainedRuns, tmp_path: Path, name: str) -> None:
    words = ("--values", "--max-env-steps", "40", "--untrained") if name.endswith("gif") else ()
    done = fastdqn("watch", str(runs["09"]), "--out", str(tmp_path / name), *words)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    assert (", untrained: a game" in done.stdout) == name.endswith("gif")
    video: Any = cv2.VideoCapture(str(tmp_path / name))
    frames = []
    while True:
        ok, frame = video.read()
        if not ok:
            break
        frames.append(frame)
    assert len(frames) >= 38
    assert frames[0].shape == ((630, 480, 3) if name.endswith("mp4") else (315, 350, 3))
    assert max(float(np.abs(f.astype(int) - frames[0]).max()) for f in frames) > 50  # something moves


@posix_signals
def test_what_is_stopped_is_not_put_in_place_of_a_video_that_was_there(runs: TrainedRuns, tmp_path: Path) -> None:
    (tmp_path / "game.gif").write_text("a whole one")
    words = [sys.executable, "-c", STOPPED, str(runs["09"]), str(tmp_path / "game.gif")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert (tmp_path / "game.gif").read_text() == "a whole one"
    assert f"not to its end, score 0; written: {tmp_path / 'game-stopped.gif'}\n" in done.stdout
    assert (tmp_path / "game-stopped.gif").stat().st_size > 100


STOPPED = """
import os, signal, sys
from fastdqn.cli import main
from fastdqn.tools import watch
shown = watch._screen
def stop(env):
    os.kill(os.getpid(), signal.SIGINT)
    return shown(env)
watch._screen = stop
sys.argv = ["fastdqn", "watch", sys.argv[1], "--out", sys.argv[2]]
sys.exit(main.main())
"""
"""Gets Ctrl-C in the first step."""


@pytest.mark.parametrize("shape", [(50, 70, 3), (9, 25), (501, 333, 1)])
def test_a_picture_of_ones_own_is_shown_as_it_is_but_larger(shape: tuple[int, ...]) -> None:
    """Both sides even, as some players of videos want it, and high enough for the values beside it."""
    env: Any = OwnEnv(game_of(lambda: Dots(shape)).name, 10**9)
    picture = env.reset(seed=0)[0]
    screen = _screen(env)
    height, width = shape[:2]
    zoom = max(1, 480 // max(height, width))
    assert screen.shape == (max(480, height + height % 2), zoom * width + zoom * width % 2, 3)
    shown = screen[: zoom * height : zoom, : zoom * width : zoom]
    np.testing.assert_array_equal(shown, np.broadcast_to(picture.reshape(height, width, -1), (height, width, 3)))
    assert not screen[zoom * height :].any()


def test_of_many_actions_the_best_and_the_chosen_one_are_shown() -> None:
    q = np.array([3.0, 1.0, 5.0, 4.0, 2.0, 0.0], np.float32)
    assert _shown(q, 1, most=6) == [0, 1, 2, 3, 4, 5]
    assert _shown(q, 1, most=3) == [1, 2, 3]
    assert _shown(q, 2, most=3) == [0, 2, 3]
    assert _shown(np.zeros(5, np.float32), 4, most=2) == [0, 4]
    assert _shown(q, None, most=4) == [0, 1, 2, 3]  # the numbers of a continuous action


def test_each_value_that_is_shown_has_a_row_of_its_own() -> None:
    """The bars are as many blocks of coloured rows, however many actions there are."""
    for count, height, rows in ((3, 630, 3), (18, 480, 18), (100, 630, 25)):
        q = np.linspace(1.0, 0.5, count, dtype=np.float32)
        panel = _panel(q, count - 1, [""] * count, height, 0.0)
        bars = (panel[:, 11] == (90, 120, 170)).all(axis=1) | (panel[:, 11] == (90, 200, 120)).all(axis=1)
        assert np.count_nonzero(np.diff(bars.astype(int)) == 1) == rows


def test_a_video_that_lacks_pictures_does_not_replace_one_that_was_there(
    runs: TrainedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, of which OpenCV says nothing."""
    real = cv2.VideoWriter

    class Full:
        fourcc = real.fourcc

        def __init__(self, *words: Any) -> None:
            self._real, self._left = real(*words), 3

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def write(self, picture: Any) -> None:
            self._left -= 1
            if self._left >= 0:
                self._real.write(picture)

    agent = load_agent(runs["09"], torch.device("cpu"))

    def recorded(name: str) -> Watched:
        return record(agent, tmp_path / name, seed=0, epsilon=0.0, values=False, max_env_steps=5)

    whole = recorded("a:1.mp4")
    before = whole.out.read_bytes()
    monkeypatch.setattr(cv2, "VideoWriter", Full)
    with pytest.raises(RunError, match=r"The video .*/a:1.mp4 cannot be written: the disk may be full"):
        recorded("a:1.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["a:1.mp4"]
    assert whole.out.read_bytes() == before
    with pytest.raises(UserError, match="must be text"):
        recorded("a\udcff.mp4")


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_a_video_without_a_step_is_refused(runs: TrainedRuns, tmp_path: Path, ending: str) -> None:
    with pytest.raises(UserError, match="at least one env step, not 0"):
        record(load_agent(runs["09"], torch.device("cpu")), tmp_path / f"a{ending}", 0, 0.0, False, 0)
