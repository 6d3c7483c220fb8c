"""The wire between a player and a trainer: every step arrives as it was, and each frame crosses once."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from fastdqn.execution.wire import FrameDecoder, FrameEncoder, window_for
from fastdqn.types import EpisodeEnd, LazyFrames, PlayedStep, Transition
from tests.helpers.players import TOY_COUNTER, assert_same, played_here, player_options


def distinct_frames(transitions: list[Transition]) -> int:
    return len({id(f) for t in transitions for stack in (t.obs, t.next_obs) for f in stack.frames})  # type: ignore[union-attr]


@pytest.mark.parametrize(("game", "n_step"), [("pong", 1), ("breakout", 1), ("breakout", 3), (TOY_COUNTER, 5)])
def test_wire_rebuilds_every_step_and_its_sharing(game: str, n_step: int) -> None:
    window = window_for(4, n_step)
    encoder, decoder = FrameEncoder(window), FrameDecoder(window)
    frames, received = 0, []
    steps = played_here(player_options(game, n_step=n_step), 400, "opencv")
    for played in steps:
        wire = pickle.loads(pickle.dumps(encoder.encode(played)))
        frames += len(wire.frames)
        assert all(type(frame) is np.ndarray and frame.dtype == np.uint8 for frame in wire.frames)  # no shared tensors
        decoded = decoder.decode(wire)
        assert_same(decoded, played)
        received += decoded.transitions
    played_frames = distinct_frames([t for played in steps for t in played.transitions])
    assert frames == played_frames == distinct_frames(received)  # each frame crossed once and is in memory once
    assert sum(a.next_obs is b.obs for a, b in itertools.pairwise(received)) > 300 or n_step > 1


def test_wire_sends_a_forgotten_frame_again() -> None:
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (1, 84, 84), dtype=np.uint8) for _ in range(40)]
    stack = [LazyFrames(tuple(frames[i : i + 4])) for i in range(36)]
    steps = [
        PlayedStep((Transition(stack[i], 0, 0.0, 1.0, stack[j]),), ()) for i, j in [(0, 1), (20, 21), (0, 35), (21, 0)]
    ]
    encoder, decoder = FrameEncoder(5), FrameDecoder(5)
    for step in steps:
        assert_same(decoder.decode(encoder.encode(step)), step)


def test_wire_carries_finished_games() -> None:
    step = PlayedStep((), (EpisodeEnd(-21.0, 4000, False),))
    assert FrameDecoder(9).decode(FrameEncoder(9).encode(step)) == step
