"""Rollouts: frames that a ring keeps once make the observations that lists of frames make."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastdqn.algorithms.a2c import Policy
from fastdqn.algorithms.ppo import Rollout
from fastdqn.algorithms.rollouts import RolloutPlayer
from fastdqn.envs.vector import AtariVector
from fastdqn.networks.actor_critic import actor_critic
from fastdqn.options.game import GameOptions
from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.stacks import GameStacks
from tests.helpers.learners import CPU

GAMES, STEPS = 3, 60


def played(ring: bool, channels_last: bool = False) -> list[Rollout]:
    """Return two rollouts of the same games, which end and are reset within them, by the same policy."""
    game = GameOptions(max_frames=180)
    games = AtariVector("breakout", game, GAMES, np.random.SeedSequence(0), 1)
    network = actor_critic(games.obs_shape, games.num_actions, torch.Generator().manual_seed(0), one_stream=True)
    policy = Policy(network, torch.Generator().manual_seed(0))
    if ring:
        stacks = NewestStacks(GAMES, games.obs_shape, CPU, channels_last)
        newest = stacks.stacks
    else:
        lists = stacks = GameStacks(GAMES, games.obs_shape[1:], 4, 1, 0.9)

        def newest() -> torch.Tensor:
            return torch.from_numpy(lists.obs())

    player = RolloutPlayer(games, stacks, newest, policy, STEPS, 0.9, 0.5)
    return [player.rollout() for _ in range(2)]


def test_a_ring_makes_the_samples_that_lists_make() -> None:
    for ours, plain in zip(played(ring=True), played(ring=False), strict=True):
        assert ours.env_steps == plain.env_steps < GAMES * STEPS  # rows in which a game was reset are left out
        assert ours.episodes == plain.episodes
        assert len(ours.episodes) >= GAMES
        for name, column in plain.samples._asdict().items():
            assert torch.equal(getattr(ours.samples, name), column), name
        assert len(plain.samples.obs.flatten(1).unique(dim=0)) > 50  # these differ from each other


@pytest.mark.parametrize("epochs", [1, 2])
def test_with_channels_last_batches_have_them_last(epochs: int) -> None:
    plain, last = (played(ring=True, channels_last=how)[0] for how in (False, True))
    torch.testing.assert_close(last.samples.obs, plain.samples.obs)
    orders = (torch.Generator().manual_seed(0) for _ in range(2))
    ours, theirs = (
        list(rollout.minibatches(32, epochs, order)) for rollout, order in zip((last, plain), orders, strict=True)
    )
    assert len(ours) == len(theirs) == epochs * -(-plain.env_steps // 32)
    for a, b in zip(ours, theirs, strict=True):
        assert a.obs.is_contiguous(memory_format=torch.channels_last)
        assert b.obs.is_contiguous()
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.action, b.action)
