"""States as bytes: what is stored comes back, to the bit and the layout."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fastdqn.runs.encoding import from_bytes, to_bytes


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
