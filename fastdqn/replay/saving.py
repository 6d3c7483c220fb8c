"""Frames that a checkpoint's thread compresses while the run continues.

Who takes a state lets another thread fetch it, or abandons it (`fastdqn/states.py`): else the step that would overwrite
its first row waits for ever.
"""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from fastdqn.states import pack

PIECE_BYTES = 16_000_000
"""Frames that are compressed at once."""


class RowSaver:
    """Compresses the rows of a ring in another thread; whoever would overwrite one of them waits until it was read.

    Args:
        rows: of the ring.
        num_envs: N, frames in a row.
    """

    def __init__(self, rows: int, num_envs: int) -> None:
        self._rows = rows
        self._num_envs = num_envs
        self._unsaved: int | None = None  # rows from this one on are still to be read

    def begin(self, first: int) -> None:
        """Keep the rows from `first` on (counted since the first) until they have been read."""
        self._unsaved = first

    def end(self) -> None:
        """Keep no row any more."""
        self._unsaved = None

    def wait_for(self, row: int) -> None:
        """Wait until `row` has been read, if it is to be."""
        while (unsaved := self._unsaved) is not None and row >= unsaved:
            time.sleep(0.0005)

    def packed(self, frames: Tensor, first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the frames of rows first to last, compressed piece by piece, each with its first slot."""
        pieces: list[tuple[int, dict[str, Any]]] = []
        most = max(1, PIECE_BYTES // (self._num_envs * frames.shape[1]))
        row = first
        try:
            while row <= last:
                slot = row % self._rows
                count = min(most, last + 1 - row, self._rows - slot)
                begin = slot * self._num_envs
                pieces.append((begin, pack(frames[begin : begin + count * self._num_envs].numpy())))
                row += count
                if self._unsaved is not None:
                    self._unsaved = row
        finally:
            self.end()
        return pieces
