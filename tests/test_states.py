"""The contract of parts: what continues from a checkpoint, what is told to discard, and what begins empty."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastdqn.algorithms.exploration import VectorEpsilonGreedy
from fastdqn.states import Later, NothingUnfinished, abandon, resume_parts, set_generator
from tests.helpers.checkpoints import through_a_file
from tests.helpers.learners import learner_of, random_batch


class Noted:
    """A part that notes what it is told; its environments, if it has any, begin anew where `anew` says so."""

    def __init__(self, log: list[tuple[Any, ...]], name: str, anew: list[bool] | None = None) -> None:
        self.log, self.name, self.anew = log, name, anew

    def state(self) -> dict[str, Any]:
        return {"of": self.name}

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        assert state == {"of": self.name}
        self.log.append((self.name, "load"))
        return None if self.anew is None else np.array(self.anew)

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        self.log.append((self.name, "discard", None if envs is None else envs.tolist()))


def resumed(anew: dict[str, list[bool] | None], saved: tuple[str, ...]) -> tuple[list[tuple[Any, ...]], int | None]:
    """Return what parts were told when those in `saved` were resumed, and how many environments are said to be lost."""
    log: list[tuple[Any, ...]] = []
    parts = {name: Noted(log, name, envs) for name, envs in anew.items()}
    lost = resume_parts(parts, {name: parts[name].state() for name in saved})
    return log, None if lost is None else int(lost.sum())


LOADED = [("learner", "load"), ("games", "load"), ("replay", "load")]
ALL = ("learner", "games", "replay")


def test_every_part_is_told_of_environments_that_begin_anew() -> None:
    """Those that were loaded before the games, too, and the games themselves."""
    envs = [False, True, True]
    log, lost = resumed({"learner": None, "games": envs, "replay": None}, ALL)
    assert log == [*LOADED, *[(name, "discard", envs) for name in ALL]]
    assert lost == 2


def test_no_part_is_told_anything_where_all_continue() -> None:
    log, lost = resumed({"learner": None, "games": [False] * 3, "replay": None}, ALL)
    assert log == LOADED
    assert lost == 0


def test_without_environments_there_is_nothing_to_discard() -> None:
    log, lost = resumed(dict.fromkeys(ALL), ALL)
    assert log == LOADED
    assert lost is None


def test_a_part_that_the_checkpoint_lacks_begins_empty_once_the_others_are_there() -> None:
    """A replay begins with the frames of games that have been loaded."""
    log, lost = resumed({"replay": None, "learner": None, "games": [False, False]}, ("learner", "games"))
    assert log == [("learner", "load"), ("games", "load"), ("replay", "discard", None)]
    assert lost == 0
    log, lost = resumed({"replay": None, "learner": None, "games": [False, True]}, ("learner", "games"))
    assert log[-1] == ("replay", "discard", None)
    assert log.count(("replay", "discard", None)) == 1
    assert ("learner", "discard", [False, True]) in log
    assert lost == 1


def test_the_environments_of_several_parts_are_all_told() -> None:
    log, lost = resumed({"games": [True, False], "more": [False, True]}, ("games", "more"))
    told = [line[2] for line in log if line[:2] == ("games", "discard")]
    assert told == [[True, False], [False, True]]
    assert lost == 2


def test_a_part_with_nothing_unfinished_drops_nothing() -> None:
    class Counter(NothingUnfinished):
        count = 3

    part = Counter()
    part.discard(np.array([True]))
    part.discard(None)
    assert part.count == 3


@pytest.mark.parametrize("variant", ["dqn", "rainbow"])
def test_a_learner_resumes(tmp_path: Path, variant: str) -> None:
    learner, again = learner_of(variant), learner_of(variant)
    for _ in range(3):
        learner.update(random_batch(8))
    learner.sync_target()
    learner.set_learning_rate(3e-4)
    learner.update(random_batch(8))
    again.load(through_a_file(tmp_path, learner))
    for _ in range(3):
        batch = random_batch(8)
        left, right = learner.update(batch), again.update(batch)
        assert left.scalars.keys() == right.scalars.keys() == {"loss", "mean_q"}
        assert all(torch.equal(value, right.scalars[name]) for name, value in left.scalars.items())
        assert torch.equal(left.priority, right.priority)
        assert torch.equal(learner.act(batch.obs), again.act(batch.obs))
    weights = again.network.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in learner.network.state_dict().items())


def test_a_saved_learner_is_a_copy() -> None:
    learner = learner_of("dqn")
    learner.update(random_batch(8))
    state = learner.state()
    name = next(iter(state["network"]))
    first = state["network"][name].clone()
    moment = state["optimizer"]["state"][0]["exp_avg"].clone()
    learner.update(random_batch(8))
    assert torch.equal(state["network"][name], first)
    assert torch.equal(state["optimizer"]["state"][0]["exp_avg"], moment)
    assert not torch.equal(learner.network.state_dict()[name], first)


def test_a_policy_resumes(tmp_path: Path) -> None:
    policies = [VectorEpsilonGreedy(lambda: np.zeros(3, np.int64), 6, np.random.default_rng(s)) for s in (1, 2)]
    epsilon = np.full(3, 0.5)
    for _ in range(10):
        policies[0].act(epsilon)
    policies[1].load(through_a_file(tmp_path, policies[0]))
    for _ in range(20):
        np.testing.assert_array_equal(policies[0].act(epsilon), policies[1].act(epsilon))


def test_a_generator_of_another_device_begins_anew() -> None:
    a, b, c = (torch.Generator().manual_seed(seed) for seed in (1, 2, 3))
    set_generator(b, a.get_state())
    assert torch.equal(torch.rand(3, generator=a), torch.rand(3, generator=b))
    for generator in (b, c):
        set_generator(generator, torch.arange(16, dtype=torch.uint8))  # as long as a CUDA generator's
    assert torch.equal(torch.rand(3, generator=b), torch.rand(3, generator=c))
    with pytest.raises(TypeError, match=r"of bytes, not of torch.float32"):
        set_generator(a, torch.zeros(3))


def test_what_is_put_off_anywhere_in_a_state_is_abandoned() -> None:
    """As it would be fetched anywhere: a replay whose frames nobody will fetch waits for that no longer."""
    abandoned: list[str] = []

    def later(name: str) -> Later:
        return Later(dict, lambda: abandoned.append(name))

    abandon({"a": later("a"), "b": [1, later("b"), {"c": (later("c"), 2.0)}]})
    assert abandoned == ["a", "b", "c"]
