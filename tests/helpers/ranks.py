"""Two ranks, one of them this process: what both do, and what the other process imports."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch

from fastdqn.algorithms.distributions import DiagonalGaussian
from fastdqn.execution.exchange import dist
from fastdqn.execution.ranks import Averaged, Ranks, checksum
from fastdqn.execution.starting import start, starter
from fastdqn.options.ranks import RanksOptions
from fastdqn.seam import Descent, Group
from fastdqn.types import Batch, EpisodeEnd
from tests.helpers.learners import random_batch
from tests.helpers.sessions import a2c, control_batch, dqn, gaussian_samples, ppo, ppo_samples, sac, samples

WORLD = 2
SEVERAL = 3
"""Updates after which learners are compared."""


def environment(rank: int, port: int, world: int = WORLD) -> dict[str, str]:
    """Return what torchrun says to a rank; its store is at `port`."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def both(work: Callable[[Ranks], Any], by_gloo: bool = False) -> list[Any]:
    """Return what `work`, importable, returns in each of two ranks; rank 0 is this process.

    Args:
        by_gloo: exchanged as between machines.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = starter().Process(target=_rank, args=(1, store.port, work, by_gloo), daemon=True)
    start(other)
    try:
        return _rank(0, store.port, work, by_gloo)
    finally:
        other.join(10.0)
        other.kill()


def _rank(rank: int, port: int, work: Callable[[Ranks], Any], by_gloo: bool) -> list[Any]:
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment(rank, port)))
        if by_gloo:
            stack.enter_context(mock.patch("fastdqn.execution.exchange.network_here", return_value=0))
        ranks = stack.enter_context(Ranks(RanksOptions(WORLD, rank_timeout=60.0)))
        own = pickle.dumps(work(ranks))
        return [pickle.loads(ranks.send(own, source)) for source in range(WORLD)]


class ClipFirst(Averaged):
    """The control: every rank clips its own gradient, and the clipped ones are averaged."""

    def step(self, group: Group) -> None:
        if group.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(group.parameters, group.max_norm)
        super().step(group._replace(max_norm=None))


def parts(batch: Any, count: int) -> list[Any]:
    """Return `batch` in parts of the same size."""
    size = len(batch.action) // count
    return [
        type(batch)._make(None if one is None else one[i * size : (i + 1) * size] for one in batch)
        for i in range(count)
    ]


def learners(descent: Callable[[], Descent | None]) -> Iterator[tuple[str, Any, Any]]:
    """Yield kinds of learners, each of which steps by a `descent()` of its own, or alone, and batches for them, whose
    gradients are above the clip.
    """
    yield "sac", sac(1e-3, descent()), control_batch()
    for kind, made, batch in (
        ("a2c", a2c(), loud(samples(0))),
        ("ppo", ppo(normalise=False), loud(ppo_samples(0))),
        ("ppo_on_vectors", ppo(False, DiagonalGaussian), loud(gaussian_samples(0))),
        ("dqn", dqn(), random_batch(4)),
    ):
        made.descent = descent() or made.descent
        yield kind, made, batch


def loud(batch: Any) -> Any:
    """Return `batch` with targets whose gradients are above the clip, and of the second half smaller ones."""
    scale = torch.where(torch.arange(len(batch.action)) < len(batch.action) // 2, 100.0, 1.0)
    return batch._replace(target=batch.target * scale)


def weights(learner: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in learner.tensors().items()}


def everything(ranks: Ranks) -> dict[str, Any]:
    """What both ranks do in `test_ranks`, so that they start once."""
    found: dict[str, Any] = {"on_one_machine": ranks.on_one_machine}
    for name, descent in (("joint", Averaged), ("clip_first", ClipFirst)):
        for kind, learner, batch in learners(partial(descent, ranks)):
            if kind == "sac":
                share_noise(learner, ranks.rank, len(batch.action))
            learner.update(parts(batch, WORLD)[ranks.rank])
            found[f"{name}_{kind}"] = weights(learner)
    found["no_gradient"] = _without_gradient(ranks)
    found["layouts"] = [_layouts(ranks, [unlike and not ranks.first, True]) for unlike in (False, True)]
    found["equal"] = _equal_after_updates(ranks)
    found["begun"] = _begin(ranks)
    found["drift"] = _drift(ranks)
    found["drift_of_moments"] = _drift(ranks, of_moments=True)
    with mock.patch.object(dist, "is_nccl_available", return_value=ranks.first):
        found["unlike_builds"] = ranks.begin(sac())
    found["mean"] = float(Averaged(ranks).mean(torch.tensor(3.0 * ranks.rank)))
    found["early_stop"] = _stop_early(ranks)
    rows = ((2,), (1, 3))[ranks.rank]
    ends = tuple(EpisodeEnd(10.0 * ranks.rank + i, 5, i == 1, i, row) for i, row in enumerate(rows))
    found["gathered"] = ranks.gathered(7 + ranks.rank, ends, 4)
    with mock.patch("fastdqn.execution.exchange.CHUNK", 5):
        found["sent"] = [ranks.send(f"of rank {ranks.rank}".encode(), source) for source in range(WORLD)]
        found["collected"] = ranks.collect(b"" if ranks.first else b"a longer one of rank 1")
    found["told"] = ranks.tell(5 + ranks.rank)
    found["waited"] = _wait_for_rank_0(ranks)
    found["pids"] = (os.getpid(), ranks.pids_here())
    return found


def _wait_for_rank_0(ranks: Ranks) -> float:
    before = ranks.waited
    if ranks.first:
        time.sleep(0.3)
    ranks.gather([0.0])
    return ranks.waited - before


def share_noise(learner: Any, rank: int, size: int) -> None:
    """Let a half of a batch be drawn for as it is within the whole."""
    draw = torch.randn

    def randn(shape: Any, **how: Any) -> torch.Tensor:
        whole = draw((shape[0], size, *shape[2:]), **how)
        return whole[:, rank * shape[1] : (rank + 1) * shape[1]]

    update = learner.update

    def updated(batch: Batch) -> Any:
        with mock.patch("torch.randn", randn):
            return update(batch)

    learner.update = updated


def _without_gradient(ranks: Ranks) -> list[float]:
    """A parameter has a gradient of 4 on rank 0 and none on rank 1."""
    one, two = (torch.zeros(1, requires_grad=True) for _ in range(2))
    one.grad = torch.tensor([2.0])
    if ranks.first:
        two.grad = torch.tensor([4.0])
    Averaged(ranks).step(Group("toy", [one, two], torch.optim.SGD([one, two], lr=1.0)))
    return [float(one.detach()), float(two.detach())]


def _layouts(ranks: Ranks, channels_last: list[bool]) -> list[float]:
    """Weights of which some are laid out with channels last step by a gradient; return how far off they are then."""
    kinds = [torch.channels_last if last else torch.contiguous_format for last in channels_last]
    weights = [torch.zeros(2, 3, 4, 5).to(memory_format=kind).requires_grad_() for kind in kinds]
    gradient = torch.arange(120.0).view(2, 3, 4, 5)
    for one in weights:
        one.grad = torch.empty_like(one).copy_(gradient + 2.0 * ranks.rank)
    Averaged(ranks).step(Group("toy", weights, torch.optim.Adam(weights, lr=1.0, eps=1e20, fused=True)))
    # so large an epsilon leaves a step in the direction of the gradient, as in stochastic gradient descent
    return [float((one.detach() * 1e20 + gradient + 1.0).abs().max()) for one in weights]


def _equal_after_updates(ranks: Ranks) -> dict[str, list[int]]:
    """Checksums after updates on other data in each rank; the second of what one rank alone would have."""
    found: dict[str, list[int]] = {}
    for (kind, together, _), (_, alone, _) in zip(
        learners(lambda: Averaged(ranks)), learners(lambda: None), strict=True
    ):
        for i in range(SEVERAL):
            batch = _batch(kind, 10 * ranks.rank + i)
            for learner in (together, alone):
                learner.update(batch)
        found[kind] = [checksum(together), checksum(alone)]
    return found


def _batch(kind: str, seed: int) -> Any:
    if kind == "sac":
        return control_batch(seed)
    if kind == "dqn":
        return random_batch(4, seed=seed)
    return {"a2c": samples, "ppo": ppo_samples, "ppo_on_vectors": gaussian_samples}[kind](seed)


def moments(learner: Any) -> list[torch.Tensor]:
    """Return all of Adam's state."""
    return [
        value.detach().clone()
        for group in learner.groups()
        for state in group.optimizer.state_dict()["state"].values()
        for value in state.values()
    ]


def _begin(ranks: Ranks) -> list[Any]:
    """Rank 0 resumes after three updates, rank 1 is new, with other weights and another learning rate."""
    learner = sac()
    for i in range(SEVERAL if ranks.first else 0):
        learner.update(control_batch(i))
    if not ranks.first:
        for tensor in learner.tensors().values():
            tensor.detach().add_(0.5)
        learner.groups()[1].optimizer.param_groups[0]["lr"] = 7.0
    ranks.begin(learner)
    rates = [group.optimizer.param_groups[0]["lr"] for group in learner.groups()]
    begun = [weights(learner), moments(learner), rates]
    learner.noise.manual_seed(3)
    learner.update(control_batch(9))
    return [*begun, checksum(learner)]


def _drift(ranks: Ranks, of_moments: bool = False) -> str:
    """A single bit of one target differs, or of one of Adam's moments."""
    learner = sac()
    learner.update(control_batch(0))
    ranks.begin(learner)
    if not ranks.first:
        drifts = next(tensor for name, tensor in learner.tensors().items() if name.startswith("target."))
        if of_moments:
            drifts = next(iter(learner.groups()[1].optimizer.state.values()))["exp_avg_sq"]
        drifts.view(-1).view(torch.int32)[0] ^= 1
    try:
        ranks.check()
    except Exception as error:
        return str(error)
    return "nothing"


def _stop_early(ranks: Ranks) -> list[int]:
    """Batches until the mean divergence is above a limit, and until each rank's own would be."""
    divergences = [0.1 * i * (1 + 2 * ranks.rank) for i in range(50)]
    descent = Averaged(ranks)
    together = next(i for i, one in enumerate(divergences) if float(descent.mean(torch.tensor(one))) > 1.0)
    return [together, next(i for i, one in enumerate(divergences) if one > 1.0)]
