"""The weights with which a run's last games were best."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fastdqn.errors import UserError
from fastdqn.runs.folder import saving
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
        self._folder, self._path = folder, folder / FILE
        self._tensors = tensors
        self._kept: dict[str, Tensor] = {}
        self._loaded = False  # and the run has not gone on: the file may be of what it gives up then

    def look(self, stop: StopTest) -> None:
        """Keep the weights of now if the mean of 100 games has not been as high before.

        Raises:
            RunError: a file of before cannot be written.
        """
        if self._loaded:
            with saving(self._folder):
                self._go_on()
        mean = stop.mean_score if stop.whole else None
        if mean is not None and (self.mean is None or mean > self.mean):
            self.mean, self._kept = mean, {name: on_cpu(tensor) for name, tensor in self._tensors.items()}

    def save(self) -> None:
        """Write them, if there are any, and the run has gone on.

        Raises:
            RunError: they cannot be written.
        """
        if not self._loaded:
            with saving(self._folder):
                self._write()

    def state(self) -> dict[str, Any]:
        """Return the best mean and its weights, which are written, too.

        Raises:
            OSError: they cannot be.
        """
        self._go_on()
        return {"mean": self.mean, "weights": dict(self._kept)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.mean, self._kept, self._loaded = state["mean"], dict(state["weights"]), True

    def _go_on(self) -> None:
        if self._loaded:
            self._path.unlink(missing_ok=True)
        self._write()
        self._loaded = False

    def _write(self) -> None:
        if self._kept:
            write_weights(self._path, self._kept)


def read_best(run: Path) -> dict[str, Tensor]:
    """Return the best weights in a run's folder.

    Raises:
        UserError: it has kept none, or as for `read_weights`.
    """
    if not (run / FILE).is_file():
        raise UserError(f"{run} has no {FILE}; runs of sessions keep it, from when 100 games count.")
    return read_weights(run, FILE)
