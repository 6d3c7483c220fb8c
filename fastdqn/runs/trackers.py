"""Trackers of other people's, beside TensorBoard and the .jsonl files: imported only if they are asked for.

Both write to this machine first. Weights & Biases is offline unless its own WANDB_MODE says otherwise (`wandb sync`
uploads a run later); Trackio keeps its database at home unless its own TRACKIO_SPACE_ID names another place.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fastdqn.errors import RunError, UserError


class Tracker(Protocol):
    """Takes scalars as they come."""

    def log(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def close(self, summary: Mapping[str, Any]) -> None:
        """Take what the run ended with; nothing is logged after it."""
        ...


class WandbTracker:
    """Weights & Biases."""

    def __init__(self, run: Path, project: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_MODE", "offline")
        wandb = _imported("wandb")
        settings = wandb.Settings(console="off", silent=True)
        self._run: Any = wandb.init(
            project=project,
            name=run.name,
            dir=str(run),
            config=dict(config),
            settings=settings,
            reinit="finish_previous",
        )
        self._run.define_metric("*", step_metric="env_steps")

    def log(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log({**values, "env_steps": env_steps})

    def close(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class TrackioTracker:
    """Trackio."""

    def __init__(self, run: Path, project: str, config: Mapping[str, Any]) -> None:
        self._trackio = _imported("trackio")
        self._run: Any = self._trackio.init(project=project, name=run.name, config=dict(config), resume="allow")

    def log(self, values: Mapping[str, float], env_steps: int) -> None:
        self._run.log(dict(values), step=env_steps)

    def close(self, summary: Mapping[str, Any]) -> None:
        numbers = {f"summary/{name}": value for name, value in summary.items() if isinstance(value, (int, float))}
        self._run.log(numbers)
        self._run.finish()


_TRACKERS: dict[str, type[WandbTracker] | type[TrackioTracker]] = {"wandb": WandbTracker, "trackio": TrackioTracker}


def check_trackers(wanted: Sequence[str]) -> None:
    """Refuse trackers that are not installed, before anything has begun.

    Raises:
        UserError: with how to install them.
    """
    for name in wanted:
        _imported(name)


def build_trackers(wanted: Sequence[str], project: str, folder: Path, config: Mapping[str, Any]) -> list[Tracker]:
    """Return the trackers called so, ready for the run in `folder`.

    Raises:
        RunError: one of them cannot begin.
    """
    trackers: list[Tracker] = []
    for name in wanted:
        try:
            trackers.append(_TRACKERS[name](folder, project, config))
        except Exception as error:  # whatever a package of somebody else's raises
            raise RunError(f"--{name}: the tracker could not begin: {error}.") from error
    return trackers


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--{name} needs a package that is not installed: pip install 'fastdqn[{name}]'.") from error
