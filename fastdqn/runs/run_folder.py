"""The folder that a run writes to: a new one, or that of the run which it resumes, as it was until it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fastdqn.errors import UserError
from fastdqn.options.run import RunOptions
from fastdqn.runs import checkpoint
from fastdqn.runs.folder import (
    OF_THE_END,
    found_after,
    hold,
    let_go,
    new_folder,
    reason_of,
    remove_unfinished,
    saving,
    write_json,
)
from fastdqn.runs.machine import environment_of
from fastdqn.runs.records import Records


class RunFolder:
    """A run's folder, which this process alone writes to until it is closed.

    Args:
        run: which run is resumed, or where new ones are made.
        game: in the name of a new folder.
        script: likewise.

    Raises:
        UserError: the run to resume cannot be resumed.
        RunError: the folder cannot be made or written to.
    """

    def __init__(self, run: RunOptions, game: str, script: str) -> None:
        self.path = run.runs_dir if run.resume is None else Path(run.resume)
        self.settled = run.resume is None
        """Whether it is that of this run, and not as it was before."""
        self.resumed: dict[str, Any] | None = None
        """The states of the checkpoint, until all parts have theirs."""
        self.lines: Mapping[str, int] = {}
        """How long the logs were at the checkpoint."""
        self._resumed_at: int | None = None
        self._config: Mapping[str, Any] = {}
        self._device = torch.device("cpu")
        with saving(self.path):
            if run.resume is None:
                self.path = new_folder(run.runs_dir, game, script)
            self._lock = hold(self.path)
        if run.resume is None:
            return
        try:  # only now: until then another process may have written a newer one
            header = checkpoint.newest(self.path, run.resume_previous)
            self._resumed_at, self.resumed = header.env_steps, checkpoint.read(header)
        except UserError:
            self.close()
            raise

    def describe(self, config: Mapping[str, Any], device: torch.device) -> None:
        """Write what the run is, and where it goes on; of a run that is resumed, once it does."""
        self._config, self._device = config, device
        remove_unfinished(self.path)
        if self.settled:
            self._describe()

    def settle(self, logs: Records) -> bool:
        """Let the files of a run that goes on be those of its checkpoint, and say what it is now; return whether what
        is given up by that had come after the checkpoint.
        """
        if self.settled:
            return False
        assert self._resumed_at is not None
        given_up = logs.longer(self.lines)
        for name in OF_THE_END:  # what it says is no longer so
            (self.path / name).unlink(missing_ok=True)
        checkpoint.give_up(self.path, self._resumed_at)
        logs.cut(self.lines)
        self._describe()
        self.settled = True
        return given_up

    def reason_before(self) -> str | None:
        """Return why the run was over before it was resumed, None for one that has gone on."""
        return None if self.settled else reason_of(self.path)

    def found_before(self) -> dict[str, Any]:
        """Return what was found of games after the end before the run was resumed, nothing for one that has gone on."""
        return {} if self.settled else found_after(self.path)

    def close(self) -> None:
        """Let others write to it."""
        let_go(self.path, self._lock)

    def _describe(self) -> None:
        write_json(self.path / "config.json", self._config)
        write_json(self.path / "environment.json", environment_of(self.path, self._device, self._resumed_at))
