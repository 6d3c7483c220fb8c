"""Rainbow's parts: numbers by hand, plain references in float64, and the scripts that put them together."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fastdqn.cli import parse
from fastdqn.config import VARIANTS, AgentOptions, DQNOptions, NetworkName, PartOptions, RainbowOptions, with_variant
from fastdqn.errors import UserError
from fastdqn.learner import PLAIN, DQNLearner, Form
from fastdqn.losses import (
    categorical_projection,
    categorical_target,
    expected_values,
    kl_divergences,
    taken_values,
    weighted_mean,
)
from fastdqn.networks import (
    NARROW,
    SMALL,
    DuelingHead,
    FactorisedNoisyLinear,
    HeadParts,
    IndependentNoisyLinear,
    QNetwork,
    Stream,
    draw_noise,
    noisy_layers,
)
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.reports import Reporter, signal_to_noise
from fastdqn.series import distinct, run_series, without
from fastdqn.variants import describe_variant, make_learner, make_rainbow_replay, update_of
from tests.scripts import here, records, summary, train
from tests.test_learning_parts import filled_replay, random_batch

CPU = torch.device("cpu")
FAST = Form(channels_last=True, fused=True)
ATOMS = torch.linspace(-10.0, 10.0, 51)


def options_of(variant: Any, **dqn: Any) -> RainbowOptions:
    return with_variant(RainbowOptions(dqn=DQNOptions(**dqn)), variant)


def learner_of(variant: Any, form: Form = PLAIN, device: torch.device = CPU) -> DQNLearner:
    return make_learner(options_of(variant), (4, 84, 84), 6, device, form)


# Distributions


def test_projection_by_hand() -> None:
    """Atoms 0, 1, 2. A mass that meets an atom stays whole, one between two is shared, one beyond goes to the end."""
    atoms = torch.tensor([0.0, 1.0, 2.0])
    probabilities = torch.tensor([[0.2, 0.3, 0.5]])
    for moved, expected in (
        ([0.0, 1.0, 2.0], [0.2, 0.3, 0.5]),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.25, 0.5, 1.75], [0.2 * 0.75 + 0.3 * 0.5, 0.2 * 0.25 + 0.3 * 0.5 + 0.5 * 0.25, 0.5 * 0.75]),
        ([-9.0, -0.01, 99.0], [0.5, 0.0, 0.5]),
    ):
        got = categorical_projection(probabilities, torch.tensor([moved]), atoms)
        torch.testing.assert_close(got, torch.tensor([expected]), atol=1e-6, rtol=0)


def algorithm_1(reward: float, discount: float, probabilities: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Bellemare et al. 2017, algorithm 1, one atom at a time; an integer b keeps its mass."""
    count, spacing = len(atoms), (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    m = np.zeros(count)
    for z, p in zip(atoms, probabilities, strict=True):
        b = (min(max(reward + discount * z, atoms[0]), atoms[-1]) - atoms[0]) / spacing
        low, high = math.floor(b), math.ceil(b)
        if low == high:
            m[low] += p
        else:
            m[low] += p * (high - b)
            m[high] += p * (b - low)
    return m


def test_categorical_target_equals_the_papers_algorithm() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 6, 51, generator=generator) * 3
    reward = torch.randint(-3, 4, (200,), generator=generator).float() * torch.rand(200, generator=generator).round()
    reward[:4] = torch.tensor([100.0, -100.0, 0.4, -10.0])
    discount = torch.where(torch.rand(200, generator=generator) < 0.3, 0.0, 0.99)
    selector = torch.randn(200, 6, generator=generator)
    got = categorical_target(reward, discount, logits, selector, ATOMS)
    torch.testing.assert_close(got.sum(dim=1), torch.ones(200), atol=1e-5, rtol=0)
    assert (got >= 0).all()
    for i in range(200):
        chosen = logits[i, selector[i].argmax()].double().softmax(dim=0).numpy()
        expected = algorithm_1(float(reward[i]), float(discount[i]), chosen, ATOMS.double().numpy())
        np.testing.assert_allclose(got[i].numpy(), expected, atol=2e-5)
    ended = int(torch.nonzero((discount == 0) & (reward == 0))[0])
    assert got[ended].argmax().item() == 25
    assert got[ended, 25].item() == pytest.approx(1.0, abs=1e-5)
    assert got[0, 50].item() == pytest.approx(1.0, abs=1e-6)
    assert got[1, 0].item() == pytest.approx(1.0, abs=1e-6)


def test_expectation_and_divergence_by_hand() -> None:
    atoms = torch.tensor([-1.0, 0.0, 3.0])
    logits = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]]).log()
    torch.testing.assert_close(expected_values(logits, atoms), torch.tensor([[0.25, 0.2]]))
    target = torch.tensor([[0.5, 0.5, 0.0]])
    cross_entropy, divergence = kl_divergences(taken_values(logits, torch.tensor([0])), target)
    assert cross_entropy.item() == pytest.approx(-0.5 * math.log(0.5) - 0.5 * math.log(0.25), rel=1e-6)
    assert divergence.item() == pytest.approx(0.5 * math.log(0.5 / 0.25), rel=1e-5)
    right = taken_values(logits, torch.tensor([1]))
    assert kl_divergences(right, right.exp())[1].item() == pytest.approx(0.0, abs=1e-6)


def test_greedy_actions_of_distributions_are_those_of_float32() -> None:
    """A mean in bf16 would be a multiple of 0.03 here, and the first of six equal ones would be played."""
    learner = learner_of("distributional", Form(bf16=True))
    means = torch.tensor([5.0, 5.004, 5.001, 5.0, 5.003, 5.002])
    last: Any = learner.network.head[-1]  # type: ignore[index, operator]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(-((ATOMS - means.unsqueeze(1)) ** 2).flatten())
    obs = random_batch(4).obs
    torch.testing.assert_close(learner.values(obs)[0], means, atol=1e-4, rtol=0)
    assert learner.greedy(obs).tolist() == [1, 1, 1, 1]


def test_there_are_as_many_atoms_as_asked_for() -> None:
    """arange(-10, 10, 20 / 50) would make 50 of the 51."""
    learner = learner_of("distributional")
    assert learner.outputs(random_batch(2).obs).shape == (2, 6, 51)
    assert learner.objective.atoms.tolist() == pytest.approx(np.linspace(-10, 10, 51).tolist(), abs=1e-6)  # type: ignore[attr-defined]


def test_wrong_shapes_raise() -> None:
    with pytest.raises(ValueError, match="must be"):
        categorical_projection(torch.zeros(2, 51), torch.zeros(51), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        categorical_target(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, 6, 51), torch.zeros(2, 6), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        kl_divergences(torch.zeros(2, 51), torch.zeros(51))
    with pytest.raises(ValueError, match="must be"):
        expected_values(torch.zeros(2, 6, 50), ATOMS)
    with pytest.raises(ValueError, match="must be"):
        weighted_mean(torch.zeros(2, 1), torch.zeros(2))


# Dueling


def test_dueling_subtracts_the_mean_over_actions() -> None:
    """V = 2x, A = (x, 3x, 8x): Q = 2x + A - 4x, whatever else is in the batch."""

    def stream(outputs: int) -> Stream:
        layer = nn.Linear(1, outputs, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[2.0]] if outputs == 1 else [[1.0], [3.0], [8.0]]))
        return Stream(layer)

    head = DuelingHead(stream, 3, None)
    expected = [[-1.0, 1.0, 6.0], [-10.0, 10.0, 60.0]]
    assert head(torch.tensor([[1.0], [10.0]])).tolist() == expected
    assert head(torch.tensor([[1.0]])).tolist() == expected[:1]


def test_dueling_of_distributions_subtracts_the_mean_of_each_atom() -> None:
    net = QNetwork((4, 84, 84), 6, torch.Generator().manual_seed(0), parts=HeadParts(dueling=True, atoms=51))
    obs = random_batch(3).obs
    features = net.torso(obs)
    value, advantage = net.head.value(features), net.head.advantage(features).view(3, 6, 51)  # type: ignore[operator, union-attr]
    by_hand = torch.stack(
        [torch.stack([value[b] + advantage[b, a] - advantage[b].sum(dim=0) / 6 for a in range(6)]) for b in range(3)]
    )
    torch.testing.assert_close(net(obs), by_hand)


# Noise


def test_factorised_noise_is_the_papers() -> None:
    """w = mu + sigma * f(e_out) f(e_in)^T, b = mu_b + sigma_b f(e_out), put together the plain way."""
    layer = FactorisedNoisyLinear(5, 3, 0.4)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        layer.weight.normal_(generator=generator)
        layer.weight_sigma.normal_(generator=generator)
        layer.bias.normal_(generator=generator)
        layer.bias_sigma.normal_(generator=generator)
    state = generator.get_state()
    layer.draw(generator)
    generator.set_state(state)
    e_in, e_out = (torch.randn(n, generator=generator) for n in (5, 3))
    f_in, f_out = (e.sign() * e.abs().sqrt() for e in (e_in, e_out))
    torch.testing.assert_close(layer.noise_in, f_in)
    torch.testing.assert_close(layer.noise_out, f_out)
    weight = layer.weight + layer.weight_sigma * torch.outer(f_out, f_in)
    for rows in (7, 100):  # two ways to compute the same
        x = torch.randn(rows, 5, generator=generator)
        torch.testing.assert_close(layer(x), functional.linear(x, weight, layer.bias + layer.bias_sigma * f_out))


def test_the_noise_of_all_layers_is_one_draw() -> None:
    """Layer by layer, first of its inputs and then of its outputs; those with independent noise draw their own."""
    layers = (FactorisedNoisyLinear(20, 7), IndependentNoisyLinear(4, 3), FactorisedNoisyLinear(7, 30))
    generator = torch.Generator().manual_seed(2)
    draw_noise(layers, generator)
    other = torch.Generator().manual_seed(2)
    independent = layers[1].weight_noise.clone()
    layers[1].draw(other)
    assert torch.equal(independent, layers[1].weight_noise)
    e = torch.randn(20 + 7 + 7 + 30, generator=other)
    got = torch.cat([noise for layer in (layers[0], layers[2]) for noise in (layer.noise_in, layer.noise_out)])
    torch.testing.assert_close(got, e.sign() * e.abs().sqrt())
    before = [layer.noise_in.clone() for layer in (layers[0], layers[2])]
    draw_noise(layers, generator)
    assert all((old != layer.noise_in).all() for old, layer in zip(before, (layers[0], layers[2]), strict=True))
    draw_noise((), generator)  # a network without noise


def test_noise_starts_as_the_papers_say() -> None:
    """sigma 0.5/sqrt(in) and mu within 1/sqrt(in); independent: sigma 0.017 and mu within sqrt(3/in)."""
    for kind, sigma, bound in (
        ("factorised", 0.5 / math.sqrt(3136), 1 / 56),
        ("independent", 0.017, math.sqrt(3) / 56),
    ):
        net = QNetwork((4, 84, 84), 6, torch.Generator().manual_seed(0), parts=HeadParts(noise=kind))
        first = next(iter(noisy_layers(net).values()))
        assert first.weight_sigma.unique().tolist() == pytest.approx([sigma])
        assert first.bias_sigma.unique().tolist() == pytest.approx([sigma])
        assert 0.99 * bound < first.weight.abs().max().item() <= bound
    net = QNetwork((4, 84, 84), 6, torch.Generator(), parts=HeadParts(noise="factorised", sigma=0.1))
    assert [layer.weight_sigma[0, 0].item() for layer in noisy_layers(net).values()] == pytest.approx(
        [0.1 / 56, 0.1 / math.sqrt(512)]
    )


@pytest.mark.parametrize("kind", [FactorisedNoisyLinear, IndependentNoisyLinear])
def test_variance_of_the_output(kind: Any) -> None:
    """With x = 1: factorised noise has E f(e)^2 = E|e| = sqrt(2/pi) for each factor, and the bias shares e_out."""
    layer, draws, inputs = kind(16, 2, 0.3), 8_000, 16
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    generator = torch.Generator().manual_seed(0)
    out = []
    with torch.no_grad():
        for _ in range(draws):
            layer.draw(generator)
            out.append(layer(torch.ones(1, inputs)))
    values = torch.cat(out)
    sigma = layer.weight_sigma[0, 0].item()
    m = math.sqrt(2 / math.pi)
    expected = sigma**2 * (inputs * m * m + m) if kind is FactorisedNoisyLinear else sigma**2 * (inputs + 1)
    assert values.mean(dim=0).abs().max().item() < 5 * math.sqrt(expected / draws)
    assert values.var(dim=0).tolist() == pytest.approx([expected] * 2, rel=0.12)


@pytest.mark.parametrize("noise", ["factorised", "independent"])
def test_one_noise_for_a_batch_and_a_new_one_for_each_act_and_update(noise: Any) -> None:
    options = options_of("noisy")
    options = RainbowOptions(dqn=options.dqn, parts=PartOptions(noisy=True, noise=noise, noisy_sigma=0.5))
    learner = make_learner(options, (4, 84, 84), 6, CPU)
    obs = random_batch(1).obs.expand(5, -1, -1, -1)
    seen: list[Tensor] = []

    def noises(network: nn.Module) -> list[Tensor]:
        return [buffer.clone() for layer in noisy_layers(network).values() for buffer in layer.buffers()]

    for mode in (True, False):  # noise has nothing to do with train() and eval()
        learner.network.train(mode)
        for _ in range(2):
            learner.greedy(obs)
            values = learner.values(obs).detach()
            torch.testing.assert_close(values, values[:1].expand(5, -1))  # the same noise for the whole batch
            seen.append(values[0])
    assert len({tuple(v.tolist()) for v in seen}) == 4
    before = [noises(learner.network), noises(learner.target)]
    assert all(not torch.equal(a, b) or a.abs().sum() == 0 for a, b in zip(*before, strict=True))
    learner.update(random_batch(4))
    after = [noises(learner.network), noises(learner.target)]
    for old, new in zip(before, after, strict=True):
        assert all(not torch.equal(a, b) for a, b in zip(old, new, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(*after, strict=True))  # the target network has its own
    learner.sync_target()
    assert all(not torch.equal(a, b) for a, b in zip(noises(learner.target), noises(learner.network), strict=True))


def test_noisy_layers_do_without_epsilon() -> None:
    def epsilons(words: str) -> tuple[float, float]:
        dqn = parse(RainbowOptions, "", words.split()).dqn
        return dqn.epsilon_start, dqn.epsilon_final

    for variant in VARIANTS:
        assert (epsilons(f"--variant {variant}") == (0.0, 0.0)) == (variant in ("noisy", "rainbow"))
    assert epsilons("--noisy") == (0.0, 0.0)
    assert epsilons("--variant rainbow --no-noisy") == (1.0, 0.02)  # something has to explore
    assert epsilons("--noisy --epsilon-start 0.1 --epsilon-final 0.1") == (0.1, 0.1)


# Whole updates against a plain reference in float64


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
def test_update_equals_a_plain_reference_in_float64(variant: Any) -> None:
    options = options_of(variant)
    parts, double = options.parts, options.dqn.double
    learner = make_learner(options, (4, 84, 84), 6, CPU)
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
            priorities.append(float((m[inside] * (m[inside].log() - log_p.detach()[inside])).sum()))
        else:
            goal = reward + discount * float(output_t[i, output_s[i].argmax()])
            losses.append((goal - output[i, action]) ** 2)
            priorities.append(abs(goal - float(output[i, action].detach())))
    loss = sum(w * one for w, one in zip(weight.double(), losses, strict=True)) / count
    loss.backward()
    metrics = learner.update(batch, weight)
    assert metrics.loss.item() == pytest.approx(loss.item(), rel=1e-4)
    assert metrics.priority.tolist() == pytest.approx(priorities, rel=1e-3, abs=1e-5)
    for (name, ours), theirs in zip(learner.network.named_parameters(), online.parameters(), strict=True):
        assert ours.grad is not None, name
        assert (ours.grad.double() - theirs.grad).norm() < 1e-3 * theirs.grad.norm() + 1e-9, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_fast_update_equals_the_plain_one(variant: Any) -> None:
    """Channels last and fused Adam, over three updates on the same batches with the same noise."""
    plain, fast = learner_of(variant), learner_of(variant, FAST)
    for seed in range(3):
        batch = random_batch(16, seed=seed)
        a, b = plain.update(batch), fast.update(batch)
        assert a.loss.item() == pytest.approx(b.loss.item(), rel=1e-3)
        torch.testing.assert_close(a.priority, b.priority, rtol=1e-2, atol=1e-3)


def test_the_small_network_sees_small_frames() -> None:
    options = AgentOptions(network="small", frame_size=42)
    learner = make_learner(options, (4, 42, 42), 6, CPU)
    assert learner.values(torch.zeros(2, 4, 42, 42, dtype=torch.uint8)).shape == (2, 6)
    assert [tuple(p.shape) for p in learner.network.parameters() if p.dim() > 1] == [
        (16, 4, 4, 4),
        (32, 16, 4, 4),
        (32, 32, 3, 3),
        (256, 512),
        (6, 256),
    ]
    with pytest.raises(UserError, match="18x18"):
        QNetwork((4, 17, 17), 6, torch.Generator(), size=SMALL)


def arithmetic(name: NetworkName, frames: int) -> tuple[list[tuple[int, ...]], int]:
    """Shapes of the weights of a network for frames of 84x84, and the products of one forward pass."""
    network = make_learner(AgentOptions(network=name), (frames, 84, 84), 6, CPU).network
    weights = [p for p in network.parameters() if p.dim() > 1]
    places = (20 * 20, 9 * 9, 7 * 7, 1, 1)  # where each weight is used
    return [tuple(p.shape) for p in weights], sum(p.numel() * n for p, n in zip(weights, places, strict=True))


def test_arithmetic_of_the_networks() -> None:
    _, nature = arithmetic("nature", 4)
    shapes, narrow = arithmetic("narrow", 4)
    assert shapes == [(16, 4, 8, 8), (32, 16, 4, 4), (32, 32, 3, 3), (256, 1568), (6, 256)]
    assert 0.3 < narrow / nature < 0.37
    shapes, slim = arithmetic("slim", 4)
    assert shapes == [(16, 4, 8, 8), (64, 16, 4, 4), (64, 64, 3, 3), (512, 3136), (6, 512)]
    assert 0.65 < slim / nature < 0.7
    assert 0.58 < arithmetic("slim", 2)[1] / nature < 0.62
    with pytest.raises(UserError, match="the narrow network needs frames of at least 36x36"):
        QNetwork((4, 35, 35), 6, torch.Generator(), size=NARROW)


# Options


def test_a_variant_turns_its_parts_on_and_options_beat_it() -> None:
    def on(words: str) -> set[str]:
        options = parse(RainbowOptions, "", words.split())
        found = {n for n in ("dueling", "noisy", "prioritized", "distributional") if getattr(options.parts, n)}
        found |= {"double"} if options.dqn.double else set()
        return found | ({f"n{options.dqn.n_step}"} if options.dqn.n_step > 1 else set())

    assert on("") == on("--variant dqn") == set()
    for variant in VARIANTS[2:-1]:
        assert on(f"--variant {variant}") == on(f"--{variant}") == {variant}
    assert on("--variant n-step") == {"n2"}
    everything = {"dueling", "noisy", "prioritized", "distributional", "double", "n2"}
    assert on("--variant rainbow") == on("--variant=rainbow --game breakout") == everything
    assert on("--variant rainbow --no-noisy --n-step 3") == (everything - {"noisy", "n2"}) | {"n3"}
    assert on("--double --dueling --n-step 3") == {"double", "dueling", "n3"}
    assert on("--variant rainbow --dueling") == on("--variant rainbow")
    assert on("--game pong-fast --variant rainbow") == (everything - {"n2"}) | {"n5"}
    rainbow = parse(RainbowOptions, "", ["--variant", "rainbow"]).parts
    assert (rainbow.priority_exponent, rainbow.importance_exponent, rainbow.importance_decay) == (0.6, 0.4, 100_000)
    assert (rainbow.atoms, rainbow.value_min, rainbow.value_max) == (51, -10.0, 10.0)
    assert (rainbow.noise, rainbow.noisy_sigma) == ("factorised", None)
    said = describe_variant(parse(RainbowOptions, "", ["--variant", "rainbow"]))
    for word in ("2-step", "double", "dueling", "factorised noise", "alpha 0.6", "51 atoms from -10 to 10"):
        assert word in said
    assert describe_variant(AgentOptions()) == "agent: nature network, epsilon from 1 to 0.02"


@pytest.mark.parametrize(
    "words",
    [
        "--variant moon",
        "--noisy-sigma -1",
        "--priority-exponent 1.5",
        "--priority-exponent nan",
        "--importance-exponent -0.1",
        "--importance-decay 0",
        "--priority-floor 0",
        "--atoms 1",
        "--value-min 3 --value-max 3",
        "--seeds 0",
        "--report-env-steps 0",
        "--held-out 0",
        "--adam-epsilon 0",
        "--frame-size 30",
        "--frame-size 17 --network small",
        "--atoms 5000",
        "--value-max inf",
        "--frame-scale inf",
        "--held-out 10000000",
        "--frame-size 300",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(RainbowOptions, "", words.split())
    assert "\n" not in str(caught.value)


def test_a_series_is_refused_before_it_begins(tmp_path: Path) -> None:
    words = ["--variant", "all", "--epsilon-final", "0.05", "--runs-dir", str(tmp_path / "runs")]
    with pytest.raises(UserError, match=r"--epsilon-final 0\.05 is above --epsilon-start 0"):
        run_series(Path("10_rainbow.py"), parse(RainbowOptions, "", words), words)
    assert not (tmp_path / "runs").exists()


def test_words_of_a_series() -> None:
    words = ["--seed", "3", "--variant=all", "--dueling", "--seeds", "2", "--lr", "1"]
    assert without(words, "--variant", "--seed", "--seeds") == ["--dueling", "--lr", "1"]


def test_a_series_runs_what_differs_once(capsys: pytest.CaptureFixture[str]) -> None:
    def variants_of(*words: str) -> tuple[str, ...]:
        return distinct({variant: parse(RainbowOptions, "", ["--variant", variant, *words]) for variant in VARIANTS})

    assert variants_of("--game", "pong") == VARIANTS
    assert capsys.readouterr().out == ""
    assert variants_of("--game", "pong-fast") == tuple(v for v in VARIANTS if v != "n-step")  # has 5 steps already
    assert capsys.readouterr().out == "n-step is dqn with these options, and is left out\n"


# Reports


def test_reports_of_a_rainbow() -> None:
    learner = learner_of("rainbow")
    replay = PrioritizedReplay(filled_replay(CPU))
    feed_priorities(replay)
    reporter = Reporter(learner, replay, every=100, held_out=300, seed=0)
    assert [s for s in range(0, 350, 50) if reporter.due(s)] == [0, 100, 200, 300]
    before = [g.get_state().tolist() for g in (learner.noise, replay.generator)]
    scalars, histograms = reporter.report()
    assert scalars.keys() >= {"held_out/mean_q", "priority/min", "priority/median", "priority/max", "priority/beta"}
    assert len([name for name in scalars if name.startswith("noise/")]) == 4
    mass = histograms["held_out/distribution"].mass
    assert sum(mass) == pytest.approx(1.0, abs=1e-4)
    assert sum(m * z for m, z in zip(mass, ATOMS.tolist(), strict=True)) == pytest.approx(
        scalars["held_out/mean_q"], abs=1e-3
    )
    states = reporter._states
    assert reporter.report()[0].keys() == scalars.keys()
    assert reporter._states is states  # held-out states stay the same
    assert [g.get_state().tolist() for g in (learner.noise, replay.generator)] == before  # nothing of the run's


def test_signal_to_noise_by_hand() -> None:
    learner = learner_of("noisy")
    with torch.no_grad():
        for layer in noisy_layers(learner.network).values():
            layer.weight.fill_(-3.0)
            layer.weight_sigma.fill_(1.5)
    assert list(signal_to_noise(learner).values()) == pytest.approx([2.0, 2.0])
    assert signal_to_noise(learner_of("dqn")) == {}


def feed_priorities(replay: PrioritizedReplay) -> None:
    """Give every stored transition a priority, as if each had been drawn."""
    last = replay.frames.starts()[1]
    for time in range(last + 1):
        begin, real = replay.frames.row(time)
        replay.priorities.fill(begin, real.float() * 0.5)


def test_a_prioritized_update_uses_weights_and_writes_priorities_back() -> None:
    learners = [learner_of("prioritized") for _ in range(3)]
    replays = [PrioritizedReplay(filled_replay(CPU)) for _ in range(2)]
    for replay in replays:
        feed_priorities(replay)
        slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
        replay.write_back(slots, torch.linspace(0.01, 9.0, len(slots)))
        replay.set_beta(1.0)
    before = replays[0].priorities.leaves().clone()
    metrics = update_of(learners[0], replays[0], 8)()
    batch, weight, slot = replays[1].sample(8)  # the same draws
    assert metrics.loss.item() == pytest.approx(learners[1].update(batch, weight).loss.item(), rel=1e-6)
    assert metrics.loss.item() != pytest.approx(learners[2].update(batch).loss.item(), rel=1e-3)
    leaves = replays[0].priorities.leaves()
    torch.testing.assert_close(leaves[slot], (metrics.priority + 1e-6) ** 0.6)
    changed = torch.nonzero(leaves != before).squeeze(1).tolist()
    assert changed == sorted(set(slot.tolist()))


# Scripts

CATCH = (
    *("--game", "tests.toys:Catch", "--batch-size", "8", "--learning-rate", "1e-3", "--replay-initial", "200"),
    *("--replay-size", "5000", "--epsilon-decay", "800", "--target-sync", "100", "--max-env-steps", "2400"),
    *("--network", "small", "--frame-size", "42", "--frame-scale", "64", "--center-frames"),
    *("--value-min", "-1.5", "--value-max", "1.5", "--importance-decay", "2000", "--report-env-steps", "500"),
)
LEARNT = 0.7


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_learns_catch(tmp_path: Path, variant: str) -> None:
    run = train("10_rainbow", tmp_path, *CATCH, "--variant", variant)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[:100]) / 100 < 0.0
    assert sum(scores[-100:]) / 100 >= LEARNT
    reports = records(run, "reports.jsonl")
    assert [line["env_steps"] // 500 for line in reports] == [0, 1, 2, 3, 4]
    assert all(math.isfinite(value) for line in reports for value in line.values())
    if variant in ("prioritized", "rainbow"):
        assert reports[-1]["priority/beta"] > 0.99
        assert reports[0]["priority/beta"] < 0.6


@pytest.mark.slow
def test_a_series_draws_its_curves_and_keeps_every_run(tmp_path: Path) -> None:
    words = (*CATCH[:-2], "--max-env-steps", "500", "--variant", "dueling", "--seeds", "2", "--seed", "4")
    folder = train("10_rainbow", tmp_path, *words)
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"
    runs = [next((folder / name).iterdir()) for name in ("dueling-4", "dueling-5")]
    assert [summary(run)["seed"] for run in runs] == [4, 5]
    assert all(summary(run)["updates"] > 50 for run in runs)


def test_the_reports_are_in_tensorboards_events(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ("--max-env-steps", "700", "--variant", "rainbow")
    run = train("10_rainbow", tmp_path, *CATCH, *words)
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    assert {"held_out/mean_q", "priority/beta", "priority/median", "train/loss"} <= set(tags["scalars"])
    assert len([tag for tag in tags["scalars"] if tag.startswith("noise/head.")]) == 4
    (tag,) = tags["histograms"]
    histogram = events.Histograms(tag)[-1].histogram_value
    assert len(histogram.bucket) == 51
    assert sum(histogram.bucket) == pytest.approx(1.0, abs=1e-3)


# CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["dqn", "noisy", "prioritized", "rainbow"])
def test_variants_run_on_cuda(tmp_path: Path, variant: str) -> None:
    words = ("--cuda", "--variant", variant, "--replay-initial", "400", "--max-env-steps", "900", "--num-envs", "8")
    result = summary(train("10_rainbow", tmp_path, *words, "--report-env-steps", "200"))
    assert (result["device"], result["updates"] > 50) == ("cuda:0", True)


def test_make_rainbow_replay_knows_priorities() -> None:
    assert isinstance(make_rainbow_replay(options_of("prioritized", replay_size=1000), CPU), PrioritizedReplay)
    assert not isinstance(make_rainbow_replay(options_of("dqn", replay_size=1000), CPU), PrioritizedReplay)


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["dqn", "rainbow"])
def test_it_learns_catch_on_cuda(tmp_path: Path, variant: str) -> None:
    run = train("10_rainbow", tmp_path, *CATCH, "--cuda", "--num-envs", "8", "--variant", variant)
    scores = [episode["score"] for episode in records(run, "episodes.jsonl")]
    assert sum(scores[-100:]) / 100 >= LEARNT


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_run_on_cuda_goes_on(tmp_path: Path, device: str) -> None:
    words = (*CATCH, "--cuda", "--num-envs", "8", "--variant", "rainbow", "--final-learning-rate", "1e-4")
    run = train("10_rainbow", tmp_path, *words, "--max-env-steps", "800")
    before = summary(run)
    here("10_rainbow", "--resume", str(run), "--device", device, "--max-env-steps", "1600")
    after = summary(run)
    assert torch.device(after["device"]).type == device
    assert after["updates"] == pytest.approx(2 * before["updates"], rel=0.4)
    assert all(math.isfinite(line["loss"]) for line in records(run, "speed.jsonl") if line.get("loss") is not None)
