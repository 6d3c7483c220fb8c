"""The adapter of Stable-Baselines3 without it: what is refused, the clip, which is left to the hook, and the mean."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fastdqn.errors import UserError
from fastdqn.sb3 import average
from tests.helpers.ranks import both
from tests.helpers.sb3_toys import (
    MAX_NORMS,
    Running,
    batch,
    halves,
    learner_of,
    model_of,
    normalised,
    seen_rows,
    trained,
)


def test_the_clip_is_made_once_before_the_step() -> None:
    """A gradient of norm 5 is clipped to 1, whatever the model's own clip does after `average`."""
    model = model_of(max_grad_norm=1.0)
    average(model)
    assert model.max_grad_norm == math.inf
    model.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    torch.nn.utils.clip_grad_norm_(model.policy.parameters(), model.max_grad_norm)
    assert model.policy.weight.grad.tolist() == [3.0, 4.0, 0.0]
    model.policy.optimizer.step()
    torch.testing.assert_close(model.policy.weight.detach(), torch.tensor([-0.6, -0.8, 0.0]))


def test_the_clip_is_still_there_after_saving_and_loading() -> None:
    """Stable-Baselines3 saves all of a model's attributes, and gives them to the one that it loads."""
    saved = model_of(max_grad_norm=1.0)
    average(saved)
    loaded = model_of(**{name: value for name, value in vars(saved).items() if name != "policy"})
    average(loaded)
    loaded.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    loaded.policy.optimizer.step()
    torch.testing.assert_close(loaded.policy.weight.detach(), torch.tensor([-0.6, -0.8, 0.0]))


def test_a_clip_that_is_given_when_a_model_is_loaded_counts() -> None:
    loaded = model_of(max_grad_norm=2.5, max_norm_of_the_average=1.0)
    average(loaded)
    loaded.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    loaded.policy.optimizer.step()
    torch.testing.assert_close(loaded.policy.weight.detach(), torch.tensor([-1.5, -2.0, 0.0]))


def test_without_a_clip_there_is_none() -> None:
    model = model_of()
    average(model)
    model.policy.weight.grad = torch.tensor([3.0, 4.0, 0.0])
    model.policy.optimizer.step()
    assert model.policy.weight.tolist() == [-3.0, -4.0, 0.0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"target_kl": 0.01}, "target_kl stops each rank by a divergence of its own"),
        ({"train_freq": SimpleNamespace(unit=SimpleNamespace(value="episode"))}, "train_freq in episodes lets each"),
    ],
)
def test_what_would_leave_ranks_waiting_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^{said}.*\.$"):
        average(model_of(**more))
    average(model_of(target_kl=None, train_freq=SimpleNamespace(unit=SimpleNamespace(value="step"))))


@pytest.fixture(scope="module")
def found() -> list[dict[tuple[str, float | None], torch.Tensor]]:
    """What both ranks have made of their halves."""
    return both(halves)


@pytest.mark.parametrize("max_norm", MAX_NORMS)
def test_two_ranks_on_halves_are_one_on_the_whole_batch(
    found: list[dict[tuple[str, float | None], torch.Tensor]], max_norm: float | None
) -> None:
    """Though the second began with other weights and another momentum, and a weight has no gradient."""
    alone = trained(learner_of(max_norm), *batch())
    for rank in found:
        torch.testing.assert_close(rank["average", max_norm], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("way", "max_norm"), [("clip first", 1.0), ("sum", None)])
def test_the_controls_that_clip_first_or_take_the_sum_are_not(
    found: list[dict[tuple[str, float | None], torch.Tensor]], way: str, max_norm: float | None
) -> None:
    """The ranks stay equal all the same; after a clip of its own a loud half counts as much as a quiet one."""
    assert torch.equal(found[0][way, max_norm], found[1][way, max_norm])
    assert (found[0][way, max_norm] - trained(learner_of(max_norm), *batch())).abs().max() > 0.05


def test_what_two_ranks_normalise_by_is_what_both_have_seen() -> None:
    """It begins with what rank 0 has, and is that of all rows so far after each step, whatever observations are."""
    ranks = both(normalised)
    alone = [Running((3,), 1.0), Running((), 2.0)]
    expected: list[list[Any]] = []
    for first, second in zip(seen_rows(0), seen_rows(1), strict=True):
        for number, kept in enumerate(alone):
            kept.update(np.concatenate([first[number], second[number]]))
        expected.append([one for kept in alone for one in (kept.mean, kept.var, kept.count)])
    for found in ranks:
        for had, wanted in zip(found, 2 * expected, strict=True):
            for one, other in zip(had, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9)


def test_environments_that_are_not_normalised_are_left_alone() -> None:
    model = model_of(get_vec_normalize_env=lambda: None)
    average(model)
    model.policy.weight.grad = torch.zeros(3)
    model.policy.optimizer.step()
