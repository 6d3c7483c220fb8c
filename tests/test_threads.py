"""Gradients side by side: as if computed one by one from the same weights, and the same each time."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import nn

from fastdqn.cli import parse
from fastdqn.config import AgentOptions, DQNOptions, PartOptions, RecordOptions
from fastdqn.errors import UserError
from fastdqn.learner import DQNLearner, Form
from fastdqn.networks import FactorisedNoisyLinear
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.schedules import groups
from fastdqn.threads import SideBySide, flush_denormals
from fastdqn.types import Batch, parts_of
from fastdqn.variants import _threads_of, make_learner, updates_of
from tests.test_learning_parts import filled_replay, random_batch

CPU = torch.device("cpu")
FAST = Form(channels_last=True, fused=True)


def learner_of(**options: object) -> DQNLearner:
    made = AgentOptions(dqn=DQNOptions(learning_rate=1e-3, double=True), center_frames=True, **options)  # type: ignore[arg-type]
    learner = make_learner(made, (4, 84, 84), 6, CPU, FAST)
    learner.see(torch.rand(84, 84, generator=torch.Generator().manual_seed(0)) * 100, torch.ones(84, 84))
    return learner


def weights(network: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def test_pieces_run_at_the_same_time_in_threads_of_their_own() -> None:
    side_by_side = SideBySide(3, 1)
    meet = threading.Barrier(3, timeout=20)

    def piece() -> tuple[int, int, int]:
        return meet.wait(), threading.get_ident(), torch.get_num_threads()

    for _ in range(2):
        places, threads, torch_threads = zip(*side_by_side(piece, piece, piece), strict=True)
        assert sorted(places) == [0, 1, 2]
        assert len(set(threads)) == 3
        assert threads[0] == threading.get_ident()
        assert torch_threads == (1, 1, 1)


def test_tiny_numbers_are_zero_in_every_piece() -> None:
    tiny = torch.full((64,), 1e-39)
    assert (tiny * 1.0).ne(0).all()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    flush_denormals()
    for result in SideBySide(2, 1)(*[lambda: (tiny * 1.0).ne(0).any().item()] * 2):
        assert not result


def test_results_come_in_order_and_errors_after_all_are_done() -> None:
    side_by_side = SideBySide(2, 1)
    done: list[str] = []

    def slow() -> str:
        time.sleep(0.1)
        done.append("slow")
        return "slow"

    def broken() -> str:
        raise ValueError("broken")

    assert side_by_side(lambda: "quick", slow) == ["quick", "slow"]
    with pytest.raises(ValueError, match="broken"):
        side_by_side(broken, slow)
    assert done == ["slow", "slow"]
    with pytest.raises(ValueError, match="broken"):
        side_by_side(slow, broken)


def test_groups_by_hand() -> None:
    assert groups(range(8, 41, 8), 2) == [range(8, 24, 8), range(24, 40, 8), range(40, 48, 8)]
    assert groups(range(0), 2) == []


def test_two_gradients_are_of_the_same_weights_and_are_applied_in_order() -> None:
    """The second gradient, computed by hand before the first step, is what Adam then gets."""
    together, by_hand = learner_of(gradient_threads=2), learner_of()
    assert (together.at_once, by_hand.at_once) == (2, 1)
    for a, b in zip(weights(together.network), weights(by_hand.network), strict=True):
        assert torch.equal(a, b)
    for turn in range(3):
        batches: list[tuple[Batch, torch.Tensor | None]] = [
            (random_batch(8, seed=2 * turn), None),
            (random_batch(8, seed=2 * turn + 1), torch.rand(8, generator=torch.Generator().manual_seed(turn))),
        ]
        metrics = together.update_all(batches)
        branch = by_hand._branches[0]  # the gradients alone
        gradients: list[list[torch.Tensor]] = []
        for (batch, weight), made in zip(batches, metrics, strict=True):
            loss = branch.gradient(batch, weight).loss
            assert loss.item() == pytest.approx(made.loss.item(), rel=1e-5)
            gradients.append([parameter.grad for parameter in branch.parameters if parameter.grad is not None])
        for gradient in gradients:
            for parameter, grad in zip(branch.parameters, gradient, strict=True):
                parameter.grad = grad
            by_hand.optimizer.step()
        for a, b in zip(weights(together.network), weights(by_hand.network), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        for learner in (together, by_hand):
            learner.sync_target()
    obs = random_batch(8, seed=99).obs
    torch.testing.assert_close(together.values(obs), by_hand.values(obs))


def test_no_batch_is_left_out() -> None:
    with pytest.raises(ValueError, match="2 batches, but at most 1"):
        learner_of().update_all([(random_batch(4), None)] * 2)
    with pytest.raises(ValueError, match="5 transitions"):
        parts_of(random_batch(5), 2)
    batch = random_batch(6)
    parts = parts_of(batch, 3)
    assert all(torch.equal(torch.cat(whole), one) for whole, one in zip(zip(*parts, strict=True), batch, strict=True))


@pytest.mark.parametrize("options", [{"target_average": 0.25}, {"target_average": 0.25, "act_with": "target"}])
def test_an_averaged_target_moves_once_for_each_step(options: dict[str, object]) -> None:
    learner = learner_of(gradient_threads=2, **options)
    expected = weights(learner.target)
    batches: list[tuple[Batch, torch.Tensor | None]] = [(random_batch(4, seed=seed), None) for seed in range(2)]
    step = learner.optimizer.step

    def watched() -> None:
        step()
        for target, online in zip(expected, weights(learner.network), strict=True):
            target.lerp_(online, 0.25)

    learner.optimizer.step = watched  # type: ignore[method-assign]
    learner.update_all(batches)
    for target, own in zip(expected, weights(learner.target), strict=True):
        torch.testing.assert_close(own, target)


def test_two_gradients_in_bf16() -> None:
    made = AgentOptions(gradient_threads=2)
    learner = make_learner(made, (4, 84, 84), 6, CPU, Form(channels_last=True, fused=True, bf16=True))
    metrics = learner.update_all([(random_batch(4, seed=seed), None) for seed in range(2)])
    assert all(metric.loss.isfinite() for metric in metrics)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--num-envs 16 --steps 16 --gradient-threads 2", "it must be at least 32"),
        ("--num-envs 64 --steps 32 --gradient-threads 2 --target-sync 40 --replay-initial 2000", "miss copies"),
    ],
)
def test_threads_that_would_have_nothing_to_do_are_refused(words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse(RecordOptions, "", [*words.split(), "--device", "cpu"])


def test_one_batch_for_two_threads_is_a_plain_update() -> None:
    two, one = learner_of(gradient_threads=2), learner_of()
    for seed in range(2):
        a, b = two.update(random_batch(8, seed=seed)), one.update(random_batch(8, seed=seed))
        assert a.loss.item() == pytest.approx(b.loss.item(), rel=1e-5)
    obs = random_batch(9).obs
    assert torch.equal(two.greedy(obs), one.greedy(obs))  # in two pieces, of 5 and 4


@pytest.mark.parametrize("torch_threads", [1, 2])
def test_a_resting_learner_chooses_the_same_actions_in_threads_of_its_own(torch_threads: int) -> None:
    obs = random_batch(9).obs
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(torch_threads)
        learner = learner_of()
        seen: list[tuple[int, int]] = []
        learner.network.register_forward_pre_hook(lambda _, args: seen.append((len(args[0]), torch.get_num_threads())))
        actions = learner.greedy(obs)
        for resting in (False, True, True, False):
            learner.rest(resting)
            seen.clear()
            assert torch.equal(learner.greedy(obs), actions)
            assert sorted(seen) == ([(4, 1), (5, 1)] if resting and torch_threads == 2 else [(9, torch_threads)])
        assert torch.get_num_threads() == torch_threads
    finally:
        torch.set_num_threads(before)


def test_a_seed_repeats_exactly_with_noise_priorities_and_two_threads() -> None:
    parts = PartOptions(noisy=True, prioritized=True, dueling=True)

    def train() -> list[torch.Tensor]:
        learner = learner_of(gradient_threads=2, parts=parts)
        replay = PrioritizedReplay(filled_replay(CPU))
        for time_ in range(replay.frames.starts()[1] + 1):
            begin, real = replay.frames.row(time_)
            replay.priorities.fill(begin, real.float())
        make_updates = updates_of(learner, replay, 8)
        for count in (2, 1, 2):
            assert len(make_updates(count)) == count
        first, second = (branch._noisy[0] for branch in learner._branches)
        assert isinstance(first, FactorisedNoisyLinear)
        assert isinstance(second, FactorisedNoisyLinear)
        assert not torch.equal(first.noise_in, second.noise_in)  # each gradient has noise of its own
        return [*weights(learner.network), replay.priorities.leaves().clone()]

    for a, b in zip(train(), train(), strict=True):
        assert torch.equal(a, b)


def test_the_state_of_both_noises_comes_back() -> None:
    parts = PartOptions(noisy=True)
    first, second = learner_of(gradient_threads=2, parts=parts), learner_of(gradient_threads=2, parts=parts)
    batches: list[tuple[Batch, torch.Tensor | None]] = [(random_batch(4, seed=seed), None) for seed in range(2)]
    first.update_all(batches)
    second.load(first.state())
    for learner in (first, second):
        learner.update_all(batches)
    for a, b in zip(weights(first.network), weights(second.network), strict=True):
        assert torch.equal(a, b)


def test_other_devices_compute_one_at_a_time() -> None:
    options = AgentOptions(gradient_threads=2)
    assert _threads_of(options, torch.device("meta")) is None
    assert _threads_of(AgentOptions(), CPU) is None
    threads = _threads_of(options, CPU)
    assert threads is not None
    assert threads.count == 2


def test_a_state_of_two_branches_is_read_by_one() -> None:
    two, one = learner_of(gradient_threads=2), learner_of()
    two.update_all([(random_batch(4, seed=seed), None) for seed in range(2)])
    one.load(two.state())
    obs = random_batch(3).obs
    torch.testing.assert_close(one.values(obs), two.values(obs))
