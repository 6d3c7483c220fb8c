"""From groups of options to an empty replay."""

from __future__ import annotations

import math

import numpy as np
import torch

from fastdqn.envs.vector import VectorEnv
from fastdqn.errors import UserError
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.parts import PartOptions, ReturnOptions
from fastdqn.replay.memory import check_device_memory, check_memory, replay_device
from fastdqn.replay.prioritized import DeviceReplay, PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from fastdqn.replay.ring import MOST_ACTIONS, FrameReplay
from fastdqn.replay.transitions import TransitionList
from fastdqn.seeds import Seeds, as_int


def build_list_replay(seeds: Seeds, dqn: DQNOptions, obs_shape: tuple[int, int, int]) -> TransitionList:
    """Return the empty replay of observations (C, H, W).

    Raises:
        UserError: it will not fit into the memory that is available now.
    """
    check_memory(dqn.replay_size, frame_bytes=math.prod(obs_shape[1:]))
    return TransitionList(dqn.replay_size, np.random.default_rng(seeds.replay))


def build_device_replay(
    seeds: Seeds,
    dqn: DQNOptions,
    envs: VectorEnv,
    device: torch.device,
    parts: PartOptions | None = None,
    returns: ReturnOptions | None = None,
    channels_last: bool = False,
) -> DeviceReplay:
    """Return the empty replay of frames on `device`, drawn from uniformly or by priority, with or without returns.

    Raises:
        UserError: it will not fit, is too small for so many games, or cannot hold so many actions.
    """
    if envs.num_actions > MOST_ACTIONS:
        raise UserError(
            f"The game has {envs.num_actions} actions, and a replay on the device that trains holds at most "
            f"{MOST_ACTIONS}; the scripts without one take more."
        )
    check_device_memory(dqn.replay_size, replay_device(device), math.prod(envs.obs_shape[1:]))
    size = (dqn.replay_size, envs.num_envs, envs.obs_shape[1:], envs.obs_shape[0])
    rest = (dqn.gamma, device, as_int(seeds.replay), channels_last, lambda: envs.newest)
    if returns is not None and returns.trace_decay is not None:
        many = (returns.trace_decay, returns.block_steps, returns.refresh_env_steps)
        limits = (-math.inf, math.inf)
        if parts is not None and parts.distributional:
            limits = (parts.value_min, parts.value_max)
        frames = ReturnReplay(*many, *size, *rest, limits=limits)
    else:
        frames = FrameReplay(*size, dqn.n_step, *rest)
    if parts is None or not parts.prioritized:
        return frames
    return PrioritizedReplay(frames, parts.priority_exponent, parts.priority_floor)
