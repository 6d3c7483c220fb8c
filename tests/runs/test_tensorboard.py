"""TensorBoard's event files, read by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fastdqn.runs.tensorboard import Board
from fastdqn.types import Histogram


def test_bars_end_in_the_middle_between_two_centers_however_far_these_are_apart(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.add_histogram("spread", Histogram([0.0, 1.0, 3.0], [0.5, 0.25, 0.25]), 7)
    board.close()
    events = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0})
    events.Reload()
    (event,) = events.Histograms("spread")
    found = event.histogram_value
    assert event.step == 7
    assert (found.min, found.max, found.num) == (-0.5, 4.0, 1.0)
    assert list(found.bucket_limit) == [0.5, 2.0, 4.0]
    assert list(found.bucket) == [0.5, 0.25, 0.25]
    assert found.sum == pytest.approx(1.0)
