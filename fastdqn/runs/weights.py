"""A run's weights: saved while they are finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fastdqn.errors import RunError
from fastdqn.runs.folder import write_whole


class Weights:
    """The weights of the network that plays; the last good ones where they or a loss are no numbers any more.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: Mapping[str, Tensor] | None = None
        self._path = folder / "weights.safetensors"
        self._good: dict[str, Tensor] = {}
        self._good_update = 0

    def look(self, losses: Mapping[str, float], env_steps: int, update: int) -> None:
        """Keep a copy of the weights while they are finite.

        Raises:
            RunError: they or one of `losses` are not; the last good ones are then those to save.
        """
        weights = {} if self.tensors is None else {name: t.detach().cpu() for name, t in self.tensors.items()}
        what = next((f"The {name} became {loss}" for name, loss in losses.items() if not math.isfinite(loss)), None)
        if what is None and not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
            what = "A weight is no longer a finite number"
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

    def save(self) -> None:
        """Write them, if there are any."""
        if self.tensors is not None:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
            write_whole(self._path, lambda path: safetensors.torch.save_file(tensors, path))
