"""Other people's loggers, beside TensorBoard and the .jsonl files: imported only if they are asked for.

Both write to this machine first. Weights & Biases is offline unless its own WANDB_MODE says otherwise (`wandb sync`
uploads a run later); Trackio keeps its database at home unless its own TRACKIO_SPACE_ID names another place.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fastdqn.config import RunOptions
from fastdqn.errors import RunError, UserError


class Logger(Protocol):
    """Takes scalars as they come."""

    def log(self, values: Mapping[str, float], env_steps: int) -> None: ...

    def close(self, summary: Mapping[str, Any]) -> None:
        """Take what the run ended with; nothing is logged after it."""
        ...


class WandbLogger:
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


class TrackioLogger:
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


def check_loggers(run: RunOptions) -> None:
    """Refuse loggers that are not installed, before anything has begun.

    Raises:
        UserError: with how to install them.
    """
    for name, wanted in (("wandb", run.wandb), ("trackio", run.trackio)):
        if wanted:
            _imported(name)


def make_loggers(run: RunOptions, folder: Path, config: Mapping[str, Any]) -> list[Logger]:
    """Return the loggers that `run` asks for, ready for the run in `folder`.

    Raises:
        RunError: one of them cannot begin.
    """
    loggers: list[Logger] = []
    for name, wanted, make in (("wandb", run.wandb, WandbLogger), ("trackio", run.trackio, TrackioLogger)):
        if wanted:
            try:
                loggers.append(make(folder, run.project, config))
            except Exception as error:  # whatever a package of somebody else's raises
                raise RunError(f"--{name}: the logger could not begin: {error}.") from error
    return loggers


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"--{name} needs a package that is not installed: pip install 'fastdqn[{name}]'.") from error
