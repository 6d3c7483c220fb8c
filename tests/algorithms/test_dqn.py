"""Deep Q-learning: whole updates against plain references in float64, the target network, noise and priorities."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdqn.algorithms.form import PLAIN, Form
from fastdqn.build import build_network
from fastdqn.networks.noisy import FactorisedNoisyLinear, draw_noise, noisy_layers
from fastdqn.options.dqn import AgentOptions, UpdateOptions
from fastdqn.options.groups import Groups
from fastdqn.options.parts import VARIANTS, PartOptions
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.seeds import seeds_of
from tests.helpers.distributions import ATOMS, algorithm_1
from tests.helpers.learners import (
    FAST,
    SHAPE,
    KeepsGradients,
    learner_from,
    learner_of,
    network,
    options_of,
    options_of_agent,
    random_batch,
    update_of,
)
from tests.helpers.replays import feed_priorities, filled_replay


def test_update_equals_a_plain_reference_in_float64() -> None:
    """Loss and gradient against float64; then one Adam step by its formula."""
    options = options_of("dqn")
    assert options.dqn is not None
    learner = learner_from(options)
    learner.descent = kept = KeepsGradients()
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.01)
    reference = build_network(seeds_of(0), SHAPE, 6).double()
    target = build_network(seeds_of(0), SHAPE, 6).double()
    target.load_state_dict({k: v.double() for k, v in learner.target.state_dict().items()})
    batch = random_batch(16)

    def values(net: nn.Module, obs: torch.Tensor) -> torch.Tensor:
        return net.head(net.torso.convs(obs.double() / 255))  # type: ignore[operator, union-attr]

    with torch.no_grad():
        goal = batch.reward.double() + batch.discount.double() * values(target, batch.next_obs).max(dim=1).values
    chosen = values(reference, batch.obs)[torch.arange(16), batch.action]
    loss = ((goal - chosen) ** 2).sum() / 16
    loss.backward()
    before = [p.detach().clone() for p in learner.network.parameters()]
    metrics = learner.update(batch)
    assert metrics.scalars["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert metrics.scalars["mean_q"].item() == pytest.approx(chosen.mean().item(), rel=1e-4, abs=1e-6)
    after, theirs = learner.network.parameters(), reference.parameters()
    for old, parameter, grad, ref in zip(before, after, kept.gradients, theirs, strict=True):
        assert ref.grad is not None
        assert (grad.double() - ref.grad).norm() < 1e-4 * ref.grad.norm()
        # The first step of Adam (Kingma & Ba 2015, algorithm 1) is -lr * g / (|g| + eps).
        step = -options.dqn.learning_rate * grad / (grad.abs() + 1e-8)
        torch.testing.assert_close(parameter.detach(), old + step, rtol=1e-4, atol=1e-7)


def test_an_update_is_a_gradient_a_step_and_what_follows() -> None:
    """What an update leaves behind is what the three calls do that others carry out."""
    options = dataclasses.replace(options_of("rainbow"), agent=AgentOptions(target_average=0.1))
    whole, parts = learner_from(options), learner_from(options)
    for seed in range(2):
        batch = random_batch(4, seed=seed)
        metrics = whole.update(batch)
        (group,) = parts.groups()
        by_parts = parts.gradient(group, batch)
        assert all(parameter.grad is not None for parameter in group.parameters)
        parts.descent.step(group)
        parts.stepped(group)
        assert {k: v.item() for k, v in metrics.scalars.items()} == {k: v.item() for k, v in by_parts.scalars.items()}
    assert all(torch.equal(a, b) for a, b in zip(whole.tensors().values(), parts.tensors().values(), strict=True))


def test_a_gradient_is_not_added_to_what_was_there() -> None:
    learner, batch = learner_of("dqn"), random_batch(4)
    learner.gradient(learner.group, random_batch(4, seed=1))
    learner.gradient(learner.group, batch)
    again = [parameter.grad for parameter in learner.group.parameters]
    learner.descent.step(learner.group)  # whatever it leaves there
    fresh = learner_of("dqn")
    fresh.gradient(fresh.group, batch)
    for one, other in zip(again, fresh.group.parameters, strict=True):
        assert one is not None
        assert other.grad is not None
        assert torch.equal(one, other.grad)


def test_target_changes_only_when_it_is_copied() -> None:
    learner = learner_of("dqn")
    before = [p.clone() for p in learner.target.parameters()]
    for seed in range(3):
        learner.update(random_batch(4, seed=seed))
    assert all(torch.equal(a, b) for a, b in zip(before, learner.target.parameters(), strict=True))
    assert not torch.equal(before[0], next(learner.network.parameters()))
    learner.sync_target()
    assert all(
        torch.equal(a, b) for a, b in zip(learner.network.parameters(), learner.target.parameters(), strict=True)
    )
    learner.update(random_batch(4, seed=9))
    assert not torch.equal(next(learner.target.parameters()), next(learner.network.parameters()))
    assert all(p.grad is None and not p.requires_grad for p in learner.target.parameters())


def test_double_takes_the_choice_from_the_online_network() -> None:
    learner, plain = learner_from(options_of("dqn", double=True)), learner_of("dqn")
    other = network(3)
    for one in (learner, plain):
        one.target.load_state_dict(other.state_dict())
    batch = random_batch(16)
    with torch.no_grad():
        online, target = learner.network(batch.next_obs), other(batch.next_obs)
        chosen = torch.stack([target[i, online[i].argmax()] for i in range(16)])
        q = learner.network(batch.obs)[torch.arange(16), batch.action]
        expected = ((batch.reward + batch.discount * chosen - q) ** 2).mean().item()
    assert learner.update(batch).scalars["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert plain.update(batch).scalars["loss"].item() != pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("variant", "passes"), [("dqn", 2), ("noisy", 3)])
def test_a_target_that_is_copied_after_each_step_is_computed_once(variant: Any, passes: int) -> None:
    """The same bits as with a copy by hand, and one pass less, unless the target network has noise of its own."""
    each, by_hand = (learner_from(options_of(variant, double=True, target_sync=sync)) for sync in (1, 2))
    counted: list[int] = []
    for net in (each.network, each.target):
        net.register_forward_hook(lambda *_: counted.append(1))
    for seed in range(3):
        batch, before = random_batch(8, seed=seed), len(counted)
        one, other = each.update(batch), by_hand.update(batch)
        assert torch.equal(one.scalars["loss"], other.scalars["loss"])
        assert torch.equal(one.priority, other.priority)
        assert len(counted) == before + passes
        by_hand.sync_target()
    for name, weight in each.tensors().items():
        assert torch.equal(weight, by_hand.tensors()[name])


def test_centered_frames_by_hand() -> None:
    options = dataclasses.replace(options_of("dqn"), update=UpdateOptions(center_frames=True, frame_scale=64.0))
    learner = learner_from(options, form=FAST)
    mean = torch.rand(84, 84) * 100
    learner.center_frames(mean)
    obs = random_batch(3).obs
    before = obs.clone()
    inputs = (obs.float() - mean) / 64.0
    by_hand = learner.network.head(learner.network.torso.convs(inputs))  # type: ignore[operator, union-attr]
    torch.testing.assert_close(learner.values(obs), by_hand, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner.target(obs), by_hand, rtol=1e-4, atol=1e-5)
    assert torch.equal(obs, before)
    last = obs.to(memory_format=torch.channels_last)
    torch.testing.assert_close(learner.values(last), by_hand, rtol=1e-4, atol=1e-5)
    assert torch.equal(last, before)
    assert "torso.mean_frame" in learner.network.state_dict()
    plain = learner_from(Groups(dqn=options.dqn, update=UpdateOptions()))
    plain.center_frames(mean)  # a network that was not made for it stays as it was
    assert "torso.mean_frame" not in plain.network.state_dict()


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_one_noise_for_a_batch_and_a_new_one_for_each_act_and_update(noise: Any) -> None:
    options = options_of("noisy")
    learner = learner_from(dataclasses.replace(options, parts=PartOptions(noisy=True, noise=noise, noisy_sigma=0.5)))
    obs = random_batch(1).obs.expand(5, -1, -1, -1)
    drawn: list[Tensor] = []

    def noises(network: nn.Module) -> list[Tensor]:
        return [buffer.clone() for layer in noisy_layers(network).values() for buffer in layer.buffers()]

    for mode in (True, False):  # noise has nothing to do with train() and eval()
        learner.network.train(mode)
        for _ in range(2):
            actions = learner.act(obs)
            values = learner.values(obs).detach()
            torch.testing.assert_close(values, values[:1].expand(5, -1))  # the same noise for the whole batch
            assert learner.greedy(obs).tolist() == actions.tolist() == values.argmax(dim=1).tolist()
            drawn.append(values[0])
    assert len({tuple(v.tolist()) for v in drawn}) == 4
    before = [noises(learner.network), noises(learner.target)]
    assert all(not torch.equal(a, b) or a.abs().sum() == 0 for a, b in zip(*before, strict=True))
    learner.greedy(obs)  # it draws none
    assert all(torch.equal(a, b) for a, b in zip(before[0], noises(learner.network), strict=True))
    learner.update(random_batch(4))
    after = [noises(learner.network), noises(learner.target)]
    for old, new in zip(before, after, strict=True):
        assert all(not torch.equal(a, b) for a, b in zip(old, new, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(*after, strict=True))  # the target network has its own
    learner.sync_target()
    assert all(not torch.equal(a, b) for a, b in zip(noises(learner.target), noises(learner.network), strict=True))


def plain_head(layers: Any, features: Tensor) -> Tensor:
    """What a stream computes, its noisy weights put together."""
    for layer in layers:
        if isinstance(layer, nn.ReLU):
            features = features.clamp(min=0)
        elif isinstance(layer, FactorisedNoisyLinear):
            noise = torch.outer(layer.noise_out, layer.noise_in)
            weight, bias = layer.weight + layer.weight_sigma * noise, layer.bias + layer.bias_sigma * layer.noise_out
            features = features @ weight.T + bias
        else:
            features = features @ layer.weight.T + layer.bias
    return features


def plain_forward(net: Any, obs: Tensor, parts: PartOptions) -> Tensor:
    features = net.torso.convs(obs.double() / 255)
    if not parts.dueling:
        out = plain_head(net.head, features)
        return out.view(len(obs), 6, 51) if parts.distributional else out
    value, advantage = plain_head(net.head.value, features), plain_head(net.head.advantage, features)
    if not parts.distributional:
        return value + advantage - advantage.sum(dim=1, keepdim=True) / 6
    advantage = advantage.view(len(obs), 6, 51)
    return value.view(len(obs), 1, 51) + advantage - advantage.sum(dim=1, keepdim=True) / 6


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variants_update_equals_a_plain_reference_in_float64(variant: Any) -> None:
    equals_a_plain_reference(options_of(variant), PLAIN)


@pytest.mark.parametrize("form", [PLAIN, FAST])
def test_the_update_of_data_efficient_rainbow_equals_a_plain_reference_in_float64(form: Form) -> None:
    """Its own network, with convolutions and with tiles; the gradient is compared before it is clipped."""
    equals_a_plain_reference(options_of_agent("der"), form)


def equals_a_plain_reference(options: Groups, form: Form) -> None:
    """Compare the gradient, the loss and the priorities of an update with those of a loop over transitions."""
    assert options.parts is not None
    assert options.dqn is not None
    parts, double = options.parts, options.dqn.double
    learner = learner_from(options, form=form)
    learner.descent = kept = KeepsGradients()
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    online, chooser, target = (copy.deepcopy(n) for n in (learner.network, learner.network, learner.target))
    draws = torch.Generator()
    draws.set_state(learner.noise.get_state())
    for net in (target, chooser, online) if double else (target, online):
        draw_noise(tuple(noisy_layers(net).values()), draws)
        net.double()
    chooser.double()
    count = 32 if parts.noisy else 16
    batch, weight = random_batch(count), torch.rand(count, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        output_t = plain_forward(target, batch.next_obs, parts)
        output_s = plain_forward(chooser if double else target, batch.next_obs, parts)
    output = plain_forward(online, batch.obs, parts)
    losses, priorities = [], []
    for i in range(count):
        reward, discount, action = float(batch.reward[i]), float(batch.discount[i]), int(batch.action[i])
        if parts.distributional:
            atoms = ATOMS.double()
            best = int((output_s[i].softmax(dim=1) @ atoms).argmax())
            m = torch.tensor(algorithm_1(reward, discount, output_t[i, best].softmax(dim=0).numpy(), atoms.numpy()))
            log_p = output[i, action].log_softmax(dim=0)
            losses.append(-(m * log_p).sum())
            inside = m > 0
            divergence = float((m[inside] * (m[inside].log() - log_p.detach()[inside])).sum())
            crossed = parts.priority_measure == "cross-entropy"
            priorities.append(float(losses[-1].detach()) if crossed else divergence)
        else:
            goal = reward + discount * float(output_t[i, output_s[i].argmax()])
            losses.append((goal - output[i, action]) ** 2)
            priorities.append(abs(goal - float(output[i, action].detach())))
    loss = sum(w * one for w, one in zip(weight.double(), losses, strict=True)) / count
    loss.backward()
    metrics = learner.update(batch._replace(weight=weight))
    assert metrics.scalars["loss"].item() == pytest.approx(loss.item(), rel=1e-4)
    assert metrics.priority.tolist() == pytest.approx(priorities, rel=1e-3, abs=1e-5)
    for (name, theirs), ours in zip(online.named_parameters(), kept.gradients, strict=True):
        assert theirs.grad is not None, name
        assert (ours.double() - theirs.grad).norm() < 1e-3 * theirs.grad.norm() + 1e-9, name


def test_a_prioritized_update_uses_weights_and_writes_priorities_back() -> None:
    learners = [learner_of("prioritized") for _ in range(3)]
    replays = [PrioritizedReplay(filled_replay()) for _ in range(2)]
    for replay in replays:
        feed_priorities(replay)
        slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
        replay.write_back(random_batch(1)._replace(slot=slots), torch.linspace(0.01, 9.0, len(slots)))
        replay.set_beta(1.0)
    before = replays[0].priorities.leaves().clone()
    metrics = update_of(learners[0], replays[0], 8)()
    batch = replays[1].sample(8)  # the same draws
    loss, slot = metrics.scalars["loss"].item(), batch.slot
    assert slot is not None
    assert loss == pytest.approx(learners[1].update(batch).scalars["loss"].item(), rel=1e-6)
    unweighted = learners[2].update(batch._replace(weight=None))
    assert loss != pytest.approx(unweighted.scalars["loss"].item(), rel=1e-3)
    leaves = replays[0].priorities.leaves()
    torch.testing.assert_close(leaves[slot], (metrics.priority + 1e-6) ** 0.6)
    changed = torch.nonzero(leaves != before).squeeze(1).tolist()
    assert changed == sorted(set(slot.tolist()))


def test_whole_returns_are_learnt_without_the_target_network() -> None:
    """The gradient is that of a transition that nothing follows; what the target network says does not matter."""
    plain, whole = learner_of("dqn"), learner_of("dqn")
    whole._settings = dataclasses.replace(whole._settings, bootstrap=False)
    batch = random_batch(16)
    batch = batch._replace(discount=torch.zeros(16))
    with torch.no_grad():
        for parameter in whole.target.parameters():
            parameter.fill_(torch.nan)
    losses = [learner.update(batch).scalars["loss"] for learner in (plain, whole)]
    assert torch.equal(*losses)
    for one, other in zip(plain.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_values_of_greedy_actions_are_written_where_they_are_wanted() -> None:
    learner, obs = learner_of("double"), random_batch(8).obs
    largest = torch.zeros(8)
    actions = learner.greedy(obs, largest)
    values = learner.values(obs)
    assert torch.equal(largest, values.max(dim=1).values)
    assert torch.equal(actions, values.argmax(dim=1))
    assert len(largest.unique()) > 4


def test_who_acts_with_the_target_plays_by_its_values() -> None:
    agent = AgentOptions(target_average=0.25, act_with="target")
    learner, obs = learner_from(dataclasses.replace(options_of("dqn"), agent=agent)), random_batch(8).obs
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
        expected = learner.target(obs)
        assert not torch.equal(expected, learner.network(obs))
    assert torch.equal(learner.acting_values(obs), expected)
    assert torch.equal(learner.still_values()(obs), expected)
    assert torch.equal(learner.act(obs), expected.argmax(dim=1))


def test_an_averaged_target_moves_by_its_share_at_each_update_and_is_never_copied() -> None:
    learner = learner_from(dataclasses.replace(options_of("dqn"), agent=AgentOptions(target_average=0.25)))
    for seed in range(2):
        before = [parameter.clone() for parameter in learner.target.parameters()]
        learner.update(random_batch(4, seed=seed))
        learner.sync_target()
        networks = learner.target.parameters(), learner.network.parameters()
        for old, now, online in zip(before, *networks, strict=True):
            torch.testing.assert_close(now, old + 0.25 * (online.detach() - old), rtol=0, atol=1e-7)
