"""Memory for frames that live as long as the replay keeps them."""

from __future__ import annotations

import mmap

import numpy as np

from fastdqn.types import Frame

WHOLE_ROWS, FIRST_ROW, SIDE = 110, 18, 84
"""DQN's frames of 2013: the screen squeezed to 84x110, of which 84 rows are kept (Mnih et al. 2013, "Playing Atari with
Deep Reinforcement Learning", section 4.1); which ones are the 2017 post's.
"""


def playing_area(side: int) -> tuple[int, slice]:
    """Return the height to which a screen is squeezed whose playing area is to be `side` pixels high, and its rows."""
    first = round(side * FIRST_ROW / SIDE)
    return round(side * WHOLE_ROWS / SIDE), slice(first, first + side)


def shown_rows(side: int, crop: bool) -> tuple[int, slice]:
    """Return the height to which a screen is squeezed and the rows that are shown, all or the playing area's."""
    return playing_area(side) if crop else (side, slice(0, side))


class FrameStore:
    """Hands out frames that lie in slabs of their own, apart from the heap.

    An update takes much of the heap and gives it back. Long-lived frames that were allocated in between would settle in
    those holes, so that the next update finds none that is large enough and the heap grows with each update (LOG.md, "A
    heap that grew"). A slab goes back to the system when its last frame is dropped.
    """

    def __init__(self, shape: tuple[int, ...] = (1, 84, 84), frames_per_slab: int = 1024) -> None:
        self._shape = shape
        self._count = frames_per_slab
        self._slab: Frame = np.empty((0, *shape), np.uint8)
        self._used = 0

    def new(self) -> Frame:
        """Return an uninitialised frame of its own, uint8 of the store's shape."""
        if self._used == len(self._slab):
            size = self._count * int(np.prod(self._shape))
            self._slab = np.frombuffer(mmap.mmap(-1, size), np.uint8).reshape(self._count, *self._shape)
            self._used = 0
        self._used += 1
        return self._slab[self._used - 1]
