"""How played steps travel between processes: each frame crosses once.

Pickling a transition as it is would send its five different frames with every env step and leave the receiver
with frames that no two transitions share: five times the traffic, five times the replay's memory. Here a frame
gets a number when it is first sent, and later stacks name it by that number.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from fastdqn.envs.frames import FrameStore
from fastdqn.types import EpisodeEnd, Frame, LazyFrames, Observation, PlayedStep, Transition

Stack = tuple[int, ...]  # numbers of frames, the oldest first


class WireTransition(NamedTuple):
    """A transition whose observations name their frames by number."""

    obs: Stack
    action: int
    reward: float
    discount: float
    next_obs: Stack


class WireStep(NamedTuple):
    """A PlayedStep as it crosses the queue."""

    first: int  # number of the first of `frames`
    frames: tuple[Frame, ...]  # those that the receiver has not got yet
    transitions: tuple[WireTransition, ...]
    episodes: tuple[EpisodeEnd, ...]


class FrameEncoder:
    """The sender's side. `window` frames are remembered; an older one is simply sent again."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._numbers: OrderedDict[int, tuple[int, Frame]] = OrderedDict()  # id of a frame -> (number, the frame)
        self._next = 0

    def encode(self, played: PlayedStep) -> WireStep:
        """Return what has to be sent so that the decoder, fed in order, can rebuild `played`."""
        new: list[Frame] = []
        first = self._next
        transitions = tuple(
            WireTransition(self._stack(t.obs, new), t.action, t.reward, t.discount, self._stack(t.next_obs, new))
            for t in played.transitions
        )
        while len(self._numbers) > self._window:
            self._numbers.popitem(last=False)
        return WireStep(first, tuple(new), transitions, played.episodes)

    def _stack(self, obs: Observation, new: list[Frame]) -> Stack:
        frames = obs.frames if isinstance(obs, LazyFrames) else tuple(np.asarray(obs)[:, np.newaxis])
        return tuple(self._number(frame, new) for frame in frames)

    def _number(self, frame: Frame, new: list[Frame]) -> int:
        known = self._numbers.get(id(frame))
        if known is not None:
            return known[0]
        number = self._next
        self._next += 1
        self._numbers[id(frame)] = (number, frame)  # keeping the frame keeps its id from being used again
        new.append(frame)
        return number


class FrameDecoder:
    """The receiver's side: rebuilds played steps whose observations share their frames again."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._stacks: dict[Stack, LazyFrames] = {}
        self._store: FrameStore | None = None

    def decode(self, wire: WireStep) -> PlayedStep:
        """Return the played step that the encoder was given."""
        for offset, frame in enumerate(wire.frames):
            if self._store is None:
                self._store = FrameStore(frame.shape)
            kept = self._store.new()
            kept[...] = frame
            self._frames[wire.first + offset] = kept
        previous, self._stacks = self._stacks, {}
        transitions = tuple(
            Transition(self._stack(t.obs, previous), t.action, t.reward, t.discount, self._stack(t.next_obs, previous))
            for t in wire.transitions
        )
        while len(self._frames) > self._window:
            self._frames.popitem(last=False)
        return PlayedStep(transitions, wire.episodes)

    def _stack(self, numbers: Stack, previous: dict[Stack, LazyFrames]) -> LazyFrames:
        stack = self._stacks.get(numbers) or previous.get(numbers)
        if stack is None:
            stack = LazyFrames(tuple(self._frames[number] for number in numbers))
        self._stacks[numbers] = stack
        return stack


def window_for(frame_stack: int, n_step: int) -> int:
    """Return how many frames the two sides remember: all that a window of n env steps can still name."""
    return frame_stack + n_step + 4
