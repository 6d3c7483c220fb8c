"""Watching an agent: the video of a game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.helpers.scripts import fastdqn
from tests.helpers.trained import TrainedRuns


@pytest.mark.parametrize("name", ["game.mp4", "game.gif"])
def test_watch_records_a_game(runs: TrainedRuns, tmp_path: Path, name: str) -> None:
    words = ("--values", "--max-env-steps", "40") if name.endswith("gif") else ()
    done = fastdqn("watch", str(runs["09"]), "--out", str(tmp_path / name), *words)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
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
