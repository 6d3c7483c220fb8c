"""How much memory a replay needs, and that it is checked before a run begins."""

from __future__ import annotations

import re
from typing import Any

import psutil
import pytest
import torch

from fastdqn.build import build_list_replay
from fastdqn.errors import UserError
from fastdqn.options.dqn import DQNOptions
from fastdqn.replay.boxes import box_replay_bytes, check_box_memory
from fastdqn.replay.memory import (
    FRAME_BYTES,
    RESERVED_BYTES,
    TRANSITION_OVERHEAD_BYTES,
    check_device_memory,
    check_memory,
    check_rollout_memory,
    describe_replay,
    frame_replay_bytes,
    frames_that_fit,
)
from fastdqn.seeds import seeds_of
from tests.helpers.replays import CPU, make_replay
from tests.helpers.scripts import script_says


def test_memory_of_a_list_replay_is_checked_before_the_run() -> None:
    needed = 100_000 * (FRAME_BYTES + TRANSITION_OVERHEAD_BYTES) * 102 // 100 + RESERVED_BYTES
    check_memory(100_000, needed + 1)
    with pytest.raises(UserError, match="would fit"):
        check_memory(100_000, needed - 1)
    said = r"needs 7\.7 GB, and the run 0\.5 GB more, but 1\.0 GB .*; --replay-size 89638 would fit\.$"
    with pytest.raises(UserError, match=said):
        check_memory(1_000_000, 10**9)
    with pytest.raises(UserError, match="would fit"):
        build_list_replay(seeds_of(0), DQNOptions(replay_size=10**10), (4, 84, 84))


def test_larger_frames_need_more() -> None:
    needed = 1_000 * (210**2 + TRANSITION_OVERHEAD_BYTES) * 102 // 100 + RESERVED_BYTES
    check_memory(1_000, needed, 210**2)
    with pytest.raises(UserError, match="--replay-size 999 would fit"):
        check_memory(1_000, needed - 1, 210**2)
    assert describe_replay(1_000_000, 210**2) == "replay: 1,000,000 transitions, up to 44.70 GB of memory"
    available = psutil.virtual_memory().available
    size = int(available / (84**2 + TRANSITION_OVERHEAD_BYTES) * 0.8)  # which 84x84 would leave room for
    with pytest.raises(UserError, match="would fit"):
        build_list_replay(seeds_of(0), DQNOptions(replay_size=size), (4, 210, 210))
    assert frames_that_fit(1_000, 10**9, 210**2 * 1_000, 210**2) < frames_that_fit(1_000, 10**9, 210**2 * 1_000)


def test_memory_is_what_was_said() -> None:
    """Within 5% of 7,056 bytes a frame, and a million of them in 7.1 GB."""
    assert frame_replay_bytes(1_000_000) == pytest.approx(7.056e9, rel=0.05)
    assert frame_replay_bytes(1_000_000) < 7.1e9
    replay = make_replay(500, 4, 3)
    tensors = [value.untyped_storage() for value in vars(replay).values() if isinstance(value, torch.Tensor)]
    stored = sum({storage.data_ptr(): storage.nbytes() for storage in tensors}.values())  # views once
    beside = stored - 2001 * FRAME_BYTES  # with the frame that stands before a game's first one
    assert beside == pytest.approx(frame_replay_bytes(2000) - 2000 * FRAME_BYTES, rel=0.1)


def test_frames_that_do_not_fit_are_refused_with_how_many_would() -> None:
    """A GPU's own reserve is taken off before."""
    cuda, free = torch.device("cuda"), 1000 * (84 * 84 + 9)
    with pytest.raises(UserError, match=r"needs 0\.0 GB, but 0\.0 GB of .*--replay-size 1000 would fit\.$"):
        check_device_memory(2000, cuda, available_bytes=free)
    check_device_memory(1000, cuda, available_bytes=free)
    with pytest.raises(UserError, match=r"--replay-size 999 would fit"):
        check_device_memory(1000, cuda, available_bytes=free - 1)
    with pytest.raises(UserError, match=r"^4 replays of 1000 frames need 0\.0 GB, .*; --replay-size 250 would fit\.$"):
        check_device_memory(1000, cuda, available_bytes=free, replays=4)


@pytest.mark.parametrize(("replays", "copies"), [(1, 0), (1, 1), (3, 0), (4, 5)])
@pytest.mark.parametrize("check", [check_memory, check_device_memory, check_box_memory])
def test_a_size_that_was_said_to_fit_does_and_a_larger_one_does_not(check: Any, replays: int, copies: int) -> None:
    """On a CPU beside what a run needs there: it would end in the middle of the run otherwise."""
    free = 3 * 10**9

    def looked(size: int) -> None:
        if check is check_memory:
            check(size, free)
        elif check is check_device_memory:
            check(size, CPU, available_bytes=free, replays=replays)
        else:
            check(size, 17, 6, CPU, available_bytes=free, replays=replays, copies=copies)

    with pytest.raises(UserError) as refused:
        looked(10**9)
    found = re.search(r"--replay-size (\d+) would fit(, or more with --no-checkpoint-replay)?\.$", str(refused.value))
    assert found is not None
    assert (found[2] is not None) == (check is check_box_memory and copies > 0)
    looked(int(found[1]))
    with pytest.raises(UserError, match="would fit"):
        looked(int(1.01 * int(found[1])))
    unit = {
        check_memory: FRAME_BYTES + TRANSITION_OVERHEAD_BYTES,
        check_device_memory: replays * (FRAME_BYTES + 9),
        check_box_memory: replays * box_replay_bytes(1, 17, 6),
    }[check]
    held = int(found[1]) * unit
    assert 1.02 * held + (copies * held if check is check_box_memory else 0) + 3e8 == pytest.approx(free, rel=1e-3)


def test_without_memory_for_a_run_there_is_none_for_a_replay() -> None:
    with pytest.raises(UserError, match=r"needs 0\.0 GB, and the run 0\.3 GB more, .*; not even one would fit\.$"):
        check_device_memory(10, CPU, available_bytes=2 * 10**8)


def test_rollouts_that_do_not_fit_are_refused() -> None:
    check_rollout_memory(100, 8, 28_224, available_bytes=2 * 100 * 8 * 28_224)
    said = r"^Rollouts of 101 steps of 8 games need 0\.0 GB, .*; --rollout-steps 100 would fit\.$"
    with pytest.raises(UserError, match=said):
        check_rollout_memory(101, 8, 28_224, available_bytes=2 * 100 * 8 * 28_224)
    done = script_says("41_ppo_ranks", "--game", "CartPole-v1", "--rollout-steps", "1000000000")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: Rollouts of 1000000000 steps of ")


def test_frames_that_would_have_fitted() -> None:
    """A run with a gigabyte beside its replay: what fits leaves that gigabyte, a quarter more, and half a gigabyte."""
    peak = frame_replay_bytes(1_000_000) + 10**9
    fits = frames_that_fit(1_000_000, 6 * 10**9, peak)
    assert frame_replay_bytes(fits) == pytest.approx(6e9 - 1.25e9 - 0.5e9, rel=1e-4)
    assert frames_that_fit(1_000_000, 10**9, peak) == 0
