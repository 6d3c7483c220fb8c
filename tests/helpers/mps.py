"""MPS without a Mac: tensors of the CPU that count as tensors on mps.

What is asked for on mps is made on the CPU, and marked, and so is all that is computed from it. What mps cannot do is
an error here, too: a tensor of float64, an operation on tensors of both devices, autocast (as in PyTorch 2.4), and
memory that is shared with an array or another process. Kernels are the CPU's: how Metal rounds, and what it does not
have, is not tried out.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
CPU, MPS = torch.device("cpu"), torch.device("mps", 0)
CROSSING = (aten.copy_.default, aten._foreach_copy_.default)
"""Operations that may have tensors of both devices."""


def on_mps(tensor: Tensor) -> bool:
    """Tell whether a tensor counts as one on mps: the memory is marked, and so are all views of it."""
    with torch._C.DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "on_mps", False)


def _mark(tensor: Tensor, there: bool) -> None:
    if there and tensor.dtype == torch.float64:
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.")
    with torch._C.DisableTorchFunction():
        tensor.untyped_storage().on_mps = there  # type: ignore[attr-defined]


class _Kernels(TorchDispatchMode):
    """Every operation, those of a backward pass too."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        there = any(on_mps(tensor) for tensor in given)
        if there and func not in CROSSING and any(not on_mps(tensor) and tensor.dim() > 0 for tensor in given):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found mps:0 and cpu: {func}")
        result = func(*args, **kwargs)
        known = {tensor.untyped_storage()._cdata for tensor in given}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in known:
                _mark(tensor, there)
        return result


class _Calls(TorchFunctionMode):
    """What a call says of devices, both of which are the CPU in truth."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return MPS if on_mps(args[0]) else CPU
        if func is Tensor.numpy and on_mps(args[0]):
            raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if func is Tensor.share_memory_ and on_mps(args[0]):
            raise RuntimeError("_share_filename_: only available on CPU")
        if func is Tensor.cpu:
            func, kwargs["device"] = Tensor.to, CPU
        if func is Tensor.to:
            return self._to(args[0], args[1:], kwargs)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        there = torch.device(kwargs["device"]).type == "mps"
        result = func(*args, **{**kwargs, "device": CPU} if there else kwargs)
        if isinstance(result, Tensor):
            _mark(result, there)
        return result

    def _to(self, tensor: Tensor, words: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        there, moves = on_mps(tensor), False
        for word in (*words, kwargs.get("device")):
            if isinstance(word, str | torch.device):
                moves = there != (torch.device(word).type == "mps")
        words = tuple(CPU if isinstance(word, str | torch.device) else word for word in words)
        with torch._C.DisableTorchFunction():
            result = tensor.to(*words, **{**kwargs, "device": CPU} if "device" in kwargs else kwargs)
            result = result.clone() if moves else result
        _mark(result, there != moves)
        return result


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, CPU if torch.device(device).type == "mps" else device)


class _Autocast(torch.autocast):
    """As in PyTorch 2.4, which has none on mps."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        _autocast_known(device_type)
        super().__init__(device_type, *args, **kwargs)


def _autocast_known(device_type: str) -> None:
    if device_type == "mps":
        raise RuntimeError("User specified an unsupported autocast device_type 'mps'")


@contextlib.contextmanager
def mps_without_apple(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let --device mps train on the CPU, in this thread, as if it were another device.

    Yields:
        what was asked of torch.mps, call by call.
    """
    asked: list[str] = []
    importlib.import_module("torch._dynamo")  # a mode imports it, and it looks at what is replaced here
    is_enabled = torch.is_autocast_enabled
    with monkeypatch.context() as patch:
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(torch, "autocast", _Autocast)
        patch.setattr(torch, "is_autocast_enabled", lambda kind: (_autocast_known(kind), is_enabled(kind))[1])
        patch.setattr(torch.backends.mps, "is_available", lambda: True)
        patch.setattr(torch.mps, "synchronize", lambda: asked.append("synchronize"))
        patch.setattr(torch.mps, "driver_allocated_memory", lambda: (asked.append("memory"), 12_345)[1])
        with _Calls(), _Kernels():
            yield asked
