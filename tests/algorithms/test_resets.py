"""Resets and the horizon after each: numbers by hand, and weights one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdqn.algorithms.augmentation import Augmentation
from fastdqn.algorithms.dqn import Settings
from fastdqn.algorithms.resets import Resets
from fastdqn.errors import UserError
from fastdqn.networks.qnetwork import draw_first_weights
from fastdqn.networks.torso import Torso
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.presets import changed
from fastdqn.options.resets import ResetOptions
from fastdqn.replay.windows import Windows
from tests.helpers.learners import CPU, DQNLearner, learner_from, learner_of, options_of, random_batch

BBF = ResetOptions(reset_updates=20_000, first_n_step=10, first_gamma=0.97)
"""Schwarzer et al. 2023, two updates for each env step."""


def resets_of(options: ResetOptions) -> Resets:
    return Resets(DQNOptions(n_step=3, gamma=0.997), options, seed=0)


@pytest.mark.parametrize("since", [0, 20_000, 60_000])
def test_the_horizon_grows_after_each_reset(since: int) -> None:
    """10 * 0.3^(k / 10,000) steps, and 1 - gamma from 0.03 to 0.003 in the same way."""
    resets = resets_of(BBF)
    assert resets.longest == 10
    expected = {0: (10, 0.97), 2_500: (7, 1 - 0.03 * 10**-0.25), 5_000: (5, 1 - 0.03 * 10**-0.5)}
    expected |= {10_000: (3, 0.997), 19_999: (3, 0.997)}
    for after, (n_step, gamma) in expected.items():
        assert resets.horizon(since + after) == (n_step, pytest.approx(gamma))


def test_there_is_a_reset_every_so_many_updates_until_the_last() -> None:
    resets = resets_of(ResetOptions(reset_updates=20, reset_until=50, first_n_step=10, horizon_updates=10))
    assert [updates for updates in range(120) if resets.due(updates)] == [20, 40]
    assert [resets.horizon(updates)[0] for updates in (39, 40, 50, 60, 119)] == [3, 10, 3, 3, 3]
    assert not any(resets_of(ResetOptions()).due(updates) for updates in range(100))


class Noted:
    """A learner and windows to which nothing happens."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def reset(self, keep: float, generator: torch.Generator) -> None:
        self.said.append((keep, generator.initial_seed()))

    def set_horizon(self, n_step: int, gamma: float) -> None:
        self.said.append((n_step, gamma))


def test_what_is_due_is_done_and_nothing_else() -> None:
    options = ResetOptions(reset_updates=4, first_n_step=4, horizon_updates=2)
    noted: Any = Noted()
    resets = resets_of(options)
    for updates in range(4):
        resets.before(updates, noted, noted)
    assert noted.said == [(4, 0.997), (3, 0.997)]  # 3.46 steps are 3
    resets.before(4, noted, noted)
    resumed: Any = Noted()
    resets_of(options).before(4, resumed, resumed)  # in a process of its own: the same
    assert noted.said[2:] == resumed.said
    assert (len(resumed.said), resumed.said[1]) == (2, (4, 0.997))
    idle: Any = Noted()
    resets_of(ResetOptions()).before(4, idle, idle)
    assert idle.said == []


def test_a_reset_shrinks_the_torso_and_draws_the_rest_anew() -> None:
    learner, batch = learner_of("rainbow"), random_batch(4)
    learner.update(batch)
    before = {
        net: {name: p.detach().clone() for name, p in net.named_parameters()}
        for net in (learner.network, learner.target)
    }
    fresh = learner_of("rainbow").network
    draw_first_weights(fresh, torch.Generator().manual_seed(7))
    learner.reset(0.25, torch.Generator().manual_seed(7))
    for net in (learner.network, learner.target):
        for (name, now), new in zip(net.named_parameters(), fresh.parameters(), strict=True):
            if name.startswith("torso."):
                torch.testing.assert_close(now, 0.25 * before[net][name] + 0.75 * new)
            if not name.startswith("torso."):
                assert torch.equal(now, new)
    assert not any(value.any() for moments in learner.group.optimizer.state.values() for value in moments.values())
    learner.update(batch)  # a first step once more: Adam moves every weight by the learning rate
    moved = [(p - q).abs() for p, q in zip(learner.network.parameters(), fresh.parameters(), strict=True)][-1]
    assert moved.max().item() == pytest.approx(1e-4, rel=0.05)


class Named(nn.Module):
    """A network whose torso has a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Torso(4, 36, 36)
        self.head = nn.Linear(self.body.features, 3)

    def forward(self, obs: Tensor) -> Tensor:
        return self.head(self.body(255 - obs))


def test_a_torso_is_kept_whatever_its_name() -> None:
    learner = DQNLearner(Named(), Named)
    before = copy.deepcopy(learner.network)
    learner.reset(1.0, torch.Generator().manual_seed(7))
    assert all(map(torch.equal, learner.network.body.parameters(), before.body.parameters()))
    assert not torch.equal(learner.network.head.weight, before.head.weight)


def test_the_target_of_double_q_learning_sees_what_the_network_makes_of_frames() -> None:
    """A network that does something to frames before its torso does it to what follows, too."""
    batch = random_batch(4)._replace(obs=torch.randint(256, (4, 4, 36, 36), dtype=torch.uint8))
    batch = batch._replace(next_obs=batch.obs.flip(0), action=torch.zeros(4, dtype=torch.int64))
    plain, double = (DQNLearner(Named(), Named, Settings(double=double)) for double in (False, True))
    double.network.load_state_dict(plain.network.state_dict())
    double.sync_target()
    assert torch.equal(plain._following(batch)[0], double._following(batch)[0])


def test_another_network_does_not_learn_from_augmented_observations() -> None:
    with pytest.raises(ValueError, match="only a QNetwork"):
        DQNLearner(Named(), Named, augmentation=Augmentation(2, 0.0))


def test_a_shorter_horizon_is_a_window_of_its_own() -> None:
    rng = torch.Generator().manual_seed(0)
    reward, ended = torch.randn(50, 6, generator=rng), torch.rand(50, 6, generator=rng) < 0.15
    terminated = ended & (torch.rand(50, 6, generator=rng) < 0.5)
    windows = Windows(6, 0.9, CPU)
    for n_step, gamma in ((6, 0.9), (2, 0.5), (4, 0.97), (1, 0.9)):
        windows.set_horizon(n_step, gamma)
        plain = Windows(n_step, gamma, CPU).returns(reward[:, :n_step], terminated[:, :n_step], ended[:, :n_step])
        for one, other in zip(windows.returns(reward, terminated, ended), plain, strict=True):
            torch.testing.assert_close(one, other)
    for n_step in (0, 7):
        with pytest.raises(ValueError, match="1 to 6"):
            windows.set_horizon(n_step, 0.9)


def decayed(decay: float) -> DQNLearner:
    return learner_from(changed(options_of("dqn"), {"dqn": {"weight_decay": decay}}))


def test_weights_decay_and_biases_do_not() -> None:
    """AdamW: each weight loses learning rate * decay of itself beside Adam's step."""
    plain, ours, batch = decayed(0.0), decayed(0.1), random_batch(8)
    first = [p.detach().clone() for p in plain.network.parameters()]
    plain.update(batch)
    ours.update(batch)
    for p, q, old in zip(plain.network.parameters(), ours.network.parameters(), first, strict=True):
        torch.testing.assert_close(q, p - 1e-4 * 0.1 * old if p.dim() > 1 else p, rtol=0, atol=1e-8)
    other = decayed(0.1)
    other.load(ours.state())
    for learner in (ours, other):
        learner.update(batch)
    assert all(torch.equal(p, q) for p, q in zip(ours.network.parameters(), other.network.parameters(), strict=True))


@pytest.mark.parametrize(
    "wrong", [{"reset_updates": 0}, {"reset_keep": 1.5}, {"first_gamma": 1.0}, {"first_n_step": 0}]
)
def test_mistakes_are_one_sentence(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="--"):
        ResetOptions(**wrong).check()  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="--weight-decay"):
        DQNOptions(weight_decay=0.1, optimizer="rmsprop").check()
