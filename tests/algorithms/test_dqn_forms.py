"""The forms of an update: however its arithmetic is laid out, what is computed stays the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fastdqn.algorithms import dqn
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import Form
from fastdqn.networks.qnetwork import LastLayer
from fastdqn.options.groups import Groups
from fastdqn.options.parts import VARIANTS
from fastdqn.types import Batch
from tests.helpers.checkpoints import through_a_file
from tests.helpers.distributions import ATOMS
from tests.helpers.learners import (
    CPU,
    FAST,
    KeepsGradients,
    learner_from,
    learner_of,
    moved,
    options_of,
    options_of_agent,
    random_batch,
)


def updated_both(
    options: Groups, form: Form, updates: int = 3
) -> tuple[tuple[DQNLearner, DQNLearner], tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Return a plain and a fast learner after the same updates on the same batches, and their last gradients."""
    plain, fast = learner_from(options), learner_from(options, form=form)
    descents = KeepsGradients(), KeepsGradients()
    for learner, descent in zip((plain, fast), descents, strict=True):
        learner.descent = descent
        with torch.no_grad():
            for parameter in learner.target.parameters():
                parameter.add_(0.01)
    for seed in range(updates):
        batch = random_batch(16, seed=seed)
        a, b = plain.update(batch).scalars, fast.update(batch).scalars
        tolerance = 0.02 if form.bf16 else 1e-5
        assert a["loss"].item() == pytest.approx(b["loss"].item(), rel=tolerance)
        assert a["mean_q"].item() == pytest.approx(b["mean_q"].item(), rel=tolerance, abs=tolerance)
    return (plain, fast), (descents[0].gradients, descents[1].gradients)


@pytest.mark.parametrize("double", [False, True])
def test_fast_update_equals_the_plain_one(double: bool) -> None:
    """Channels last and fused Adam: the same gradients to 1e-5 of their size, the same weights to 1e-6."""
    (plain, fast), gradients = updated_both(options_of("dqn", double=double), FAST, updates=1)
    for x, y in zip(*gradients, strict=True):
        assert (x - y).norm() < 1e-5 * x.norm()
    for x, y in zip(plain.network.parameters(), fast.network.parameters(), strict=True):
        # Adam's first step is lr * sign(gradient): where a gradient is all but zero rounding may decide its sign.
        assert (x - y).abs().max() <= 2.01e-4
        assert ((x - y).abs() > 1e-6).float().mean() < 1e-3
    obs = random_batch(8, seed=9).obs
    torch.testing.assert_close(plain.values(obs), fast.values(obs), rtol=1e-3, atol=1e-4)
    updated_both(options_of("dqn", double=double), FAST)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variants_fast_update_equals_the_plain_one(variant: Any) -> None:
    """Channels last and fused Adam, over three updates on the same batches with the same noise."""
    plain, fast = learner_of(variant), learner_of(variant, FAST)
    for seed in range(3):
        batch = random_batch(16, seed=seed)
        a, b = plain.update(batch), fast.update(batch)
        assert a.scalars["loss"].item() == pytest.approx(b.scalars["loss"].item(), rel=1e-3)
        torch.testing.assert_close(a.priority, b.priority, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("double", [False, True])
def test_bf16_update_is_within_its_bound(double: bool) -> None:
    """bf16 body, float32 head: on noise for frames gradients differ by less than 15% of their size (measured: up to 9%,
    in the first layer), loss and values by 2%; weights, gradients, values, loss and Adam stay float32."""
    form = dataclasses.replace(FAST, bf16=True)
    (_, fast), gradients = updated_both(options_of("dqn", double=double), form, updates=1)
    for x, y, parameter in zip(*gradients, fast.network.parameters(), strict=True):
        assert parameter.dtype == y.dtype == torch.float32
        assert (x - y).norm() < 0.15 * x.norm()
    assert fast.values(random_batch(2).obs).dtype == torch.float32
    state = fast.group.optimizer.state_dict()["state"]
    assert {tensor.dtype for entry in state.values() for tensor in entry.values()} == {torch.float32}


@pytest.mark.parametrize("variant", ["double", "rainbow"])
def test_targets_and_errors_are_computed_in_float32(variant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside autocast, in which the products of a projection would be bf16."""
    learner = learner_of(variant, dataclasses.replace(FAST, bf16=True))
    errors, seen = learner.objective.errors, []

    def asked(output_tm1: torch.Tensor, batch: Batch, output_t: torch.Tensor, selector_t: torch.Tensor) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        assert {output_tm1.dtype, output_t.dtype, selector_t.dtype} == {torch.float32}
        return errors(output_tm1, batch, output_t, selector_t)

    monkeypatch.setattr(learner, "objective", SimpleNamespace(errors=asked))
    metrics = learner.update(random_batch(8))
    assert seen == [False]
    assert metrics.priority.dtype == metrics.scalars["loss"].dtype == torch.float32


def test_the_bf16_update_of_data_efficient_rainbow_is_within_its_bound() -> None:
    """In tiles: gradients differ by less than 10% of their size (measured: up to 7%, in the convolutions; 7% too where
    they are no tiles), loss and values by 2%."""
    (_, fast), gradients = updated_both(options_of_agent("der"), dataclasses.replace(FAST, bf16=True), updates=1)
    weight: Any = fast.computing.get_submodule("torso.convs.0").weight
    assert weight.dtype == torch.bfloat16
    for x, y in zip(*gradients, strict=True):
        assert (x - y).norm() < 0.1 * x.norm()
    assert not torch.equal(gradients[0][0], gradients[1][0])


def test_bf16_tells_actions_apart_that_differ_by_little() -> None:
    """Pong's values differ by 0.01, which a last layer in bf16 would round away."""
    learner = learner_of("dqn", Form(bf16=True))
    last: Any = learner.network.head[-1]  # type: ignore[index, operator]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([5.0, 5.004, 5.001, 5.0, 5.003, 5.002]))
    values = learner.values(random_batch(4).obs)
    assert values.argmax(dim=1).tolist() == [1, 1, 1, 1]
    assert values[0].unique().numel() == 5


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
    assert learner.greedy(obs).tolist() == learner.act(obs).tolist() == [1, 1, 1, 1]


def test_the_arithmetic_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    assert Form(bf16=True).describe(cuda) == "arithmetic: bf16 with a float32 last layer"
    assert FAST.describe(CPU) == "arithmetic: float32"
    assert FAST.describe(cuda) == "arithmetic: float32, TF32 in convolutions"
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert FAST.describe(cuda) == "arithmetic: float32"


@pytest.mark.cuda
def test_update_on_cuda_equals_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    cpu, gpu = learner_of("dqn"), learner_of("dqn", device=torch.device("cuda"))
    cpu.descent, gpu.descent = descents = KeepsGradients(), KeepsGradients()
    batch = random_batch(32)
    a, b = cpu.update(batch), gpu.update(moved(batch, gpu.device))
    assert a.scalars["loss"].item() == pytest.approx(b.scalars["loss"].item(), rel=1e-4)
    for x, y in zip(descents[0].gradients, descents[1].gradients, strict=True):
        torch.testing.assert_close(x, y.cpu(), rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("bf16", [False, True])
def test_last_layers_laid_out_by_input_change_no_bit_and_copy_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bf16: bool
) -> None:
    """Weights, gradients and moments lie in the same order, in a learner that continues from a checkpoint, too."""
    form = dataclasses.replace(FAST, bf16=bf16)
    fast, from_file = (learner_of("distributional", form) for _ in range(2))
    with monkeypatch.context() as patched:
        patched.setattr(dqn, "lay_out_by_input", lambda network: None)
        plain = learner_of("distributional", form)
    last: Any = [one for one in fast.network.modules() if isinstance(one, LastLayer)][-1]
    assert last.weight.t().is_contiguous()
    assert not last.weight.is_contiguous()
    for seed in range(6):
        if seed == 3:
            from_file.load(through_a_file(tmp_path, fast))
        for learner in (plain, fast) if seed < 3 else (plain, fast, from_file):
            learner.update(random_batch(16, seed=seed))
    for learner in (fast, from_file):
        for a, b in zip(plain.network.parameters(), learner.network.parameters(), strict=True):
            assert torch.equal(a, b)
        for weight, moments in learner.group.optimizer.state.items():
            lies = {one.stride() for one in moments.values() if one.shape == weight.shape}
            assert lies == {weight.stride()}
            assert weight.grad is not None
            assert weight.grad.stride() == weight.stride()
