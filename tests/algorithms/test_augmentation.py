"""Augmentation: against padding and cropping, one observation at a time."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fastdqn.algorithms.augmentation import Augmentation
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.options.dqn import UpdateOptions
from fastdqn.options.presets import changed
from tests.helpers.learners import FAST, learner_from, options_of, random_batch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_shift_is_a_crop_of_the_frames_padded_by_their_edges(channels: int, last: bool) -> None:
    obs = torch.randint(0, 256, (40, channels, 9, 12), dtype=torch.uint8)
    laid_out = obs.to(memory_format=torch.channels_last) if last else obs
    rows, columns = torch.randint(8, (2, 40, 1), generator=generator()).squeeze(2).tolist()
    shifted = Augmentation(4, 0.0).shifted(laid_out, generator())
    padded = functional.pad(obs.float(), (4, 4, 4, 4), mode="replicate").byte()
    for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
        assert torch.equal(shifted[i], padded[i, :, row : row + 9, column : column + 12])
    assert {*rows, *columns} == set(range(8))  # dopamine's draw never takes the last place
    assert channels == 1 or shifted.stride() == laid_out.stride()
    assert Augmentation(0, 0.05).shifted(obs, generator()) is obs


def test_an_intensity_is_one_plus_clipped_noise() -> None:
    drawn = torch.randn((5000, 1, 1, 1), generator=generator())
    factors = Augmentation(4, 0.05).factors(5000, generator())
    assert factors is not None
    torch.testing.assert_close(factors, 1 + 0.05 * drawn.clip(-2, 2))
    assert (factors.min().item(), factors.max().item()) == pytest.approx((0.9, 1.1))
    assert Augmentation(4, 0.0).factors(5, generator()) is None


def learner(fast: bool = False, shift: int = 4, intensity: float = 0.05) -> DQNLearner:
    options = changed(options_of("double"), {"update": {"random_shift": shift, "random_intensity": intensity}})
    return learner_from(options, **({"form": FAST} if fast else {}))


def test_an_update_learns_from_augmented_states_and_next_states_one_draw_each() -> None:
    """By hand: the next states are drawn first, and both networks observe the same ones."""
    augmented, plain, other = learner(), learner(shift=0, intensity=0.0), learner(shift=0, intensity=0.0)
    batch, drawn, augment = random_batch(8), torch.Generator(), Augmentation(4, 0.05)
    drawn.set_state(augmented.noise.get_state())
    seen = []
    for obs in (batch.next_obs, batch.obs):
        factors = augment.factors(8, drawn)
        assert factors is not None
        seen.append(augment.shifted(obs, drawn).float() / 255 * factors)
    loss = augmented.update(batch).scalars["loss"]
    by_hand = plain.update(batch._replace(obs=seen[1], next_obs=seen[0])).scalars["loss"]
    torch.testing.assert_close(loss, by_hand, rtol=1e-5, atol=1e-6)
    assert (loss - other.update(batch).scalars["loss"]).abs() > 1e-4


def test_the_fast_update_is_the_plain_one() -> None:
    plain, fast, batch = learner(), learner(fast=True), random_batch(16)
    obs, next_obs = (seen.to(memory_format=torch.channels_last) for seen in (batch.obs, batch.next_obs))
    last = batch._replace(obs=obs, next_obs=next_obs)
    for _ in range(3):
        torch.testing.assert_close(plain.update(batch).scalars["loss"], fast.update(last).scalars["loss"])
    for a, b in zip(plain.network.parameters(), fast.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)


def test_actions_are_chosen_from_what_is_seen() -> None:
    augmented, plain = learner(), learner(shift=0, intensity=0.0)
    obs = random_batch(8).obs
    assert torch.equal(augmented.acting_values(obs), plain.acting_values(obs))
    assert UpdateOptions().random_shift == 0
