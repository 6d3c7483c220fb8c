"""The weights with which a run's last games were best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fastdqn.errors import UserError
from fastdqn.runs.limits import StopTest
from fastdqn.runs.weights import read_weights, write_weights
from fastdqn.states import NothingUnfinished, on_cpu

FILE = "best.safetensors"


class Best(NothingUnfinished):
    """Keeps a copy of the weights of when the mean of the last 100 games was highest; a part of checkpoints.

    The mean is of the games of all who play, also of those who play with other weights, as sessions that share nothing.

    Args:
        folder: of the run.
        tensors: the weights, as they change.
    """

    def __init__(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        self.mean: float | None = None
        self._path = folder / FILE
        self._tensors = tensors
        self._kept: dict[str, Tensor] = {}
        self._loaded = False  # and the file may be of what is given up now

    def look(self, stop: StopTest) -> None:
        """Keep the weights of now if the mean of 100 games has not been as high before."""
        if self._loaded:
            self._loaded = False
            self._path.unlink(missing_ok=True)
            self.save()
        mean = stop.mean_score if stop.whole else None
        if mean is not None and (self.mean is None or mean > self.mean):
            self.mean, self._kept = mean, {name: on_cpu(tensor) for name, tensor in self._tensors.items()}

    def save(self) -> None:
        """Write them, if there are any."""
        if self._kept:
            write_weights(self._path, self._kept)

    def state(self) -> dict[str, Any]:
        """Return the best mean and its weights, which are written, too."""
        self.save()
        return {"mean": self.mean, "weights": dict(self._kept)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.mean, self._kept, self._loaded = state["mean"], dict(state["weights"]), True


def read_best(run: Path) -> dict[str, Tensor]:
    """Return the best weights in a run's folder.

    Raises:
        UserError: it has kept none, or as for `read_weights`.
    """
    if not (run / FILE).is_file():
        raise UserError(f"{run} has no {FILE}; runs of 32 keep it, from when 100 games count.")
    return read_weights(run, FILE)
