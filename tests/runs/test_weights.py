"""Weights in a file: whatever is changed in it is noticed, and numbers that are not finite are refused."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch

from fastdqn.errors import UserError
from fastdqn.runs import weights
from fastdqn.runs.weights import FILE, read_weights, write_weights

WEIGHTS = {"b": torch.arange(60.0).view(3, 4, 5), "a": torch.ones(7, dtype=torch.bfloat16), "none": torch.zeros(0)}


def test_they_come_back_as_they_were(tmp_path: Path) -> None:
    write_weights(tmp_path / FILE, {**WEIGHTS, "b": WEIGHTS["b"].transpose(0, 2)})
    back = read_weights(tmp_path)
    assert back.keys() == WEIGHTS.keys()
    assert torch.equal(back["b"], WEIGHTS["b"].transpose(0, 2))
    assert torch.equal(back["a"], WEIGHTS["a"])
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_weights_that_are_stepped_meanwhile_are_those_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = torch.zeros(3)
    checksum = weights._checksum

    def then_stepped(tensors: Mapping[str, torch.Tensor]) -> int:
        found = checksum(tensors)
        shared.add_(1.0)
        return found

    monkeypatch.setattr(weights, "_checksum", then_stepped)
    write_weights(tmp_path / FILE, {"w": shared})
    monkeypatch.undo()
    assert read_weights(tmp_path)["w"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(60))
def test_a_changed_bit_is_noticed(tmp_path: Path, seed: int) -> None:
    write_weights(tmp_path / FILE, WEIGHTS)
    data = bytearray((tmp_path / FILE).read_bytes())
    rng = random.Random(seed)
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_weights(tmp_path)
    assert "\n" not in str(caught.value)


def test_names_that_are_exchanged_are_noticed(tmp_path: Path) -> None:
    """The same bytes, of tensors of the same shape."""
    write_weights(tmp_path / FILE, {"one": torch.zeros(3), "two": torch.ones(3)})
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(
        data.replace(b'"one"', b'"tmp"').replace(b'"two"', b'"one"').replace(b'"tmp"', b'"two"')
    )
    with pytest.raises(UserError, match="is damaged: its checksum is wrong"):
        read_weights(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_finite_numbers_are_refused(tmp_path: Path, value: float) -> None:
    write_weights(tmp_path / FILE, {**WEIGHTS, "a": torch.tensor([1.0, value])})
    with pytest.raises(UserError, match="has weights that are no finite numbers"):
        read_weights(tmp_path)


def test_a_file_without_a_checksum_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"is not the folder of a run that has been saved: it has no {FILE}"):
        read_weights(tmp_path)
    safetensors.torch.save_file(WEIGHTS, tmp_path / FILE)
    with pytest.raises(UserError, match="has no checksum"):
        read_weights(tmp_path)


def test_numbers_of_a_strange_type_are_refused(tmp_path: Path) -> None:
    """PyTorch cannot even say whether these are finite."""
    strange = {"a": torch.zeros(2).to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(strange, tmp_path / FILE, {"crc32": f"{weights._checksum(strange):08x}"})
    with pytest.raises(UserError, match=r"has numbers of a type that no network here has\.$"):
        read_weights(tmp_path)
