"""Threads while others use the cores."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import Form
from fastdqn.execution.devices import has_bf16
from fastdqn.execution.threads import TRIALS, Threads
from fastdqn.options.groups import Groups
from fastdqn.replay.returns import REFRESHED_AT_ONCE
from fastdqn.runs.neighbours import Neighbours
from fastdqn.types import Metrics
from tests.helpers.learners import CPU, FAST, SHAPE, learner_from, options_of_agent, random_batch
from tests.helpers.resuming import VECTOR
from tests.helpers.scripts import TOY_CATCH, records, train

BF16 = dataclasses.replace(FAST, bf16=True)
MACHINE = Path("/proc/cpuinfo")
OTHER_BITS = not MACHINE.exists() or "AuthenticAMD" not in MACHINE.read_text()
"""Whether PyTorch's sums may depend on the number of threads: on Intel's processors its libraries divide some of them
among the threads, with AMX the gradients of weights.
"""
same_bits = pytest.mark.skipif(OTHER_BITS, reason="sums depend on the number of threads here")


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """On all cores: on the one that each of pytest-xdist's workers has, they would wait for each other."""
    before = torch.get_num_threads()
    own: set[int] = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if own:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    if own:
        os.sched_setaffinity(0, own)


class Doctored(Threads):
    """Threads on a machine where the bits are as a test says."""

    def __init__(self, same: bool, crowded: int | None = None) -> None:
        super().__init__(learner_from(Groups()), SHAPE, 6, 4, 3, crowded=crowded)
        self.asked = 0
        self.verdict = same

    def _same_bits(self) -> bool:
        self.asked += 1
        return self.verdict


@pytest.mark.parametrize("same", [True, False])
def test_the_number_changes_only_where_no_bit_does(same: bool) -> None:
    threads = Doctored(same)
    threads.share(False)
    assert threads.asked == 0  # nobody wanted to know
    for _ in range(2):
        threads.share(True)
        assert torch.get_num_threads() == (1 if same else 2)
    threads.share(False)
    assert (torch.get_num_threads(), threads.asked) == (2, 1)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("crowded", "fewer"), [(1, 1), (2, 2), (8, 2)])
def test_the_number_that_was_asked_for(crowded: int, fewer: int, same: bool) -> None:
    threads = Doctored(same, crowded)
    for share, expected in ((False, 2), (True, fewer), (False, 2)):
        threads.share(share)
        assert torch.get_num_threads() == expected
    assert threads.asked == 0


def test_one_thread_stays_one() -> None:
    torch.set_num_threads(1)
    threads = Doctored(True)
    threads.share(True)
    threads.share(False)
    assert (torch.get_num_threads(), threads.asked) == (1, 0)


@same_bits
@pytest.mark.skipif(not has_bf16(CPU), reason="this processor has no bf16")
@pytest.mark.parametrize("size", [16, *(pytest.param(size, marks=pytest.mark.slow) for size in (32, 128))])
def test_bf16_has_the_same_bits(size: int) -> None:
    threads = Threads(learner_from(Groups(), form=BF16), SHAPE, 6, size, 16, REFRESHED_AT_ONCE)
    threads.share(True)
    assert torch.get_num_threads() == 1


@same_bits
@pytest.mark.slow
@pytest.mark.parametrize("form", [FAST, BF16])
def test_data_efficient_rainbow_has_the_same_bits(form: Form) -> None:
    """Its convolutions are products of matrices, one of them with nine rows when one game is played."""
    threads = Threads(learner_from(options_of_agent("der"), form=form), SHAPE, 6, 32, 1)
    threads.share(True)
    assert torch.get_num_threads() == 1


def test_one_batch_of_many_that_differs_keeps_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded to bf16, sums in another order are often the same."""
    asked: list[int] = []

    def values(_: DQNLearner, obs: torch.Tensor) -> torch.Tensor:
        asked.append(len(obs))
        return torch.full((len(obs), 6), float(len(asked) == 2 * TRIALS))

    learner = learner_from(Groups())
    monkeypatch.setattr(DQNLearner, "acting_values", values)
    monkeypatch.setattr(DQNLearner, "gradient", lambda *_: Metrics({}, torch.zeros(())))
    for parameter in learner.group.parameters:
        parameter.grad = torch.zeros_like(parameter)
    monkeypatch.setattr(learner, "replica", lambda: learner)
    assert not Threads(learner, SHAPE, 6, 8, 3)._same_bits()
    assert len(asked) == 2 * TRIALS


def test_values_of_actions_that_differ_keep_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda-returns are made of them."""

    asked: list[int] = []

    def values(_: DQNLearner, obs: torch.Tensor) -> torch.Tensor:
        asked.append(len(obs))
        return torch.full((len(obs), 6), 1.0 / torch.get_num_threads() if len(obs) == 5 else 0.0)

    monkeypatch.setattr(DQNLearner, "gradient", lambda *_: Metrics({}, torch.zeros(())))
    learner = learner_from(Groups())
    for parameter in learner.group.parameters:
        parameter.grad = torch.zeros_like(parameter)
    monkeypatch.setattr(learner, "replica", lambda: learner)
    monkeypatch.setattr(DQNLearner, "acting_values", values)
    assert Threads(learner, SHAPE, 6, 8, 3)._same_bits()
    assert not Threads(learner, SHAPE, 6, 8, 3, 5)._same_bits()
    assert asked == [3, 3] * TRIALS + [3, 5, 3, 5]


def test_the_learner_is_not_touched_by_the_trial() -> None:
    learner, other = learner_from(Groups()), learner_from(Groups())
    Threads(learner, SHAPE, 6, 8, 3)._same_bits()
    for one in (learner, other):
        one.update(random_batch(8, seed=1))
    for a, b in zip(learner.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)


@same_bits
@pytest.mark.skipif(not has_bf16(CPU), reason="this processor has no bf16")
def test_a_learner_that_changes_its_threads_learns_the_same() -> None:
    learner, other = (learner_from(Groups(), form=BF16) for _ in range(2))
    threads = Threads(learner, SHAPE, 6, 16, 16)
    for seed in range(6):
        torch.set_num_threads(2)
        other.update(random_batch(16, seed=seed))
        threads.share(seed % 3 > 0)
        assert torch.get_num_threads() == (1 if seed % 3 else 2)
        learner.update(random_batch(16, seed=seed))
    for a, b in zip(learner.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("script", ["09_cuda_graph", "10_rainbow", "11_pong_in_seconds"])
def test_scripts_tell_whether_it_is_crowded(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def share(threads: Threads, crowded: bool) -> None:
        assert threads._fewer == 1
        told.append(crowded)

    monkeypatch.setattr(Threads, "share", share)

    def look(neighbours: Neighbours) -> None:
        neighbours.crowded = len(told) % 3 == 2

    monkeypatch.setattr(Neighbours, "look", look)
    words = (*VECTOR, "--game", TOY_CATCH, "--frame-size", "42", "--threads", "1", "--crowded-threads", "1")
    run = train(script, tmp_path, *words, "--max-env-steps", "130")
    assert told[:6] == [False, False, True] * 2
    assert all(line["threads"] == 1 and "neighbour_cores" in line for line in records(run, "speed.jsonl"))
