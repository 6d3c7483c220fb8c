"""Gradients side by side: as if computed one by one from the same weights, and the same each time."""

from __future__ import annotations

import dataclasses
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fastdqn.errors import UserError
from fastdqn.execution.side_by_side import SeveralGradients, SideBySide, flush_denormals
from fastdqn.networks.noisy import FactorisedNoisyLinear
from fastdqn.options.dqn import AgentOptions, DQNOptions, UpdateOptions
from fastdqn.options.groups import Groups
from fastdqn.options.parts import PartOptions
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.schedules import groups
from fastdqn.types import Batch, parts_of
from tests.helpers.learners import CPU, FAST, learner_from, random_batch
from tests.helpers.replays import filled_replay
from tests.helpers.scripts import parse

NOISY = PartOptions(noisy=True)


def trainer_of(gradient_threads: int = 1, parts: PartOptions | None = None, **agent: Any) -> SeveralGradients:
    options = Groups(
        dqn=DQNOptions(learning_rate=1e-3, double=True),
        update=UpdateOptions(center_frames=True),
        agent=AgentOptions(gradient_threads=gradient_threads, **agent),
        parts=parts,
    )
    learner = learner_from(options, form=FAST)
    learner.center_frames(torch.rand(84, 84, generator=torch.Generator().manual_seed(0)) * 100)
    return SeveralGradients(learner, gradient_threads)


def batches_of(size: int, count: int = 2) -> list[Batch]:
    return [random_batch(size, seed=seed) for seed in range(count)]


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
    together, alone = trainer_of(2), trainer_of()
    assert (together.at_once, alone.at_once) == (2, 1)
    by_hand = alone.learner
    for a, b in zip(weights(together.learner.network), weights(by_hand.network), strict=True):
        assert torch.equal(a, b)
    for turn in range(3):
        weight = torch.rand(8, generator=torch.Generator().manual_seed(turn))
        batches = [random_batch(8, seed=2 * turn), random_batch(8, seed=2 * turn + 1)._replace(weight=weight)]
        metrics = together.update(batches)
        group = by_hand.group
        gradients: list[list[torch.Tensor]] = []
        for batch, made in zip(batches, metrics, strict=True):
            loss = by_hand.gradient(group, batch).scalars["loss"]
            assert loss.item() == pytest.approx(made.scalars["loss"].item(), rel=1e-5)
            gradients.append([parameter.grad for parameter in group.parameters if parameter.grad is not None])
        for gradient in gradients:
            for parameter, grad in zip(group.parameters, gradient, strict=True):
                parameter.grad = grad
            group.optimizer.step()
        for a, b in zip(weights(together.learner.network), weights(by_hand.network), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        for learner in (together.learner, by_hand):
            learner.sync_target()
    obs = random_batch(8, seed=99).obs
    torch.testing.assert_close(together.learner.values(obs), by_hand.values(obs))


def test_no_batch_is_left_out() -> None:
    with pytest.raises(ValueError, match="2 batches, but at most 1"):
        trainer_of().update([random_batch(4)] * 2)
    with pytest.raises(ValueError, match="5 transitions"):
        parts_of(random_batch(5), 2)
    batch = random_batch(6)
    assert all((part.weight, part.slot) == (None, None) for part in parts_of(batch, 3))
    batch = batch._replace(weight=torch.rand(6), slot=torch.arange(6))
    parts = parts_of(batch, 3)
    assert all(torch.equal(torch.cat(whole), one) for whole, one in zip(zip(*parts, strict=True), batch, strict=True))


@pytest.mark.parametrize("agent", [{"target_average": 0.25}, {"target_average": 0.25, "act_with": "target"}])
def test_an_averaged_target_moves_once_for_each_step(agent: dict[str, Any]) -> None:
    trainer = trainer_of(2, **agent)
    learner = trainer.learner
    expected = weights(learner.target)
    step = learner.group.optimizer.step

    def watched() -> None:
        step()
        for target, online in zip(expected, weights(learner.network), strict=True):
            target.lerp_(online, 0.25)

    learner.group.optimizer.step = watched  # type: ignore[method-assign]
    trainer.update(batches_of(4))
    for target, own in zip(expected, weights(learner.target), strict=True):
        torch.testing.assert_close(own, target)


def test_two_gradients_in_bf16() -> None:
    trainer = SeveralGradients(learner_from(Groups(), form=dataclasses.replace(FAST, bf16=True)), 2)
    metrics = trainer.update(batches_of(4))
    assert len(metrics) == 2
    assert all(metric.scalars["loss"].isfinite() for metric in metrics)


@pytest.mark.parametrize(
    ("script", "words", "why"),
    [
        ("11_pong_in_seconds", "--num-envs 16 --steps 16", "it must be at least 32"),
        ("10_rainbow", "--num-envs 64 --steps 32 --target-sync 40 --replay-initial 2000", "miss copies"),
    ],
)
def test_threads_that_would_have_nothing_to_do_are_refused(script: str, words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse(script, *words.split(), "--gradient-threads", "2", "--device", "cpu")


def test_without_copies_of_a_target_network_none_is_missed() -> None:
    words = ("--num-envs", "64", "--steps", "32", "--gradient-threads", "2", "--target-sync", "40")
    assert parse("11_pong_in_seconds", *words, "--replay-initial", "2000", "--device", "cpu").dqn.target_sync == 40


def test_one_batch_for_two_threads_is_a_plain_update() -> None:
    two, one = trainer_of(2), trainer_of().learner
    for batch in batches_of(8):
        (a,), b = two.update([batch]), one.update(batch)
        assert a.scalars["loss"].item() == pytest.approx(b.scalars["loss"].item(), rel=1e-5)
    obs = random_batch(9).obs
    assert torch.equal(two.act(obs), one.act(obs))  # in two pieces, of 5 and 4


@pytest.mark.parametrize(("torch_threads", "acting"), [(1, None), (2, None), (1, 2), (2, 1)])
def test_while_updates_are_paused_the_same_actions_are_chosen_in_threads_of_their_own(
    torch_threads: int, acting: int | None
) -> None:
    obs = random_batch(9).obs
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(torch_threads)
        trainer = SeveralGradients(trainer_of().learner, 1, acting)
        seen: list[tuple[int, int]] = []
        trainer.learner.network.register_forward_pre_hook(
            lambda _, args: seen.append((len(args[0]), torch.get_num_threads()))
        )
        actions = trainer.act(obs)
        halves = (acting or torch_threads) == 2
        for paused in (False, True, True, False):
            trainer.pause_updates(paused)
            seen.clear()
            assert torch.equal(trainer.act(obs), actions)
            assert sorted(seen) == ([(4, 1), (5, 1)] if paused and halves else [(9, torch_threads)])
        assert torch.get_num_threads() == torch_threads
    finally:
        torch.set_num_threads(before)


def test_a_seed_repeats_exactly_with_noise_priorities_and_two_threads() -> None:
    def train() -> list[torch.Tensor]:
        trainer = trainer_of(2, PartOptions(noisy=True, prioritized=True, dueling=True))
        replay = PrioritizedReplay(filled_replay())
        for time_ in range(replay.frames.starts()[1] + 1):
            begin, real = next(replay.frames.spans(time_, time_ + 1))
            replay.priorities.fill(begin, real.float())
        for count in (2, 1, 2):
            batches = replay.sample_each(count, 8)
            made = trainer.update(batches)
            assert len(made) == count
            for batch, metrics in zip(batches, made, strict=True):
                replay.write_back(batch, metrics.priority)
        first, second = (one._noisy[0] for one in trainer._replicas)
        assert isinstance(first, FactorisedNoisyLinear)
        assert isinstance(second, FactorisedNoisyLinear)
        assert not torch.equal(first.noise_in, second.noise_in)  # each gradient has noise of its own
        return [*weights(trainer.learner.network), replay.priorities.leaves().clone()]

    for a, b in zip(train(), train(), strict=True):
        assert torch.equal(a, b)


def test_the_state_of_both_noises_comes_back() -> None:
    first, second = trainer_of(2, NOISY), trainer_of(2, NOISY)
    first.update(batches_of(4))
    second.load(first.state())
    for trainer in (first, second):
        trainer.update(batches_of(4))
    for a, b in zip(weights(first.learner.network), weights(second.learner.network), strict=True):
        assert torch.equal(a, b)


def test_other_devices_compute_one_at_a_time() -> None:
    elsewhere: Any = SimpleNamespace(device=torch.device("meta"))
    assert SeveralGradients(elsewhere, 2).at_once == 1
    assert trainer_of().at_once == 1
    trainer = trainer_of(2)
    assert trainer.learner.device == CPU
    assert (trainer.at_once, trainer._threads.count) == (2, 2)


def test_a_state_of_two_branches_is_read_by_one() -> None:
    two, one = trainer_of(2), trainer_of()
    two.update(batches_of(4))
    one.load(two.state())
    obs = random_batch(3).obs
    torch.testing.assert_close(one.learner.values(obs), two.learner.values(obs))
