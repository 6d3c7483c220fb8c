"""Variants: which networks, learner and replay the options stand for, chosen once, at construction."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fastdqn.config import Options
from fastdqn.learner import DQNLearner
from fastdqn.networks import NatureQNetwork
from fastdqn.replay.transitions import TransitionList, check_memory
from fastdqn.seeding import seeds_of, torch_generator


def make_network(options: Options, obs_shape: tuple[int, int, int], num_actions: int) -> nn.Module:
    """Return the network on the CPU; the same seed gives the same weights."""
    return NatureQNetwork(obs_shape, num_actions, torch_generator(seeds_of(options.run.seed).network))


def make_learner(
    options: Options, obs_shape: tuple[int, int, int], num_actions: int, device: torch.device
) -> DQNLearner:
    """Return the learner of plain DQN with its networks on `device`."""

    def network() -> nn.Module:
        return make_network(options, obs_shape, num_actions)

    return DQNLearner(network().to(device), network, options.dqn)


def make_replay(options: Options) -> TransitionList:
    """Return the empty replay.

    Raises:
        UserError: it will not fit into the memory that is available now.
    """
    check_memory(options.dqn.replay_size)
    return TransitionList(options.dqn.replay_size, np.random.default_rng(seeds_of(options.run.seed).replay))
