"""TensorBoard's event files."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from fastdqn.types import Histogram

_events: Any = event_pb2  # generated modules, without types
_summaries: Any = summary_pb2


class Board:
    """TensorBoard events, written in place: no thread beside the loop, and a full disk is an error here and now.

    Args:
        folder: of the run.
        begun: the env step at which the run is resumed, 0 for a new one: a TensorBoard that has read on forgets what
            came after it.
    """

    def __init__(self, folder: Path, begun: int = 0) -> None:
        stem = f"events.out.tfevents.{int(time.time())}"
        earlier = len(list(folder.glob(f"{stem}.*")))  # of a run that is resumed within a second
        self.name = f"{stem}.{earlier}.fastdqn"
        self.file = (folder / self.name).open("wb")
        self._writer = RecordWriter(self.file)
        self._path = folder / self.name
        self._write(_events.Event(wall_time=time.time(), file_version="brain.Event:2"))
        if begun:
            start = _events.SessionLog(status=_events.SessionLog.START)
            self._write(_events.Event(wall_time=time.time(), step=begun + 1, session_log=start))
        self.file.flush()
        self._empty = True

    def add_scalar(self, tag: str, value: float, env_steps: int) -> None:
        summary = _summaries.Summary(value=[_summaries.Summary.Value(tag=tag, simple_value=value)])
        self._write(_events.Event(wall_time=time.time(), step=env_steps, summary=summary))

    def add_histogram(self, tag: str, histogram: Histogram, env_steps: int) -> None:
        """Write a distribution that is known already, bar by bar."""
        centers, mass = histogram.centers, histogram.mass
        between = [(low + high) / 2.0 for low, high in itertools.pairwise(centers)]
        edges = [2.0 * centers[0] - between[0], *between, 2.0 * centers[-1] - between[-1]]
        proto = _summaries.HistogramProto(
            min=edges[0],
            max=edges[-1],
            num=sum(mass),
            sum=sum(c * m for c, m in zip(centers, mass, strict=True)),
            sum_squares=sum(c * c * m for c, m in zip(centers, mass, strict=True)),
            bucket_limit=edges[1:],
            bucket=mass,
        )
        summary = _summaries.Summary(value=[_summaries.Summary.Value(tag=tag, histo=proto)])
        self._write(_events.Event(wall_time=time.time(), step=env_steps, summary=summary))

    def close(self) -> None:
        """Close the file, and remove it if nothing was written, as by a run that was over when it was resumed."""
        self.file.close()
        if self._empty:
            self._path.unlink(missing_ok=True)

    def _write(self, event: Any) -> None:
        self._empty = False
        self._writer.write(event.SerializeToString())
