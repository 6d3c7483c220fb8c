"""When a run writes its checkpoints, and what it leaves out of them if they do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError, shortage_of
from fastdqn.options.run import RunOptions
from fastdqn.runs.checkpoint import Checkpoints, Saved
from fastdqn.states import Part, states_of

REPLAY = "replay"
"""The part that checkpoints may leave out."""


class Checkpointing:
    """Checkpoints by the clock, by env steps, and at the end.

    If one cannot be written it is tried once more without the replay, which the later ones leave out, too.

    Args:
        run: how often, and whether with the replay.
        folder: of the run.
        about: what the header says of the run: its `script`, `game` and `config`.
        begun: env steps at which the run was resumed, 0 for a new one.
        say: prints a sentence.
    """

    def __init__(
        self, run: RunOptions, folder: Path, about: Mapping[str, Any], begun: int, say: Callable[[str], None]
    ) -> None:
        self.parts: Mapping[str, Part] = {}
        self._run = run
        self._say = say
        self._files = Checkpoints(folder, about, begun or None)
        self.keeps_replay = run.checkpoint_replay
        """Whether the next checkpoint holds the replay."""
        self._next = self._after(process.elapsed())
        self._next_env_steps = begun + (run.checkpoint_env_steps or 0)

    @property
    def writing(self) -> bool:
        """Whether one is being written now."""
        return self._files.writing

    def due(self, env_steps: int) -> bool:
        """Tell whether one is due after `env_steps` and may begin; the next one is then due later."""
        elapsed, every = process.elapsed(), self._run.checkpoint_env_steps
        by_steps = every is not None and env_steps >= self._next_env_steps
        if not self._on() or (elapsed < self._next and not by_steps) or self._files.busy:
            return False
        self._next = self._after(elapsed)
        if every is not None:
            self._next_env_steps = (env_steps // every + 1) * every
        return True

    def begin(self, env_steps: int, state: dict[str, Any]) -> None:
        """Begin a checkpoint of now; `state` is the run's own.

        Raises:
            OSError: it cannot be written.
            MemoryError, RuntimeError: there is no memory for it, without the replay either.
        """
        try:
            self._files.begin(env_steps, lambda: self._states(state))
        except (MemoryError, RuntimeError) as error:  # PyTorch's is one of the latter
            why = shortage_of(error)
            if why is None or not self._can_leave_out():
                raise
            self._leave_replay_out(str(error) if isinstance(error, MemoryError) else why)
            self._files.begin(env_steps, lambda: self._states(state))

    def ended(self, again: Callable[[], None], wait: bool = False) -> None:
        """Say what has been written; if it could not be, and there is a replay, call `again` to write it without.

        Raises:
            OSError: it cannot be written without the replay either.
        """
        try:
            self._say_saved(self._files.ended(wait))
        except OSError as error:
            if not self._can_leave_out():
                raise
            self._leave_replay_out(error.strerror or str(error))
            again()
            self._say_saved(self._files.ended(wait=True))

    def finish(self, changed: bool, write: Callable[[], None], promised: bool) -> None:
        """Wait for what is being written, and let `write` begin one of the end, unless it is there.

        Args:
            changed: whether anything has since the newest.
            write: begins a checkpoint of now.
            promised: whether one has to be there; else one that fails is said, and the run is over without it.

        Raises:
            OSError: it cannot be written.
            RunError: it cannot be made, and was promised.
        """
        self.ended(write, wait=True)
        if not self._on() or not changed:
            return
        try:
            write()
        except RunError as error:  # games that are a step ahead may fail in one that this run does not need
            if promised:
                raise
            self._say(f"no checkpoint of the end: {error}")
            return
        self.ended(write, wait=True)

    def _on(self) -> bool:
        return self._run.checkpoints and bool(self.parts)

    def _states(self, state: dict[str, Any]) -> dict[str, Any]:
        kept = {name: part for name, part in self.parts.items() if self.keeps_replay or name != REPLAY}
        return {"run": state, "parts": states_of(kept)}

    def _can_leave_out(self) -> bool:
        return self.keeps_replay and REPLAY in self.parts

    def _leave_replay_out(self, why: str) -> None:
        self.keeps_replay = False
        self._say(f"the checkpoint could not be written ({why}); checkpoints now leave the replay out")

    def _say_saved(self, saved: Saved | None) -> None:
        if saved is not None:
            self._say(
                f"checkpoint at env step {saved.env_steps:,}: {saved.size / 1e6:,.1f} MB, written in "
                f"{saved.written:.1f} s, {saved.stopped:.2f} s of them the run stood still"
            )

    def _after(self, elapsed: float) -> float:
        minutes = self._run.checkpoint_minutes
        return math.inf if minutes is None else elapsed + 60.0 * minutes
