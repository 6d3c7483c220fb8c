"""Runs over ranks: what a follower does at the end, and what checkpoints hold of it, beside one that tells it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from fastdqn.errors import RunError
from fastdqn.runs.encoding import from_bytes, to_bytes
from fastdqn.runs.neighbours import Neighbours
from fastdqn.runs.ranked import LEAVE, STATES, STATES_WITHOUT_REPLAY, FollowingRun, _Others
from fastdqn.states import NothingUnfinished
from fastdqn.types import EpisodeEnd
from tests.helpers.runs import CPU


class Two:
    """One of two ranks; the other says what it is to say."""

    world, alone = 2, False

    def __init__(self, rank: int, told: tuple[int, ...] = ()) -> None:
        self.rank, self.first = rank, rank == 0
        self.orders: list[tuple[int, bool]] = []
        self.sent: list[bytes] = []
        self._told = list(told)

    def check(self) -> None: ...

    def gathered(
        self,
        env_steps: int,
        episodes: tuple[EpisodeEnd, ...],
        at_once: int,
    ) -> tuple[int, tuple[EpisodeEnd, ...]]:
        return env_steps, episodes

    def tell(self, order: int, writing: bool = False) -> int:
        self.orders.append((order, writing))
        return order if self.first else self._told.pop(0)

    def send(self, data: bytes, source: int) -> bytes:
        assert source == 0
        return data or to_bytes({"counters": {"env_steps": 60}, "resumed": False})

    def collect(self, data: bytes) -> list[bytes]:
        self.sent.append(data)
        return [data, b"of rank 1"] if self.first else []

    def pids_here(self) -> list[int]:
        return [8, 9]


class Thing(NothingUnfinished):
    def state(self) -> dict[str, Any]:
        return {"numbers": torch.arange(3)}

    def load(self, state: Any) -> None: ...


@pytest.mark.parametrize(("order", "parts"), [(STATES, {"learner", "replay"}), (STATES_WITHOUT_REPLAY, {"learner"})])
def test_the_last_checkpoint_holds_what_rank_0_asks_for(order: int, parts: set[str]) -> None:
    """A follower waits for it as long as rank 0 lives, which may have one to write first."""
    other = Two(1, (order, LEAVE))
    with FollowingRun(other, torch.device("cpu")) as run:
        run._parts = {"learner": Thing(), "replay": Thing()}
    assert other.orders == [(0, True), (0, True)]
    (sent,) = other.sent  # at once, whatever its number: all make theirs at the same time
    assert set(from_bytes(sent)) == parts


class Large(Thing):
    """A replay on a GPU for which the host has no memory."""

    def state(self) -> dict[str, Any]:
        raise MemoryError("7.1 GB of frames do not fit into the host's memory")


def test_a_follower_without_memory_for_its_replay_gives_the_rest_when_asked_again() -> None:
    other = Two(1, (STATES, STATES_WITHOUT_REPLAY, LEAVE))
    with FollowingRun(other, torch.device("cpu")) as run:
        run._parts = {"learner": Thing(), "replay": Large()}
    nothing, sent = other.sent
    assert nothing == b""
    assert set(from_bytes(sent)) == {"learner"}
    for parts in ({"learner": Large()}, {"learner": Large(), "replay": Thing()}):
        with pytest.raises(MemoryError), FollowingRun(Two(1, (STATES_WITHOUT_REPLAY,)), CPU) as run:
            run._parts = parts


def test_rank_0_has_too_little_memory_where_another_one_has() -> None:
    """It then asks all once more, without their replays."""

    class Short(Two):
        def collect(self, data: bytes) -> list[bytes]:
            return [data, b"of rank 1", b""]

    with pytest.raises(MemoryError, match="rank 2"):
        _Others(Short(0), lambda: True).state()


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_an_error_of_a_follower_whose_weights_are_no_numbers_says_so(value: float) -> None:
    expected = ZeroDivisionError if value == 1.0 else RunError
    with pytest.raises(expected) as caught, FollowingRun(Two(1), torch.device("cpu")) as run:
        run.weights.tensors = {"layer": torch.tensor([value])}
        raise ZeroDivisionError
    if expected is RunError:
        assert str(caught.value) == "A weight is no longer a finite number at env step 0, update 0."


def test_ranks_of_this_machine_are_no_neighbours_of_each_other() -> None:
    with mock.patch.object(Neighbours, "beside") as beside:
        run = FollowingRun(Two(1), torch.device("cpu"))
        run.track()
    beside.assert_called_once_with([8, 9])
    assert run.env_steps == 60


def test_replays_of_others_are_left_out_once_that_of_rank_0_is() -> None:
    """As a full disk makes it: the checkpoint is written again without."""
    company, keeps = Two(0), True
    others = _Others(company, lambda: keeps)
    assert {rank: state.numpy().tobytes() for rank, state in others.state().items()} == {"1": b"of rank 1"}
    keeps = False
    others.state()
    assert [order for order, _ in company.orders] == [STATES, STATES_WITHOUT_REPLAY]
