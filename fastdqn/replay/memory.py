"""How much memory a replay needs, and whether it is there: said before a run begins."""

from __future__ import annotations

import torch
from torch import Tensor

from fastdqn.cgroup import available_memory, what_fits
from fastdqn.errors import NO_MEMORY, UserError, shortage_of

FRAME_BYTES = 84 * 84
ROW_BYTES = 9
"""What the ring stores of a transition beside its frame: action 1, reward 4, age 1 and three flags."""
TRANSITION_OVERHEAD_BYTES = 600
"""Python objects of one transition in a list beside its one new frame; the replay's test measures it."""
RESERVED_DEVICE_BYTES = 1_500_000_000
"""What networks, optimiser and an update's temporaries need on a CUDA device, generously."""
RESERVED_BYTES = 300_000_000
"""What they and the pieces of a checkpoint need in the host's memory beside a replay."""
PACKED_PERCENT = 2
"""Of a replay, what its frames take once more, generously: a checkpoint has them compressed."""


def replay_bytes(capacity: int, frame_bytes: int = FRAME_BYTES) -> int:
    """Return how much memory `capacity` transitions will need, each frame stored once."""
    return capacity * (frame_bytes + TRANSITION_OVERHEAD_BYTES)


def describe_replay(capacity: int, frame_bytes: int) -> str:
    """Return one line that says how much memory the replay will need."""
    return f"replay: {capacity:,} transitions, up to {replay_bytes(capacity, frame_bytes) / 1e9:.2f} GB of memory"


def check_memory(capacity: int, available_bytes: int | None = None, frame_bytes: int = FRAME_BYTES) -> None:
    """Refuse a replay that will not fit, before the run instead of dying in it.

    Raises:
        UserError: if the machine has not so much available now, and what a run needs beside it.
    """
    available = available_memory() if available_bytes is None else available_bytes
    refuse_unfit(capacity, "transitions", replay_bytes(1, frame_bytes), 1, available, torch.device("cpu"))


def check_rollout_memory(steps: int, games: int, obs_bytes: int, available_bytes: int | None = None) -> None:
    """Refuse a rollout that will not fit: its observations, and once more when they are put together.

    Args:
        steps: of each game.
        games: played at once, those of all processes of this machine.
        obs_bytes: of one observation.
        available_bytes: by default what the machine has available now.

    Raises:
        UserError: with how many steps would fit.
    """
    row = 2 * games * obs_bytes
    available = available_memory() if available_bytes is None else available_bytes
    if steps * row > available:
        raise UserError(
            f"Rollouts of {steps} steps of {games} games need {steps * row / 1e9:.1f} GB, but {available / 1e9:.1f} GB "
            f"of memory are available; {what_fits('--rollout-steps', available // row)}."
        )


def replay_device(device: torch.device) -> torch.device:
    """Return where a replay of frames is kept for a learner on `device`.

    There too, but for mps, which has no float64 to draw in: the replay is then in the host's memory, which such a
    machine's GPU shares.
    """
    return torch.device("cpu") if device.type == "mps" else device


def frame_replay_bytes(capacity: int, frame_bytes: int = FRAME_BYTES) -> int:
    """Return the memory that `capacity` env steps need: 7,056 bytes a frame of Atari's and nine beside it."""
    return capacity * (frame_bytes + ROW_BYTES)


def describe_frame_replay(capacity: int, device: torch.device, frame_bytes: int = FRAME_BYTES) -> str:
    """Return one line that says where the replay for a learner on `device` is and how much memory it needs."""
    where = replay_device(device)
    return f"replay: {capacity:,} frames, {frame_replay_bytes(capacity, frame_bytes) / 1e9:.2f} GB on {where}"


def check_device_memory(
    capacity: int,
    device: torch.device,
    frame_bytes: int = FRAME_BYTES,
    available_bytes: int | None = None,
    replays: int = 1,
) -> None:
    """Refuse a replay that will not fit, or as many as there are to be, before the run instead of dying in it.

    Raises:
        UserError: if `device` has not so much free now, and what a run needs beside it, with the number of frames that
            would fit.
    """
    available = available_bytes
    if available is None and device.type == "cuda":
        available = max(0, torch.cuda.mem_get_info(device)[0] - RESERVED_DEVICE_BYTES)
    elif available is None:
        available = available_memory()
    refuse_unfit(capacity, "frames", frame_replay_bytes(1, frame_bytes), replays, available, device)


def refuse_unfit(
    capacity: int,
    units: str,
    each: int,
    replays: int,
    available: int,
    device: torch.device,
    copies: int = 0,
    beside: bool = True,
) -> None:
    """Refuse so many replays of `capacity` units, of `each` bytes, if they need more than is available, on another
    device than a GPU with what the run needs beside them.

    Args:
        capacity: of a replay.
        units: what it is counted in.
        each: bytes of a unit.
        replays: in the same memory.
        available: bytes.
        device: where the replays are.
        copies: of all that replays hold that there are while a checkpoint is written.
        beside: whether there is to be room for anything but the replays.

    Raises:
        UserError: with how many units would fit.
    """
    if device.type == "cuda" or not beside:
        percent, reserved, copies = 100, 0, 0
    else:
        percent, reserved = 100 + PACKED_PERCENT + 100 * copies, RESERVED_BYTES
    needed = replays * capacity * each
    more = needed * (percent - 100) // 100 + reserved
    if needed + more > available:
        of = f"of {capacity} {units} need"
        what = f"A replay {of}s" if replays == 1 else f"{replays} replays {of}"
        needs = f"{what} {needed / 1e9:.1f} GB" + (f", and the run {more / 1e9:.1f} GB more" if more else "")
        fits = max(0, available - reserved) * 100 // (percent * replays * each)
        raise UserError(
            f"{needs}, but {available / 1e9:.1f} GB of memory are free on {device}; {what_fits('--replay-size', fits)}"
            f"{', or more with --no-checkpoint-replay' if copies and fits else ''}."
        )


def frames_that_fit(capacity: int, free_bytes: int, peak_bytes: int, frame_bytes: int = FRAME_BYTES) -> int:
    """Return the capacity that would have fitted where a run with `capacity` frames met the end of the memory.

    Args:
        capacity: frames of that run's replay.
        free_bytes: what the device has for this process, when it holds nothing.
        peak_bytes: the most that the run held, replay included.
        frame_bytes: of a frame.
    """
    rest = max(0, peak_bytes - frame_replay_bytes(capacity, frame_bytes))  # networks, optimiser, temporaries
    return max(0, (free_bytes - rest - rest // 4 - RESERVED_DEVICE_BYTES // 3) // (frame_bytes + ROW_BYTES))


def empty_frames(shape: tuple[int, int], device: torch.device) -> Tensor:
    """Return uninitialised uint8 memory.

    Raises:
        UserError: the device refuses so much at once.
    """
    try:
        return torch.empty(shape, dtype=torch.uint8, device=device)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if shortage_of(error) != NO_MEMORY:
            raise
        raise UserError(
            f"{device} has no {shape[0] * shape[1] / 1e9:.1f} GB in one piece for a replay of {shape[0] - 1} frames; "
            "lower --replay-size."
        ) from error
