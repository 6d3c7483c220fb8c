"""Prioritized replay: exact proportional draws against a naive reference, weights by hand, no drift."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastdqn.replay.prioritized import Priorities, PrioritizedReplay
from fastdqn.schedules import linear
from tests.test_frame_replay import ENDS, Script, make_replay

CPU = torch.device("cpu")


def filled(values: np.ndarray) -> Priorities:
    priorities = Priorities(len(values), CPU)
    priorities.fill(0, torch.from_numpy(values.astype(np.float32)))
    return priorities


def naive_find(values: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Walk along the leaves until their sum passes each share of the total."""
    found = []
    exact = values.astype(np.float32).astype(np.float64)
    for u in uniform:
        mass, total = u * exact.sum(), 0.0
        for index, value in enumerate(exact):
            total += value
            if total > mass:
                found.append(index)
                break
    return np.array(found)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 1000, 1023])
def test_find_equals_a_naive_walk(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.random(size) * (rng.random(size) < 0.7)
    values[size // 2] = 0.3
    uniform = rng.random(300)
    index, leaf = filled(values).find(torch.from_numpy(uniform))
    np.testing.assert_array_equal(index.numpy(), naive_find(values, uniform))
    np.testing.assert_allclose(leaf.numpy(), values[index.numpy()].astype(np.float32))
    assert (leaf > 0).all()


def test_ties_and_ends_never_return_a_zero() -> None:
    """Shares that fall exactly between two leaves belong to the next leaf that is not 0."""
    values = np.array([0, 1, 0, 0, 1, 2, 0, 0, 4, 0, 0], dtype=np.float64)
    shares = torch.tensor([0.0, 1 / 8, 2 / 8, 4 / 8, 1 - 2**-53, 1.0 - 1e-12], dtype=torch.float64)
    index, leaf = filled(values).find(shares)
    assert index.tolist() == [1, 4, 5, 8, 8, 8]
    assert (leaf > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_after_many_changes_it_equals_one_made_anew(seed: int) -> None:
    """Puts with repeated indices and fills across blocks; sums, largest and draws stay those of the leaves."""
    rng = np.random.default_rng(seed)
    size = 777
    priorities, plain = Priorities(size, CPU), np.zeros(size, np.float32)
    for _ in range(500):
        index = rng.integers(size, size=16)
        values = (rng.random(size) * 10.0 ** rng.integers(-4, 4)).astype(np.float32)[index]  # equal where index is
        priorities.put(torch.from_numpy(index), torch.from_numpy(values))
        plain[index] = values
        begin = int(rng.integers(size - 40))
        row = rng.random(rng.integers(1, 40)).astype(np.float32)
        priorities.fill(begin, torch.from_numpy(row))
        plain[begin : begin + len(row)] = row
    np.testing.assert_array_equal(priorities.leaves().numpy(), plain)
    assert priorities.total().item() == pytest.approx(plain.astype(np.float64).sum(), rel=1e-12)
    assert priorities.largest().item() == plain.max()
    uniform = rng.random(200)
    np.testing.assert_array_equal(priorities.find(torch.from_numpy(uniform))[0].numpy(), naive_find(plain, uniform))


def test_the_total_does_not_drift_in_a_million_updates() -> None:
    """Between 1e-6 and 1e6, which would ruin a float32 tree of differences."""
    generator = torch.Generator().manual_seed(0)
    size, batch = 3000, 1000
    priorities = Priorities(size, CPU)
    for _ in range(1_000_000 // batch):
        index = torch.randperm(size, generator=generator)[:batch]
        priorities.put(index, 10 ** (torch.rand(batch, generator=generator) * 12 - 6))
    priorities.put(torch.arange(size), torch.full((size,), 1e-3))
    assert priorities.total().item() == pytest.approx(size * float(np.float32(1e-3)), rel=1e-12)
    assert priorities.largest().item() == pytest.approx(1e-3)


def replay_of(rows: int, n_step: int, steps: int, exponent: float = 0.6) -> PrioritizedReplay:
    replay = PrioritizedReplay(make_replay(rows, 2, n_step, side=36), exponent)
    script = Script(ENDS)
    replay.reset(script.frames())
    for _ in range(steps):
        replay.add(*script.step())
    return replay


RESETS = {(4, 0), (10, 0), (12, 0), (13, 1), (21, 1)}


@pytest.mark.parametrize("n_step", [1, 3])
def test_what_can_be_drawn_is_what_is_stored_whole(n_step: int) -> None:
    """The same starts as of uniform draws, over the ring's seam: no reset, nothing near the write head."""
    for steps in (n_step, 10, 15, 16, 17, 24, 40):
        replay = replay_of(16, n_step, steps)
        slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
        time, game = replay.frames.time_and_game(slots)
        low = max(0, steps - (16 - 4 - 1))
        starts = {(t, i) for t in range(low, steps - n_step + 1) for i in range(2)} - RESETS
        assert set(zip(time.tolist(), game.tolist(), strict=True)) == starts


def test_nothing_to_draw_yet() -> None:
    with pytest.raises(IndexError, match="no whole window"):
        replay_of(16, 3, 2).sample(4)


@pytest.mark.parametrize("exponent", [0.6, 1.0, 0.0])
def test_frequencies_are_the_priorities(exponent: float) -> None:
    """Chi-square of 64,000 draws, in batches, against priority^alpha."""
    replay = replay_of(40, 1, 30, exponent)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    errors = torch.rand(len(slots), generator=torch.Generator().manual_seed(0)) * 3
    replay.write_back(slots, errors)
    counts = torch.zeros(replay.frames.size)
    for _ in range(1000):
        counts.index_add_(0, replay.sample(64).slot, torch.ones(64))
    share = (errors.double() + 1e-6) ** exponent
    expected = 64_000 * share / share.sum()
    chi_square = float(((counts[slots] - expected) ** 2 / expected).sum())
    assert counts.sum() == counts[slots].sum()
    freedom = len(slots) - 1
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5
    if exponent:  # the control: a uniform sampler fails this clearly
        uniform = torch.full_like(expected, 64_000 / len(slots))
        assert float(((counts[slots] - uniform) ** 2 / uniform).sum()) > 10 * freedom


def test_weights_by_hand() -> None:
    """Priorities 1, 2, 4, 8 at alpha 1: w_i = (N P(i))^-beta, divided by the largest of the batch."""
    replay = replay_of(16, 1, 2, exponent=1.0)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    replay.write_back(slots, torch.tensor([1.0, 2.0, 4.0, 8.0]) - 1e-6)
    replay.set_beta(0.5)
    drawn = replay.draw(torch.full((15,), 0.5, dtype=torch.float64))  # one in the middle of each fifteenth
    assert [slots.tolist().index(s) for s in drawn.slot.tolist()] == [0] + [1] * 2 + [2] * 4 + [3] * 8
    by_hand = {i: (4 * p / 15) ** -0.5 / (4 * 1 / 15) ** -0.5 for i, p in enumerate((1.0, 2.0, 4.0, 8.0))}
    expected = [by_hand[slots.tolist().index(s)] for s in drawn.slot.tolist()]
    assert drawn.weight.tolist() == pytest.approx(expected, rel=1e-5)
    assert drawn.weight.max().item() == 1.0
    replay.set_beta(0.0)
    assert replay.draw(torch.rand(8, dtype=torch.float64)).weight.tolist() == [1.0] * 8


def test_the_batch_is_what_its_slots_hold() -> None:
    """By the Script's own numbers: frame (1 + 2t + i) % 251, action (t + i) % 5, for the row t that is in the ring."""
    replay = replay_of(16, 1, 30)
    batch, _, slot = replay.sample(64)
    for row, place in enumerate(slot.tolist()):
        game = place % 2
        time = next(t for t in range(30, -1, -1) if t % 16 == place // 2)
        assert batch.obs[row, -1].unique().tolist() == [(1 + 2 * time + game) % 251]
        assert batch.action[row].item() == (time + game) % 5
        assert batch.reward[row].item() == (game + time) % 3 - 1
    assert len(set(slot.tolist())) > 15


def test_new_transitions_get_the_largest_priority_there_is_now() -> None:
    replay = replay_of(64, 1, 5)
    script = Script({})
    assert replay.priorities.leaves().max() == 1.0  # the first of all
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    replay.write_back(slots, torch.linspace(0.5, 9.0, len(slots)))
    top = replay.priorities.leaves().max()
    assert top.item() == pytest.approx((9.0 + 1e-6) ** 0.6)
    replay.add(*script.step())
    assert replay.priorities.leaves()[10:12].tolist() == [top.item()] * 2
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    replay.write_back(slots, torch.full((len(slots),), 0.25))  # errors have shrunk
    replay.add(*script.step())
    assert replay.priorities.leaves()[12:14].tolist() == pytest.approx([0.25**0.6] * 2, rel=1e-4)


def test_overwritten_transitions_are_gone() -> None:
    """A huge priority ends with its transition: (5, 0), in slot 10, is out of reach once row 5 + 11 + 1 is there."""
    replay = replay_of(16, 1, 12)
    replay.write_back(torch.tensor([10]), torch.tensor([1e6]))
    script = Script({})
    for head in range(13, 40):
        replay.add(*script.step())
        leaves = replay.priorities.leaves()
        slots = torch.nonzero(leaves).squeeze(1)
        slots = slots[slots != 10]
        replay.write_back(slots, torch.ones(len(slots)))
        if head < 17:
            assert leaves[10].item() == pytest.approx(1e6**0.6, rel=1e-4)
            assert replay.priorities.largest().item() == leaves[10].item()
        elif head < 22:  # then the slot holds (21, 0)
            assert leaves[10].item() == 0.0
            assert replay.priorities.largest().item() == pytest.approx(1.0, rel=1e-4)
            assert replay.priorities.total().item() == pytest.approx(int((leaves > 0).sum()), rel=1e-4)


def test_a_loss_that_is_no_number_does_not_break_the_draws() -> None:
    """The run ends with a sentence about its loss, not with an index out of range."""
    replay = replay_of(16, 1, 12)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    bad = torch.full((len(slots),), torch.nan)
    bad[0] = torch.inf
    replay.write_back(slots, bad)
    assert torch.isfinite(replay.sample(32).weight).all()


def test_beta_rises_to_one() -> None:
    assert [linear(s, 0.4, 1.0, 100_000) for s in (0, 50_000, 100_000, 10**7)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_spread_by_hand() -> None:
    replay = replay_of(16, 1, 2)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    replay.write_back(slots, torch.tensor([0.1, 0.2, 0.3, 5.0]))
    replay.set_beta(0.7)
    spread = replay.spread()
    assert spread["priority/min"] == pytest.approx(0.1, rel=1e-3)
    assert spread["priority/median"] == pytest.approx(0.2, rel=1e-3)
    assert spread["priority/max"] == pytest.approx(5.0, rel=1e-3)
    assert spread["priority/beta"] == pytest.approx(0.7)


@pytest.mark.cuda
def test_priorities_on_cuda_equal_the_cpu() -> None:
    rng = np.random.default_rng(0)
    values, uniform = torch.from_numpy(rng.random(5000).astype(np.float32)), torch.from_numpy(rng.random(256))
    found = []
    for name in ("cpu", "cuda"):
        priorities = Priorities(5000, torch.device(name))
        priorities.fill(0, values.to(name))
        priorities.put(torch.arange(0, 5000, 7, device=name), torch.full((715,), 0.25, device=name))
        found.append(priorities.find(uniform.to(name))[0].cpu())
    assert (found[0] == found[1]).float().mean() > 0.99  # sums may round differently
