"""Variants: which networks, learner and replay the options stand for, chosen once, at construction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fastdqn.acting import VectorEpsilonGreedy, greedy_actions
from fastdqn.config import FastOptions, Options, VectorOptions
from fastdqn.device import env_threads_of, num_envs_of, wants_bf16
from fastdqn.envs.vector import SIZE, VectorEnv, check_num_envs, make_vector_env
from fastdqn.errors import UserError
from fastdqn.learner import PLAIN, DQNLearner, Form, GraphedActions, GraphedUpdates
from fastdqn.networks import NatureQNetwork
from fastdqn.replay.frames import FrameReplay
from fastdqn.replay.transitions import TransitionList, check_memory
from fastdqn.seeding import as_int, seeds_of, torch_generator
from fastdqn.types import Batch, Metrics


def make_network(options: Options, obs_shape: tuple[int, int, int], num_actions: int) -> nn.Module:
    """Return the network on the CPU; the same seed gives the same weights."""
    generator = torch_generator(seeds_of(options.run.seed).network)
    if isinstance(options, FastOptions):
        return NatureQNetwork(obs_shape, num_actions, generator, options.frame_scale, options.center_frames)
    return NatureQNetwork(obs_shape, num_actions, generator)


def make_learner(
    options: Options, obs_shape: tuple[int, int, int], num_actions: int, device: torch.device, form: Form = PLAIN
) -> DQNLearner:
    """Return the learner of plain DQN with its networks on `device`."""

    def network() -> nn.Module:
        return make_network(options, obs_shape, num_actions)

    return DQNLearner(network().to(device), network, options.dqn, form)


def make_replay(options: Options) -> TransitionList:
    """Return the empty replay.

    Raises:
        UserError: it will not fit into the memory that is available now.
    """
    check_memory(options.dqn.replay_size)
    return TransitionList(options.dqn.replay_size, np.random.default_rng(seeds_of(options.run.seed).replay))


def make_frame_replay(options: VectorOptions, device: torch.device) -> FrameReplay:
    """Return the empty replay of frames on `device`.

    Raises:
        UserError: it will not fit, or is too small for so many games.
    """
    dqn = options.dqn
    return FrameReplay(
        dqn.replay_size,
        num_envs_of(options),
        (SIZE, SIZE),
        options.protocol.frame_stack,
        dqn.n_step,
        dqn.gamma,
        device,
        as_int(seeds_of(options.run.seed).replay),
    )


def make_games(options: VectorOptions) -> VectorEnv:
    """Return the games that `options` ask for.

    Raises:
        UserError: there is no such game, not memory enough for so many, or the run is too short for so many.
    """
    count, dqn, most = num_envs_of(options), options.dqn, options.run.max_env_steps
    check_num_envs(count)
    if dqn.replay_initial < dqn.n_step * count:
        raise UserError(
            f"--replay-initial {dqn.replay_initial} is too little for {count} games at once, whose windows of "
            f"{dqn.n_step} env steps must be complete before the first update; it must be at least "
            f"{dqn.n_step * count}."
        )
    if most is not None and most <= dqn.replay_initial + options.steps + count:
        raise UserError(
            f"--max-env-steps {most} ends the run of {count} games before its first update, which waits for "
            f"--replay-initial {dqn.replay_initial} transitions; raise the first or lower the second."
        )
    return make_vector_env(
        options.run.game,
        options.protocol,
        count,
        seeds_of(options.run.seed).env,
        env_threads_of(options),
    )


def make_policy(
    options: VectorOptions, greedy: Callable[[], NDArray[np.int64]], num_actions: int
) -> VectorEpsilonGreedy:
    """Return the epsilon-greedy policy for all games; `greedy` yields the actions of largest value."""
    rng = np.random.default_rng(seeds_of(options.run.seed).policy)
    return VectorEpsilonGreedy(greedy, num_envs_of(options), num_actions, rng)


def fastest_form(options: FastOptions, device: torch.device) -> Form:
    """Return the form in which an update is fastest on `device`, in the precision that `options` ask for."""
    return Form(channels_last=True, fused=True, bf16=wants_bf16(options, device))


def fastest_update(learner: DQNLearner, replay: FrameReplay, batch_size: int) -> Callable[[], Metrics]:
    """Return what draws a batch and trains on it: a CUDA graph of both, or on the CPU one after the other."""

    def draw() -> Batch:
        return replay.sample(batch_size)

    if replay.device.type == "cuda":
        return GraphedUpdates(learner, draw, replay.generator).update
    return lambda: learner.update(draw())


def fastest_greedy(learner: DQNLearner, replay: FrameReplay) -> Callable[[], NDArray[np.int64]]:
    """Return what chooses the greedy actions for the newest observations: a CUDA graph, or on the CPU the plain way."""
    if replay.device.type == "cuda":
        return GraphedActions(learner, replay.stacks)
    return lambda: greedy_actions(learner.values, replay.stacks())
