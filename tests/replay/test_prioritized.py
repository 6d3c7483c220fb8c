"""Prioritized replay: draws in proportion to the priorities, weights by hand, what can be drawn and what is gone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from tests.helpers.replays import ENDS, RESETS, Script, feed, make_replay


def replay_of(rows: int, n_step: int, steps: int, exponent: float = 0.6) -> PrioritizedReplay:
    replay = PrioritizedReplay(make_replay(rows, 2, n_step, side=36), exponent)
    feed(Script(ENDS), replay, steps)
    return replay


def write_back(replay: PrioritizedReplay, slot: Tensor, priority: Tensor) -> None:
    """Give what is kept at `slot`, (B,), its priority, (B,), as if it had been drawn."""
    batch = replay.frames.transitions(*replay.frames.time_and_game(slot))
    replay.write_back(batch._replace(slot=slot), priority)


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


def test_a_block_whose_priorities_are_yet_to_come_cannot_be_drawn() -> None:
    """Its returns are known after its last step; priorities come with the next one."""
    frames = ReturnReplay(0.9, 4, None, 80, 2, (36, 36), 2, 0.9, torch.device("cpu"), 0)
    replay, game = PrioritizedReplay(frames), Script({})
    replay.reset(game.frames())
    frames.note()
    for _ in range(4):
        replay.add(*game.step())
        frames.note()
    assert frames.starts()[1] >= 0
    with pytest.raises(IndexError, match="no whole window"):
        replay.sample(4)
    replay.add(*game.step())
    assert len(replay.sample(4).obs) == 4


@pytest.mark.parametrize("exponent", [0.6, 1.0, 0.0])
def test_frequencies_are_the_priorities(exponent: float) -> None:
    """Chi-square of 64,000 draws, in batches, against priority^alpha."""
    replay = replay_of(40, 1, 30, exponent)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    errors = torch.rand(len(slots), generator=torch.Generator().manual_seed(0)) * 3
    write_back(replay, slots, errors)
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
    write_back(replay, slots, torch.tensor([1.0, 2.0, 4.0, 8.0]) - 1e-6)
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
    batch = replay.sample(64)
    slot = batch.slot
    assert slot is not None
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
    write_back(replay, slots, torch.linspace(0.5, 9.0, len(slots)))
    top = replay.priorities.leaves().max()
    assert top.item() == pytest.approx((9.0 + 1e-6) ** 0.6)
    replay.add(*script.step())
    assert replay.priorities.leaves()[10:12].tolist() == [top.item()] * 2
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    write_back(replay, slots, torch.full((len(slots),), 0.25))  # errors have shrunk
    replay.add(*script.step())
    assert replay.priorities.leaves()[12:14].tolist() == pytest.approx([0.25**0.6] * 2, rel=1e-4)


def test_overwritten_transitions_are_gone() -> None:
    """A huge priority ends with its transition: (5, 0), in slot 10, is out of reach once row 5 + 11 + 1 is there."""
    replay = replay_of(16, 1, 12)
    write_back(replay, torch.tensor([10]), torch.tensor([1e6]))
    script = Script({})
    for head in range(13, 40):
        replay.add(*script.step())
        leaves = replay.priorities.leaves()
        slots = torch.nonzero(leaves).squeeze(1)
        slots = slots[slots != 10]
        write_back(replay, slots, torch.ones(len(slots)))
        if head < 17:
            assert leaves[10].item() == pytest.approx(1e6**0.6, rel=1e-4)
            assert replay.priorities.largest().item() == leaves[10].item()
        elif head < 22:  # then the slot holds (21, 0)
            assert leaves[10].item() == 0.0
            assert replay.priorities.largest().item() == pytest.approx(1.0, rel=1e-4)
            assert replay.priorities._sums.sum().item() == pytest.approx(int((leaves > 0).sum()), rel=1e-4)


def test_a_loss_that_is_no_number_does_not_break_the_draws() -> None:
    """The run ends with a sentence about its loss, not with an index out of range."""
    replay = replay_of(16, 1, 12)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    bad = torch.full((len(slots),), torch.nan)
    bad[0] = torch.inf
    write_back(replay, slots, bad)
    assert torch.isfinite(replay.sample(32).weight).all()


def test_a_batch_of_another_replay_is_refused() -> None:
    replay = replay_of(16, 1, 12)
    with pytest.raises(ValueError, match="drawn from another replay"):
        replay.write_back(replay.frames.sample(4), torch.ones(4))


def test_spread_by_hand() -> None:
    replay = replay_of(16, 1, 2)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    write_back(replay, slots, torch.tensor([0.1, 0.2, 0.3, 5.0]))
    replay.set_beta(0.7)
    spread = replay.spread()
    assert spread["priority/min"] == pytest.approx(0.1, rel=1e-3)
    assert spread["priority/median"] == pytest.approx(0.25, rel=1e-3)  # of an even number: between the middle two
    assert spread["priority/max"] == pytest.approx(5.0, rel=1e-3)
    assert spread["priority/beta"] == pytest.approx(0.7)


def test_the_median_of_a_large_replay_is_one_of_an_even_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest and the largest are those of all, whether or not they are in the sample."""
    replay = replay_of(16, 1, 16)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)[:18]
    replay.priorities.clear()
    values = torch.arange(1.0, 19.0).roll(7) ** 2
    replay.priorities.put(slots, values**0.6)
    for most, sample in ((18, values), (17, values[::2]), (5, values[::4])):
        monkeypatch.setattr("fastdqn.replay.prioritized.MEDIAN_OF", most)
        spread = replay.spread()
        assert spread["priority/median"] == pytest.approx(np.median(sample.numpy()), rel=1e-4)
        assert spread["priority/min"] == pytest.approx(1.0, rel=1e-4)
        assert spread["priority/max"] == pytest.approx(324.0, rel=1e-4)


def test_what_went_out_of_reach_since_the_draw_is_not_drawn_again() -> None:
    """A loop that writes back late: the slots of what is gone hold halves of two transitions by then."""
    replay = replay_of(16, 1, 16)
    batch, script = replay.sample(64), Script({})
    for _ in range(4):
        replay.add(*script.step())
    drawable = replay.priorities.leaves() > 0
    replay.write_back(batch, torch.full((64,), 50.0))
    assert torch.equal(replay.priorities.leaves() > 0, drawable)
    assert replay.priorities.largest().item() == pytest.approx(50.0**0.6, rel=1e-4)


def test_a_priority_below_zero_counts_as_zero() -> None:
    replay = replay_of(16, 1, 12)
    slots = torch.nonzero(replay.priorities.leaves()).squeeze(1)
    signed = torch.ones(len(slots))
    signed[0] = -0.5
    write_back(replay, slots, signed)
    assert replay.priorities.leaves()[slots[0]].item() == pytest.approx(1e-6**0.6, rel=1e-3)
    assert torch.isfinite(replay.sample(32).weight).all()
