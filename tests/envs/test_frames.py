"""Memory of frames."""

from __future__ import annotations

import gc
import weakref

from fastdqn.envs.frames import FrameStore


def test_a_store_hands_out_memory_once_and_gives_it_back() -> None:
    store = FrameStore((1, 84, 84), 4)
    frames = [store.new() for _ in range(10)]
    for i, frame in enumerate(frames):
        frame[...] = i
    assert all((frame == i).all() for i, frame in enumerate(frames))
    bases = [weakref.ref(frame.base) for frame in frames]
    del frame, frames[:4]
    gc.collect()
    assert [base() is None for base in bases] == [True] * 4 + [False] * 6
