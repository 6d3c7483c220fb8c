"""States as bytes: what is stored comes back, to the bit and the layout."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch

from fastdqn.runs import encoding
from fastdqn.runs.encoding import from_bytes, from_file, in_pieces, to_bytes


def test_numbers_text_and_containers_come_back_as_they_were() -> None:
    states: dict[str, Any] = {
        "whole": 2**127 + 1,  # as a generator of numpy has them
        "numbers": [0.1, -0.0, math.inf, True, None],
        "text": 'a "line"\nand ü',
        "tuple": (1, ("a", []), ()),
        "dict": {0: {"step": 1}, "0": 2, "": {}},
        "list": ["list", ["tensor", 0]],
    }
    found = from_bytes(to_bytes(states))
    assert found == states
    assert type(found["numbers"][3]) is bool
    assert math.copysign(1, found["numbers"][1]) == -1
    assert math.isnan(from_bytes(to_bytes({"nan": math.nan}))["nan"])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = (torch.randn(3, 5) * 2).to(dtype)
    found = from_bytes(to_bytes({"a": tensor, "again": [tensor], "view": tensor[1:, 2:], "empty": tensor[:0]}))
    for one, other in ((found["a"], tensor), (found["again"][0], tensor), (found["view"], tensor[1:, 2:])):
        assert one.dtype == dtype
        assert torch.equal(one, other)
    assert found["empty"].shape == (0, 5)
    assert from_bytes(to_bytes({"one": torch.tensor(7).to(dtype)}))["one"].shape == ()


def test_a_view_is_stored_without_what_it_is_a_view_of() -> None:
    assert len(to_bytes({"view": torch.zeros(1_000_000)[:10]})) < 1_000


def test_channels_last_stays_so() -> None:
    """Moments that are laid out otherwise than their weights make an optimiser slow."""
    tensor = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = from_bytes(to_bytes({"a": tensor, "b": tensor.contiguous()}))
    assert found["a"].stride() == tensor.stride()
    assert found["b"].is_contiguous()
    assert torch.equal(found["a"], tensor)


def test_no_more_than_a_piece_is_made_or_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of vectors that is hardly compressed would be in memory once more otherwise."""
    monkeypatch.setattr(encoding, "_TOGETHER", 10_000)
    states = {str(i): torch.randint(0, 256, (2_000 + i,), dtype=torch.uint8) for i in range(40)}
    states["large"] = torch.zeros(30_000)
    states["after"] = torch.ones(3)
    pieces = list(in_pieces(states))
    largest = [len(piece) for piece in pieces if len(piece) > 20_000]
    assert len(largest) == 1  # a tensor is one piece, however large
    assert largest[0] < 4 * 30_000 + 1_000
    asked: list[int] = []

    class File(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            asked.append(size)
            return super().read(size)

    data = b"".join(pieces)
    found = from_file(File(data), len(data))
    assert found.keys() == states.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in states.items())
    assert set(asked) <= {len(piece) for piece in pieces}


@pytest.mark.parametrize("states", [{}, {"a": 1}, {"a": torch.ones(3), "b": [torch.zeros(2)]}])
def test_bytes_that_end_too_soon_or_go_on_are_an_error(states: dict[str, Any]) -> None:
    data = to_bytes(states)
    assert from_bytes(data).keys() == states.keys()
    for wrong in (*(data[:end] for end in range(len(data) - 1)), data + b"\0", data + (2**62).to_bytes(8, "little")):
        with pytest.raises(Exception, match=r".") as caught:
            from_bytes(wrong)
        assert not isinstance(caught.value, MemoryError)
