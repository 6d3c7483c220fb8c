"""States as bytes: a line of JSON for what is text, numbers and containers, then the tensors, as files of safetensors
one after the other, each with its length before it.

Neither can hold code, so a stranger's bytes can be read: what they cannot be turned into is an error, and nothing else
happens. There are several of safetensors, as each is in memory a second time while it is written or read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import safetensors.torch
import torch
from torch import Tensor

_TOGETHER = 32_000_000
"""Bytes of the tensors that are written at once, but for one that is larger."""
_LENGTH = 8
"""Bytes of the length before them, the lowest first."""


def to_bytes(states: Mapping[str, Any]) -> bytes:
    """Return `states` as `in_pieces` gives them."""
    return b"".join(in_pieces(states))


def in_pieces(states: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield `states` piece by piece: nested dicts, lists and tuples of tensors on the CPU, numbers, text, true, false
    and None.

    A tensor in channels_last stays so; any other is stored as a contiguous one.

    Raises:
        TypeError: something else is in it.
    """
    tensors: list[Tensor] = []
    yield json.dumps(_told(dict(states), tensors, set())).encode() + b"\n"
    for group in _groups(tensors):
        stored = safetensors.torch.save(group)
        yield len(stored).to_bytes(_LENGTH, "little")
        yield stored


def from_bytes(data: bytes) -> dict[str, Any]:
    """Return the states that `to_bytes` made these bytes of.

    Raises:
        Exception: of any type, if it did not make them.
    """
    return from_file(io.BytesIO(data), len(data))


def from_file(file: BinaryIO, size: int) -> dict[str, Any]:
    """Return the states whose pieces are the next `size` bytes of `file`.

    Raises:
        OSError: it cannot be read.
        Exception: of any type, if they are none.
    """
    line = file.readline(size)
    left, tensors = size - len(line), dict[str, Tensor]()
    while left > 0:
        length = int.from_bytes(file.read(_LENGTH), "little")
        left -= _LENGTH + length
        if left < 0:  # looked at before that much is asked for
            raise ValueError("It ends too soon.")
        tensors |= safetensors.torch.load(file.read(length))
    states = _made(json.loads(line), tensors)
    if not isinstance(states, dict):
        raise TypeError("States are a dict.")
    return cast(dict[str, Any], states)


def _groups(tensors: Sequence[Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors, by their number, in as few groups as may be."""
    group, bytes_of_it = dict[str, Tensor](), 0
    for number, tensor in enumerate(tensors):
        if group and bytes_of_it + tensor.nbytes > _TOGETHER:
            yield group
            group, bytes_of_it = {}, 0
        group[str(number)] = tensor
        bytes_of_it += tensor.nbytes
    if group:
        yield group


def _told(value: Any, tensors: list[Tensor], places: set[int]) -> Any:
    """Return `value` as JSON knows it: a container or a tensor is a list that begins with its kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        last = value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)
        # A copy, unless the memory is its own and no more: a view would be stored with all that it is a view of, and
        # safetensors refuses two tensors in one place.
        place = value.untyped_storage()
        alone = place.data_ptr() not in places
        own = alone and value.is_contiguous() and place.nbytes() == value.nbytes
        tensors.append(value.detach() if own else value.detach().contiguous().clone())
        places.add(tensors[-1].untyped_storage().data_ptr())
        return ["tensor", len(tensors) - 1, *(["channels_last"] if last else [])]
    if isinstance(value, dict):
        items = cast(dict[Any, Any], value).items()
        return ["dict", *([_key(key), _told(item, tensors, places)] for key, item in items)]
    if isinstance(value, (list, tuple)):
        inner = cast("list[Any] | tuple[Any, ...]", value)
        return ["list" if isinstance(value, list) else "tuple", *(_told(item, tensors, places) for item in inner)]
    raise TypeError(f"A state holds a {type(value).__name__}, which no checkpoint does.")


def _made(told: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(told, list):
        if isinstance(told, dict):
            raise TypeError("A dict is a list of its items.")
        return told
    kind, *items = cast(list[Any], told)
    if kind == "tensor":
        tensor = tensors[str(items[0])]
        return tensor.contiguous(memory_format=torch.channels_last) if items[1:] == ["channels_last"] else tensor
    if kind == "dict":
        return {_key(key): _made(item, tensors) for key, item in items}
    if kind in ("list", "tuple"):
        made = [_made(item, tensors) for item in items]
        return made if kind == "list" else tuple(made)
    raise TypeError("Neither a tensor nor a container.")


def _key(key: Any) -> str | int:
    """Return the key of a dict: text, or a whole number, as an optimiser has them."""
    if not isinstance(key, (str, int)):
        raise TypeError("A key is neither text nor a whole number.")
    return key
