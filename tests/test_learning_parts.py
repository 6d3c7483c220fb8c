"""Losses, networks, learner, schedules, acting: numbers by hand and references in float64."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fastdqn.acting import EpsilonGreedy, Player
from fastdqn.config import DQNOptions, FastOptions, Options, Protocol
from fastdqn.device import has_bf16, wants_bf16
from fastdqn.envs.make import make_env
from fastdqn.errors import UserError
from fastdqn.learner import DQNLearner, Form
from fastdqn.losses import q_learning_target, squared_td_errors, taken_values
from fastdqn.networks import QNetwork, Torso, use_channels_last
from fastdqn.replay.frames import FrameReplay
from fastdqn.replay.nstep import NStep
from fastdqn.replay.prioritized import DeviceReplay
from fastdqn.schedules import linear, linear_epsilon, target_sync_due
from fastdqn.seeding import as_int, seeds_of
from fastdqn.types import Batch, LazyFrames, VectorStep
from fastdqn.variants import describe_arithmetic, make_learner, make_network


def network(seed: int = 0, num_actions: int = 6) -> QNetwork:
    return QNetwork((4, 84, 84), num_actions, torch.Generator().manual_seed(seed))


def random_batch(size: int, num_actions: int = 6, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randint(0, 256, (size, 4, 84, 84), dtype=torch.uint8, generator=generator),
        torch.randint(0, num_actions, (size,), generator=generator),
        torch.randn(size, generator=generator),
        torch.where(torch.rand(size, generator=generator) < 0.3, 0.0, 0.99),
        torch.randint(0, 256, (size, 4, 84, 84), dtype=torch.uint8, generator=generator),
    )


# Losses


def test_targets_by_hand() -> None:
    reward, discount = torch.tensor([1.0, -1.0, 0.5]), torch.tensor([0.5, 0.0, 1.0])
    values = torch.tensor([[1.0, 4.0], [9.0, 8.0], [-2.0, -3.0]])
    assert q_learning_target(reward, discount, values, values).tolist() == [3.0, -1.0, -1.5]
    selector = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0]])  # double: another network chooses
    assert q_learning_target(reward, discount, values, selector).tolist() == [1.5, -1.0, -2.5]


def test_loss_by_hand_and_no_gradient_through_the_target() -> None:
    q = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    target = torch.tensor([0.0, 7.0], requires_grad=True)
    loss = squared_td_errors(taken_values(q, torch.tensor([1, 0])), target).mean()
    assert loss.item() == pytest.approx((4.0 + 16.0) / 2)
    loss.backward()
    assert q.grad is not None
    assert q.grad.tolist() == [[0.0, 2.0], [-4.0, 0.0]]
    assert target.grad is None


@pytest.mark.parametrize(
    ("reward", "discount", "value", "selector"),
    [
        ((3, 1), (3,), (3, 2), (3, 2)),
        ((3,), (1,), (3, 2), (3, 2)),
        ((3,), (3,), (1, 2), (1, 2)),
        ((3,), (3,), (3, 2), (3, 1)),
    ],
)
def test_wrong_shapes_raise_instead_of_broadcasting(
    reward: tuple[int, ...], discount: tuple[int, ...], value: tuple[int, ...], selector: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="must be"):
        q_learning_target(torch.zeros(reward), torch.zeros(discount), torch.zeros(value), torch.zeros(selector))
    with pytest.raises(ValueError, match="must be"):
        squared_td_errors(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match="must be"):
        taken_values(torch.zeros(3, 2), torch.zeros(3, 1, dtype=torch.int64))


# Network


def test_network_is_natures() -> None:
    net = network()
    assert sum(p.numel() for p in net.parameters()) == 1_687_206  # conv 8,224 + 32,832 + 36,928, 3136x512+512, 512x6+6
    shapes = [tuple(p.shape) for p in net.parameters() if p.dim() > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136), (6, 512)]
    out = net(torch.zeros(2, 4, 84, 84, dtype=torch.uint8))
    assert (out.shape, out.dtype) == ((2, 6), torch.float32)


def test_network_scales_pixels_to_one() -> None:
    net = network()
    obs = random_batch(3).obs
    by_hand = net.head(net.torso.convs(obs.double().div(255).float()))
    torch.testing.assert_close(net(obs), by_hand, rtol=1e-5, atol=1e-6)


def test_same_seed_same_weights_whatever_else_draws() -> None:
    a = network(5)
    torch.rand(100)
    b = network(5)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(a.parameters()), next(network(6).parameters()))


def test_weights_start_as_pytorchs() -> None:
    net, reference = network(), nn.Conv2d(4, 32, 8, 4)
    ours = net.torso.convs[0].weight
    bound = 1 / np.sqrt(4 * 8 * 8)
    assert ours.abs().max() <= bound
    assert ours.std().item() == pytest.approx(reference.weight.std().item(), rel=0.1)


def test_too_small_frames_are_one_sentence() -> None:
    with pytest.raises(UserError, match="36x36"):
        QNetwork((4, 20, 20), 6, torch.Generator())


# Learner


def test_update_equals_a_plain_reference_in_float64() -> None:
    """Loss and gradient against float64; then one Adam step by its formula."""
    options = Options()
    learner = make_learner(options, (4, 84, 84), 6, torch.device("cpu"))
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter.add_(0.01)
    reference = make_network(options, (4, 84, 84), 6).double()
    target = make_network(options, (4, 84, 84), 6).double()
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
    assert metrics.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    assert metrics.mean_q.item() == pytest.approx(chosen.mean().item(), rel=1e-4, abs=1e-6)
    for old, parameter, ref in zip(before, learner.network.parameters(), reference.parameters(), strict=True):
        assert parameter.grad is not None
        assert ref.grad is not None
        assert (parameter.grad.double() - ref.grad).norm() < 1e-4 * ref.grad.norm()
        # The first step of Adam (Kingma & Ba 2015, algorithm 1) is -lr * g / (|g| + eps).
        step = -options.dqn.learning_rate * parameter.grad / (parameter.grad.abs() + 1e-8)
        torch.testing.assert_close(parameter.detach(), old + step, rtol=1e-4, atol=1e-7)


def test_target_changes_only_when_it_is_copied() -> None:
    learner = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"))
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


def test_making_a_learner_and_updating_do_not_import_the_compiler() -> None:
    """It would take 1.5 s of every start."""
    code = """
import sys, torch
from fastdqn.config import Options
from fastdqn.types import Batch
from fastdqn.variants import make_learner
learner = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"))
learner.optimizer.zero_grad()
assert learner.optimizer.state_dict()["param_groups"][0]["lr"] == 1e-4
assert len(learner.optimizer.param_groups[0]["params"]) == 10
batch = Batch(*(torch.zeros(2, *shape).to(kind) for shape, kind in (
    ((4, 84, 84), torch.uint8), ((), torch.int64), ((), torch.float32), ((), torch.float32), ((4, 84, 84), torch.uint8)
)))
before = [p.clone() for p in learner.network.parameters()]
learner.update(batch)
assert any(not torch.equal(a, b) for a, b in zip(before, learner.network.parameters()))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_learning_rate_reaches_the_optimiser() -> None:
    learner = DQNLearner(network(), network, DQNOptions(learning_rate=3e-3))
    assert [group["lr"] for group in learner.optimizer.param_groups] == [3e-3]


# The fast forms


FAST = Form(channels_last=True, fused=True)


def run_both(options: Options, form: Form, updates: int = 3) -> tuple[DQNLearner, DQNLearner]:
    """Return a plain and a fast learner after the same updates on the same batches."""
    plain = make_learner(options, (4, 84, 84), 6, torch.device("cpu"))
    fast = make_learner(options, (4, 84, 84), 6, torch.device("cpu"), form)
    for learner in (plain, fast):
        with torch.no_grad():
            for parameter in learner.target.parameters():
                parameter.add_(0.01)
    for seed in range(updates):
        batch = random_batch(16, seed=seed)
        a, b = plain.update(batch), fast.update(batch)
        tolerance = 0.02 if form.bf16 else 1e-5
        assert a.loss.item() == pytest.approx(b.loss.item(), rel=tolerance)
        assert a.mean_q.item() == pytest.approx(b.mean_q.item(), rel=tolerance, abs=tolerance)
    return plain, fast


@pytest.mark.parametrize("double", [False, True])
def test_fast_update_equals_the_plain_one(double: bool) -> None:
    """Channels last and fused Adam: the same gradients to 1e-5 of their size, the same weights to 1e-6."""
    plain, fast = run_both(Options(dqn=DQNOptions(double=double)), FAST, updates=1)
    for x, y in zip(plain.network.parameters(), fast.network.parameters(), strict=True):
        assert x.grad is not None
        assert y.grad is not None
        assert (x.grad - y.grad).norm() < 1e-5 * x.grad.norm()
        # Adam's first step is lr * sign(gradient): where a gradient is all but zero rounding may decide its sign.
        assert (x - y).abs().max() <= 2.01e-4
        assert ((x - y).abs() > 1e-6).float().mean() < 1e-3
    obs = random_batch(8, seed=9).obs
    torch.testing.assert_close(plain.values(obs), fast.values(obs), rtol=1e-3, atol=1e-4)
    run_both(Options(dqn=DQNOptions(double=double)), FAST)


@pytest.mark.parametrize("double", [False, True])
def test_bf16_update_is_within_its_bound(double: bool) -> None:
    """bf16 body, float32 head: on noise for frames gradients differ by less than 15% of their size (measured: up to 9%,
    in the first layer), loss and values by 2%; weights, gradients, values, loss and Adam stay float32."""
    form = Form(channels_last=True, fused=True, bf16=True)
    plain, fast = run_both(Options(dqn=DQNOptions(double=double)), form, updates=1)
    for x, y in zip(plain.network.parameters(), fast.network.parameters(), strict=True):
        assert x.grad is not None
        assert y.grad is not None
        assert y.dtype == y.grad.dtype == torch.float32
        assert (x.grad - y.grad).norm() < 0.15 * x.grad.norm()
    assert fast.values(random_batch(2).obs).dtype == torch.float32
    state = fast.optimizer.state_dict()["state"]
    assert {tensor.dtype for entry in state.values() for tensor in entry.values()} == {torch.float32}


def test_bf16_tells_actions_apart_that_differ_by_little() -> None:
    """Pong's values differ by 0.01, which a last layer in bf16 would round away."""
    learner = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"), Form(bf16=True))
    with torch.no_grad():
        learner.network.head[-1].weight.zero_()  # type: ignore[index, union-attr, operator]
        learner.network.head[-1].bias.copy_(torch.tensor([5.0, 5.004, 5.001, 5.0, 5.003, 5.002]))  # type: ignore[index, union-attr, operator]
    values = learner.values(random_batch(4).obs)
    assert values.argmax(dim=1).tolist() == [1, 1, 1, 1]
    assert values[0].unique().numel() == 5


def test_double_takes_the_choice_from_the_online_network() -> None:
    learner = make_learner(Options(dqn=DQNOptions(double=True)), (4, 84, 84), 6, torch.device("cpu"))
    plain = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"))
    other = network(3)
    for one in (learner, plain):
        one.target.load_state_dict(other.state_dict())
    batch = random_batch(16)
    with torch.no_grad():
        online, target = learner.network(batch.next_obs), other(batch.next_obs)
        chosen = torch.stack([target[i, online[i].argmax()] for i in range(16)])
        q = learner.network(batch.obs)[torch.arange(16), batch.action]
        expected = ((batch.reward + batch.discount * chosen - q) ** 2).mean().item()
    assert learner.update(batch).loss.item() == pytest.approx(expected, rel=1e-5)
    assert plain.update(batch).loss.item() != pytest.approx(expected, rel=1e-5)


def test_centered_frames_by_hand() -> None:
    options = FastOptions(center_frames=True, frame_scale=64.0)
    learner = make_learner(options, (4, 84, 84), 6, torch.device("cpu"), FAST)
    mean = torch.rand(84, 84) * 100
    learner.see(mean, torch.full((84, 84), 7.0))
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
    plain = make_learner(FastOptions(), (4, 84, 84), 6, torch.device("cpu"))
    plain.see(mean, mean)  # a network that was not made for it goes on as it was
    assert "torso.mean_frame" not in plain.network.state_dict()


@pytest.mark.parametrize("scale", [255.0, 64.0])
def test_every_byte_is_rounded_once_to_bf16(scale: float) -> None:
    obs = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(1, 1, 3, 3)
    torso = Torso(1, 48, 48, scale)
    exact = obs.float() * (1.0 / scale)
    torch.testing.assert_close(torso.pixels(obs), exact, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        pixels = torso.pixels(obs)
    assert pixels.dtype == torch.bfloat16
    assert torch.equal(pixels, exact.bfloat16())


@pytest.mark.parametrize("center", [False, True])
def test_pixels_are_laid_out_as_the_convolutions_see_them(center: bool) -> None:
    obs = random_batch(3).obs
    plain = Torso(center_frames=center)
    assert plain.pixels(obs).is_contiguous()
    last = Torso(center_frames=center)
    use_channels_last(last)
    for said in (obs, obs.to(memory_format=torch.channels_last)):
        pixels = last.pixels(said)
        assert pixels.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(pixels, plain.pixels(obs))


def test_pixels_scaled_by_their_own_deviation_by_hand() -> None:
    options = FastOptions(center_frames=True, pixel_floor=10.0)
    learner = make_learner(options, (4, 84, 84), 6, torch.device("cpu"), FAST)
    mean, deviation = torch.rand(84, 84) * 100, torch.rand(84, 84) * 50
    learner.see(mean, deviation)
    obs = random_batch(3).obs
    by_hand = learner.network.head(learner.network.torso.convs((obs.float() - mean) / (deviation + 10.0)))  # type: ignore[operator, union-attr]
    torch.testing.assert_close(learner.values(obs), by_hand, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner.target(obs), by_hand, rtol=1e-4, atol=1e-5)
    assert {"torso.mean_frame", "torso.pixel_gain"} <= set(learner.network.state_dict())


def test_a_learning_rate_that_decays() -> None:
    assert [linear(step, 5e-4, 1e-4, 200) for step in (0, 100, 200, 900)] == pytest.approx([5e-4, 3e-4, 1e-4, 1e-4])
    learner = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"), FAST)
    before = [p.detach().clone() for p in learner.network.parameters()]
    learner.set_learning_rate(1e-3)
    learner.update(random_batch(4))
    step = max(
        float((p.detach() - old).abs().max()) for p, old in zip(learner.network.parameters(), before, strict=True)
    )
    assert step == pytest.approx(1e-3, rel=0.05)  # Adam's first step is the learning rate


def test_bf16_is_the_default_only_where_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for capability, flags, expected in (
        ("AVX2", {"avx2"}, False),
        ("AVX512", {"avx512f"}, False),
        ("AVX512", {"avx512f", "avx512_bf16"}, True),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr("fastdqn.device._cpu_flags", lambda flags=flags: flags)
        assert has_bf16(cpu) is expected
        assert wants_bf16(FastOptions(), cpu) is expected
    assert wants_bf16(FastOptions(precision="bf16"), cpu)
    assert not wants_bf16(FastOptions(precision="fp32"), cpu)


def test_the_arithmetic_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert describe_arithmetic(Form(bf16=True), cuda) == "arithmetic: bf16 with a float32 last layer"
    assert describe_arithmetic(FAST, cpu) == "arithmetic: float32"
    assert describe_arithmetic(FAST, cuda) == "arithmetic: float32, TF32 in convolutions"
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert describe_arithmetic(FAST, cuda) == "arithmetic: float32"


def filled_replay(device: torch.device, n_step: int = 3) -> FrameReplay:
    replay = FrameReplay(4 * 200, 4, (84, 84), 4, n_step, 0.99, device, seed=1)
    rng = np.random.default_rng(0)
    replay.reset(rng.integers(256, size=(4, 84, 84), dtype=np.uint8))
    play_noise(replay, 150, rng)
    return replay


def play_noise(replay: DeviceReplay, count: int, rng: np.random.Generator) -> None:
    """Add `count` steps of four games of random frames, rewards and ends."""
    for _ in range(count):
        ends = rng.random((2, 4)) < 0.05
        step = VectorStep(
            rng.integers(256, size=(4, 84, 84), dtype=np.uint8),
            rng.integers(-1, 2, size=4).astype(np.float32),
            ends[0],
            ends[1] & ~ends[0],
            np.zeros(4, bool),
            (),
        )
        replay.add(rng.integers(6, size=4), step)


@pytest.mark.cuda
def test_update_on_cuda_equals_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu = make_learner(Options(), (4, 84, 84), 6, torch.device("cpu"))
    gpu = make_learner(Options(), (4, 84, 84), 6, torch.device("cuda"))
    batch = random_batch(32)
    a, b = cpu.update(batch), gpu.update(Batch(*(t.cuda() for t in batch)))
    assert a.loss.item() == pytest.approx(b.loss.item(), rel=1e-4)
    for x, y in zip(cpu.network.parameters(), gpu.network.parameters(), strict=True):
        assert x.grad is not None
        assert y.grad is not None
        torch.testing.assert_close(x.grad, y.grad.cpu(), rtol=1e-2, atol=1e-5)


def test_the_worked_example_of_the_docs_learns() -> None:
    """docs/new-idea.md: its code as it stands there, with errors on both sides of 1."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "new-idea.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    batch = random_batch(8)
    learner = DQNLearner(network(), network, DQNOptions(), objective=names["ClippedObjective"]())
    with torch.no_grad():
        goal = batch.reward + batch.discount * learner.target(batch.next_obs).max(dim=1).values
        delta = (goal - learner.network(batch.obs)[torch.arange(8), batch.action]).abs()
    by_hand = torch.where(delta < 1, delta**2 / 2, delta - 0.5).mean().item()
    assert (delta > 1).any()
    assert (delta < 1).any()
    assert learner.update(batch).loss.item() == pytest.approx(by_hand, rel=1e-5)


# Schedules and seeds


def test_epsilon_by_hand() -> None:
    assert [linear_epsilon(s, 1.0, 0.02, 100_000) for s in (0, 1, 50_000, 98_000, 98_001, 10**9)] == pytest.approx(
        [1.0, 0.99999, 0.5, 0.02, 0.02, 0.02]
    )
    assert linear_epsilon(1, 1.0, 0.1, 0) == 0.1


def test_target_sync_counts_env_steps_and_misses_none() -> None:
    assert [s for s in range(1, 3001) if target_sync_due(s, 1000)] == [1000, 2000, 3000]
    for n in (1, 2, 3, 4, 5, 6, 7, 1000):
        due = [s for s in range(n, 21_000, n) if target_sync_due(s, 1000, n)]
        assert len(due) == (max(range(n, 21_000, n)) // 1000)
        assert [d // 1000 for d in due] == list(range(1, len(due) + 1))


def test_seeds_are_distinct_small_and_stable() -> None:
    seeds = seeds_of(3)
    numbers = [as_int(child) for child in seeds]
    assert len(set(numbers)) == len(numbers)
    assert all(type(n) is int and 0 <= n < 2**31 for n in numbers)
    assert numbers == [as_int(child) for child in seeds_of(3)]
    assert not set(numbers) & {as_int(child) for child in seeds_of(4)}


# Acting


def greedy(net: object, seed: int = 0) -> EpsilonGreedy:
    return EpsilonGreedy(net, 6, torch.device("cpu"), np.random.default_rng(seed))  # type: ignore[arg-type]


def test_epsilon_greedy_frequencies_and_greedy_choice() -> None:
    calls = []

    def third_is_best(obs: torch.Tensor) -> torch.Tensor:
        calls.append(tuple(obs.shape))
        return torch.tensor([[0.0, 1.0, 5.0, 2.0, 3.0, 4.0]])

    policy = greedy(third_is_best)
    obs = np.zeros((4, 84, 84), np.uint8)
    assert {policy.act(obs, 0.0) for _ in range(20)} == {2}
    assert set(calls) == {(1, 4, 84, 84)}
    counts = np.bincount([policy.act(obs, 0.3) for _ in range(20_000)], minlength=6)
    assert counts[2] / 20_000 == pytest.approx(0.7 + 0.05, abs=0.015)
    assert np.delete(counts, 2) / 20_000 == pytest.approx(np.full(5, 0.05), abs=0.01)
    assert {policy.act(obs, 1.0) for _ in range(200)} == set(range(6))


def test_player_yields_consecutive_transitions_and_resets_after_ends() -> None:
    """With a Counter each transition tells where it comes from: no gap, no transition over an end."""
    env = make_env("tests.toys:Counter", Protocol(noop_max=0, clip_rewards=False), "classic")
    player = Player(env, greedy(lambda obs: torch.zeros(1, 6)), NStep(1, 0.9), seed=0)
    episodes, previous = 0, None
    for _ in range(120):
        (transition,), ends = player.step(0.0)
        assert isinstance(transition.obs, LazyFrames)
        episodes += len(ends)
        if previous is not None and previous.discount > 0:
            assert transition.obs is previous.next_obs
        elif previous is not None:
            assert transition.obs is not previous.next_obs
            assert len({id(f) for f in transition.obs.frames}) == 1
        assert transition.discount in (0.0, 0.9)
        previous = transition
    assert episodes == 12  # 37 frames, cut into 3 lives: 3 + 3 + 4 env steps and two no-ops between them


def test_a_truncated_episode_bootstraps() -> None:
    protocol = Protocol(noop_max=0, fire_reset=False, max_frames=41)
    player = Player(make_env("pong", protocol, "opencv"), greedy(lambda obs: torch.zeros(1, 6)), NStep(1, 0.9), seed=0)
    played = [player.step(1.0) for _ in range(33)]
    assert [p.episodes[0].truncated for p in played if p.episodes] == [True, True, True]
    assert {t.discount for p in played for t in p.transitions} == {0.9}
    at_end = [i for i, p in enumerate(played) if p.episodes]
    assert at_end == [10, 21, 32]
    assert played[11].transitions[0].obs is not played[10].transitions[0].next_obs
