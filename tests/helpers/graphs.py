"""CUDA graphs without CUDA: what is recorded is done again with the same tensors and the same numbers of the host.

A CUDA graph keeps kernels with the addresses of their tensors, and the numbers that the host handed over when they were
recorded. On the CPU the same is kept here, operation by operation, and a replay does all of them again into the same
memory. So whatever would be frozen in a graph is frozen here (a learning rate that is a Python number, a tensor that
was replaced instead of overwritten), and what a graph cannot hold is an error here, too: waiting for a value, copying
from the host, random numbers of a generator that the graph was not told of. Kernels, streams and events are not tried
out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fastdqn.algorithms import descent
from fastdqn.execution import background
from fastdqn.replay import prioritized, ring

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.masked_select.default,
    aten.nonzero.default,
    aten.lift_fresh.default,  # torch.tensor(...)
}
MASKS = (torch.bool, torch.uint8)


class HostGraph(TorchDispatchMode):
    """Stands for torch.cuda.CUDAGraph. What is recorded has been done once, so that the first replay does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._generators: set[int | None] = set()
        self._done: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []
        self._fresh = True

    def register_generator_state(self, generator: torch.Generator) -> None:
        self._generators.add(_identity(generator))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        indices = args[1] if func in (aten.index.Tensor, aten.index_put_.default) else ()
        if func in WAITING or any(index is not None and index.dtype in MASKS for index in indices):
            raise RuntimeError(f"operation not permitted while a graph is recorded: {func}")
        if (
            torch.Tag.nondeterministic_seeded in func.tags
            and _identity(kwargs.get("generator")) not in self._generators
        ):
            raise RuntimeError(f"random numbers of a generator that the graph does not know: {func}")
        result = func(*args, **kwargs)
        if "empty" not in func.name():
            self._done.append((func, args, kwargs, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        if self._fresh:
            self._fresh = False
            return
        for func, args, kwargs, result in self._done:
            for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():  # neither a view nor in place
                    old.copy_(new)


def _identity(generator: Any) -> int | None:
    """Return what several Python objects for one generator have in common."""
    return None if generator is None else generator._cdata


class _Nothing:
    """Stands for a stream or an event: the host does everything in its order."""

    def wait_stream(self, other: _Nothing) -> None: ...

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


def _gather(frames: Tensor, where: Tensor, shape: tuple[int, int]) -> Tensor:
    """As on a GPU: channels are not laid out last, which OpenCV does on the CPU and no graph sees."""
    return frames.index_select(0, where.flatten()).view(len(where), -1, *shape)


def graphs_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let CUDA graphs be made of what the CPU does, for one test; scripts do not choose them by themselves."""
    empty = torch.empty

    def unpinned(*args: Any, **kwargs: Any) -> Tensor:
        return empty(*args, **{name: value for name, value in kwargs.items() if name != "pin_memory"})

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", HostGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: graph)  # it records while it is entered
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, _Nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(ring, "interleaved", _gather)
    monkeypatch.setattr(descent, "clip", torch.nn.utils.clip_grad_norm_)  # on a CPU a norm is at hand, and looked at
    monkeypatch.setattr(background, "background_on", lambda _: background.Background(1))  # no recording sees a thread
    for module in (ring, prioritized):  # steps are staged and put in place as on a GPU
        monkeypatch.setattr(module, "needs_staging", lambda _: True)
