"""A run's weights: saved while they are finite numbers, with a checksum, and read if they are still the same."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fastdqn.errors import RunError, UserError
from fastdqn.runs.folder import write_whole

FILE = "weights.safetensors"
UNFIT = "A weight is no longer a finite number"
_CHECKSUM = "crc32"
"""What the file's metadata call the checksum of all weights."""
_TYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
}
"""Of numbers that a network may have; not all others can be looked at for being finite."""


class Weights:
    """The weights of the network that plays; the last good ones where they or a loss are no numbers any more.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: Mapping[str, Tensor] | None = None
        self._path = folder / FILE
        self._good: dict[str, Tensor] = {}
        self._good_update = 0

    def look(self, losses: Mapping[str, float], env_steps: int, update: int) -> None:
        """Keep a copy of the weights while they are finite.

        Raises:
            RunError: they or one of `losses` are not; the last good ones are then those to save.
        """
        weights = {} if self.tensors is None else {name: t.detach().cpu() for name, t in self.tensors.items()}
        what = next((f"The {name} became {loss}" for name, loss in losses.items() if not math.isfinite(loss)), None)
        if what is None and not are_finite(weights):
            what = UNFIT
        if what is None:
            self._good = {name: tensor.clone() for name, tensor in weights.items()}
            self._good_update = update
            return
        kept = "no update was any good"
        self.tensors = self._good or None
        if self._good:
            kept = f"the weights of update {self._good_update} are kept in {self._path}"
        raise RunError(
            f"{what} at env step {env_steps}, update {update}; {kept}; a lower --learning-rate usually helps."
        )

    def unfit(self, env_steps: int, update: int) -> RunError | None:
        """Return what `look` raises, if it does.

        Raises:
            RuntimeError: the device has failed; the last good weights, which the host has, are then those to save.
        """
        try:
            self.look({}, env_steps, update)
        except RunError as error:
            return error
        except RuntimeError:
            self.tensors = self._good or None
            raise
        return None

    def save(self) -> None:
        """Write them, if there are any."""
        if self.tensors is not None:
            write_weights(self._path, self.tensors)


def are_finite(weights: Mapping[str, Tensor]) -> bool:
    """Tell whether all numbers of `weights` are finite."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write `weights` with their checksum, whole or not at all."""
    # copies: somebody else may step them meanwhile, and the checksum is of what is written
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in weights.items()}
    data = safetensors.torch.save(tensors, {_CHECKSUM: f"{_checksum(tensors):08x}"})
    write_whole(path, lambda unfinished: unfinished.write_bytes(data))


def read_weights(run: Path, name: str = FILE) -> dict[str, Tensor]:
    """Return the weights in a run's folder.

    Args:
        run: the folder.
        name: of the file in it.

    Raises:
        UserError: there are none, the file is damaged, or they are no finite numbers, or of a strange type.
    """
    path = run / name
    if not path.is_file():
        raise UserError(f"{run} is not the folder of a run that has been saved: it has no {name}.")
    try:
        with path.open("rb"):  # which says why, where it may not be read
            pass
        opened: Any = safetensors.safe_open(path, framework="pt", device="cpu")
        with opened as file:
            about: dict[str, str] = file.metadata() or {}
            weights: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no dict
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        named = "its folder has a name that is no text" if isinstance(error, UnicodeEncodeError) else None
        why = named or (isinstance(error, OSError) and error.strerror) or "it is cut short, or no file of weights"
        raise UserError(f"The weights of the run {run} cannot be read from {name}: {why}.") from error
    if not {tensor.dtype for tensor in weights.values()} <= _TYPES:
        raise UserError(f"The {name} of the run {run} has numbers of a type that no network here has.")
    said = about.get(_CHECKSUM)
    if said is None:
        raise UserError(f"The {name} of the run {run} has no checksum: it is damaged, or an older fastdqn wrote it.")
    if said != f"{_checksum(weights):08x}":
        raise UserError(f"The {name} of the run {run} is damaged: its checksum is wrong.")
    if not are_finite(weights):
        raise UserError(f"The {name} of the run {run} has weights that are no finite numbers.")
    return weights


def checksum_of(run: Path) -> str | None:
    """Return the checksum that the weights in a run's folder say of themselves; None where there are none."""
    with contextlib.suppress(OSError, ValueError, safetensors.SafetensorError):
        opened: Any = safetensors.safe_open(run / FILE, framework="pt", device="cpu")
        with opened as file:
            about: dict[str, str] = file.metadata() or {}
            return about.get(_CHECKSUM)
    return None


def _checksum(weights: Mapping[str, Tensor]) -> int:
    """Return the CRC-32 of names, types, shapes and values, in the order of the names."""
    found = 0
    for name in sorted(weights):
        tensor = weights[name]
        found = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode(), found)
        found = zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data, found)
    return found
