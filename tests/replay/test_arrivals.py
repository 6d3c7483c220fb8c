"""What a step brings to a device, staged and put in place there, is what the host writes by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fastdqn.execution.graphs import Graphed
from fastdqn.replay import prioritized, ring
from fastdqn.replay.newest import NewestStacks
from fastdqn.replay.prioritized import PrioritizedReplay
from fastdqn.replay.returns import ReturnReplay
from fastdqn.replay.ring import FrameReplay
from fastdqn.states import abandon
from fastdqn.types import VectorStep
from tests.helpers.graphs import graphs_without_cuda
from tests.helpers.replays import CPU, GAMMA

ENVS, SIDE, ROWS = 3, 36, 40


def steps(count: int, rng: np.random.Generator) -> list[tuple[np.ndarray, VectorStep]]:
    """Steps of noise in which games end, are cut off and are reset."""
    made: list[tuple[np.ndarray, VectorStep]] = []
    reset = np.zeros(ENVS, bool)
    for _ in range(count):
        ends = rng.random((2, ENVS)) < 0.1
        frames = rng.integers(256, size=(ENVS, SIDE, SIDE), dtype=np.uint8)
        reward = rng.integers(-1, 2, size=ENVS).astype(np.float32)
        made.append((rng.integers(6, size=ENVS), VectorStep(frames, reward, ends[0], ends[1] & ~ends[0], reset, ())))
        reset = ends.any(axis=0)
    return made


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.cuda), "host"])
def staged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], torch.device]:
    """Returns where steps are staged from now on; "host" is the CPU, where they never are otherwise."""

    def device() -> torch.device:
        if request.param == "cuda":
            return torch.device("cuda")
        graphs_without_cuda(monkeypatch)
        return CPU

    return device


def returns_of(device: torch.device) -> PrioritizedReplay:
    size = (ROWS * ENVS, ENVS, (SIDE, SIDE), 4, GAMMA)
    return PrioritizedReplay(ReturnReplay(0.9, 8, None, *size, device, seed=1))


def rewards_of(device: torch.device) -> PrioritizedReplay:
    return PrioritizedReplay(FrameReplay(ROWS * ENVS, ENVS, (SIDE, SIDE), 4, 3, GAMMA, device, seed=1))


@pytest.mark.parametrize("graphed", [False, True])
@pytest.mark.parametrize("make", [returns_of, rewards_of])
def test_a_replay_holds_what_the_hosts_does(
    staged: Callable[[], torch.device], make: Callable[[torch.device], PrioritizedReplay], graphed: bool
) -> None:
    plain = make(CPU)
    device = staged()
    other = make(device)
    if graphed:
        other.frames.landing = Graphed(other.frames.land)
    first = np.zeros((ENVS, SIDE, SIDE), np.uint8)
    for replay in (plain, other):
        replay.reset(first)
    rng = np.random.default_rng(0)
    for time, (actions, step) in enumerate(steps(3 * ROWS, rng)):
        value = torch.full((ENVS,), 0.1 * time)
        for replay in (plain, other):
            replay.add(actions, step)
            if isinstance(replay.frames, ReturnReplay):
                replay.frames.values.copy_(value)
                replay.frames.note()
        if time % 7 == 0:
            mine, theirs = ({**x.frames._small(), **x.priorities._tensors()} for x in (plain, other))
            for name, tensor in mine.items():
                assert torch.allclose(tensor.float(), theirs[name].cpu().float(), atol=1e-5), (time, name)
            there = slice(min(time + 2, ROWS) * ENVS)  # the others hold nothing yet
            assert torch.equal(plain.frames._frames[there], other.frames._frames[there].cpu())
            assert int(plain.frames._head) == int(other.frames._head)
    assert plain.priorities.largest() > 0.0


@pytest.mark.parametrize("graphed", [False, True])
def test_the_newest_stacks_are_the_hosts(staged: Callable[[], torch.device], graphed: bool) -> None:
    plain = NewestStacks(ENVS, (4, SIDE, SIDE), CPU)
    device = staged()
    other = NewestStacks(ENVS, (4, SIDE, SIDE), device)
    ask = Graphed(other.stacks) if graphed else other.stacks
    rng = np.random.default_rng(0)
    for one in (plain, other):
        one.reset(np.full((ENVS, SIDE, SIDE), 9, np.uint8))
    for actions, step in steps(40, rng):
        assert torch.equal(plain.stacks(), ask().cpu())
        assert torch.equal(plain.stacks(), ask().cpu())  # asked twice
        for one in (plain, other):
            one.add(actions, step)


def test_first_frames_that_nobody_asked_for_are_seen(staged: Callable[[], torch.device]) -> None:
    """As in a run that is resumed without its replay: the games have made a step before stacks are asked for."""
    plain = NewestStacks(ENVS, (4, SIDE, SIDE), CPU)
    other = NewestStacks(ENVS, (4, SIDE, SIDE), staged())
    ((actions, step),) = steps(1, np.random.default_rng(0))
    for one in (plain, other):
        one.reset(np.full((ENVS, SIDE, SIDE), 9, np.uint8))
        one.add(actions, step)
    assert torch.equal(plain.stacks(), other.stacks().cpu())
    assert int(plain.stacks()[0, 2, 0, 0]) == 9


def test_the_newest_stacks_go_on_where_they_were(staged: Callable[[], torch.device]) -> None:
    plain = NewestStacks(ENVS, (4, SIDE, SIDE), CPU)
    device = staged()
    saved, loaded = (NewestStacks(ENVS, (4, SIDE, SIDE), device) for _ in range(2))
    rng = np.random.default_rng(0)
    saved.reset(np.full((ENVS, SIDE, SIDE), 9, np.uint8))
    for actions, step in steps(9, rng):
        saved.stacks()
        saved.add(actions, step)
    saved.stacks()
    state = saved.state()
    frames = state["frames"].fetch()
    abandon(state)
    for one in (loaded, plain):  # on a device, and where there is none
        one.load({**state, "frames": frames})
        assert torch.equal(saved.stacks().cpu(), one.stacks().cpu())
    for actions, step in steps(9, rng):
        for one in (saved, loaded, plain):
            one.add(actions, step)
        for one in (loaded, plain):
            assert torch.equal(saved.stacks().cpu(), one.stacks().cpu())


def test_the_host_stages_nothing_for_itself() -> None:
    assert not ring.needs_staging(CPU)
    assert prioritized.needs_staging(torch.device("cuda"))
