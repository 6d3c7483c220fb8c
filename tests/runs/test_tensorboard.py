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


def test_a_tensorboard_that_has_read_on_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    first = Board(tmp_path)
    for env_steps in range(1, 11):
        first.add_scalar("train/updates", float(env_steps), env_steps)
    first.file.flush()
    events = EventAccumulator(str(tmp_path), purge_orphaned_data=True)
    events.Reload()
    second = Board(tmp_path, begun=5)
    for env_steps in (6, 8):
        second.add_scalar("train/updates", -1.0, env_steps)
    second.close()
    events.Reload()
    assert [event.step for event in events.Scalars("train/updates")] == [1, 2, 3, 4, 5, 6, 8]


def test_a_run_that_is_resumed_and_writes_nothing_leaves_no_file(tmp_path: Path) -> None:
    Board(tmp_path, begun=5).close()
    assert not list(tmp_path.iterdir())
