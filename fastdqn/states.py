"""States: what a part of a run gives to a checkpoint, and how it is resumed.

A state is a dict of tensors, numbers, text, lists and dicts. It may also hold `Later`, which is fetched while the run
continues, and `Packed`, an array that is compressed then.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import zstandard
from numpy.typing import NDArray
from torch import Tensor


class Part(Protocol):
    """A part of a run whose state its checkpoints hold."""

    def state(self) -> dict[str, Any]:
        """Return all that `load` needs; nothing in it changes when the part continues, but for what `Later` fetches."""
        ...

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        """Continue from there; return which of N environments could not, (N,), or None from a part that holds none."""
        ...

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop what is unfinished of these environments, (N,), which begin anew; with None, be as empty as a part of
        a new run, because the checkpoint has left this one out.
        """
        ...


class NothingUnfinished:
    """A part in which nothing is unfinished when an environment begins anew, and which no checkpoint leaves out."""

    def discard(self, envs: NDArray[np.bool_] | None) -> None:
        """Drop nothing."""


@dataclass(frozen=True)
class Later:
    """A value that is fetched in the writer's thread; whoever gives it makes sure that it is still there."""

    fetch: Callable[[], Any]
    abandon: Callable[[], None] = lambda: None  # called if nobody will fetch it any more


@dataclass(frozen=True)
class Packed:
    """A uint8 array that is stored compressed; `unpack` returns it."""

    array: NDArray[np.uint8]


def resume_parts(parts: Mapping[str, Part], states: Mapping[str, Mapping[str, Any]]) -> NDArray[np.bool_] | None:
    """Let parts continue from their states; one without a state is left empty.

    Returns:
        which environments, (N,), could not be continued and begin anew; None if no part holds any.
    """
    said = [part.load(states[name]) for name, part in parts.items() if name in states]
    anew = [envs for envs in said if envs is not None]
    for envs in anew:
        if envs.any():
            for part in parts.values():
                part.discard(envs)
    for name in sorted(parts.keys() - states.keys()):
        parts[name].discard(None)
    return np.concatenate(anew) if anew else None


def states_of(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return the states of parts; if one cannot be had, nobody fetches what the others have put off."""
    states: dict[str, Any] = {}
    try:
        for name, part in parts.items():
            states[name] = part.state()
    except BaseException:
        abandon(states)
        raise
    return states


def pack(array: NDArray[np.uint8]) -> dict[str, Any]:
    """Return `array` compressed, to be stored; consecutive frames differ little."""
    array = np.ascontiguousarray(array)
    packed = zstandard.ZstdCompressor(level=1).compress(array.data if array.size else b"")
    return {"shape": list(array.shape), "zstd": torch.frombuffer(bytearray(packed), dtype=torch.uint8)}


def unpack(said: Mapping[str, Any]) -> Tensor:
    """Return the array that was packed."""
    shape: list[int] = said["shape"]
    plain = bytearray(zstandard.ZstdDecompressor().decompress(said["zstd"].numpy().tobytes()))
    return torch.frombuffer(plain, dtype=torch.uint8).view(shape) if plain else torch.zeros(shape, dtype=torch.uint8)


def copied(array: NDArray[Any]) -> Tensor:
    """Return a copy of `array` to be stored."""
    return torch.tensor(array)


def on_cpu(value: Any) -> Any:
    """Return `value` with copies of its tensors, on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: on_cpu(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [on_cpu(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return tuple(on_cpu(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def set_generator(generator: torch.Generator, state: Tensor) -> None:
    """Let `generator` continue where another stood; on another kind of device it begins anew, seeded by that.

    Raises:
        TypeError: `state` is no generator's, which are bytes.
    """
    if state.dtype != torch.uint8:
        raise TypeError(f"a generator's state is of bytes, not of {state.dtype}")
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(state.numpy().tobytes()))


def fetched(value: Any) -> Any:
    """Return `value` with all that was to be fetched later."""
    if isinstance(value, Later):
        return fetched(value.fetch())
    if isinstance(value, Packed):
        return pack(value.array)
    if isinstance(value, dict):
        return {key: fetched(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, np.generic):
        return value.item()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(value, list):
        return [fetched(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return tuple(fetched(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def abandon(value: Any) -> None:
    """Tell all that was to be fetched later that it will not be."""
    if isinstance(value, Later):
        value.abandon()
    elif isinstance(value, dict):
        abandon(list(value.values()))  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list | tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            abandon(item)
