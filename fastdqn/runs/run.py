"""What surrounds a training loop: counters, the end of the run, logs, progress and the summary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import torch
from torch import Tensor

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import plain
from fastdqn.options.run import RunSettings
from fastdqn.runs import checkpoint
from fastdqn.runs.checkpoint import understood
from fastdqn.runs.checkpointing import REPLAY, Checkpointing
from fastdqn.runs.counters import Counters
from fastdqn.runs.folder import (
    FORMAT,
    OF_THE_END,
    found_after,
    hold,
    let_go,
    new_folder,
    reason_of,
    remove_unfinished,
    saving,
    version,
    write_json,
)
from fastdqn.runs.limits import Limits, StopTest
from fastdqn.runs.machine import ResidentMemory, environment_of, peak_device_bytes
from fastdqn.runs.neighbours import Neighbours
from fastdqn.runs.progress import Progress, clock, ending
from fastdqn.runs.records import Records
from fastdqn.runs.stopwatch import Stopwatch
from fastdqn.runs.trackers import build_trackers, check_trackers
from fastdqn.runs.weights import Weights
from fastdqn.schedules import updates_due
from fastdqn.states import Part, resume_parts
from fastdqn.types import EpisodeEnd, Histogram, PlayedStep, VectorStep

RECORD_SECONDS, MOST_RECORD_SECONDS = 1.0, 60.0
"""The shortest and the longest time between two records in speed.jsonl; in between runs write about seven hundred
each time they double."""

_LIMITS = {"solved": "--stop-score", "max-env-steps": "--max-env-steps", "max-minutes": "--max-minutes"}
"""What to raise, by the reason why a run was over."""


class Run:
    """One training run, as a context manager; its methods are what a script's loop calls.

    Args:
        script: path of the script, whose name the folder and the summary take.
        options: all options, resolved; a dataclass of groups.
        device: where the learner is.
        wrappers: how the game is presented: "classic", "opencv", "vector", or a word of the script's own.
        notes: lines to print at the start, say how the game is presented.
        progress: which of the values and metrics the progress line shows, and in which format.
        warm_up: env steps before the first update.

    Raises:
        UserError: the run to resume cannot be resumed, or a tracker is not installed.
        RunError: the folder cannot be made or written to.
    """

    def __init__(
        self,
        script: str,
        options: RunSettings,
        device: torch.device,
        wrappers: str,
        notes: tuple[str, ...] = (),
        progress: Mapping[str, str] | None = None,
        warm_up: int = 0,
    ) -> None:
        process.begin_run()
        self.script = Path(script).stem
        self.options = options.run
        self.game = options.game.name
        self.device = device
        self.stop = StopTest(self._limits())
        self.reason: str | None = None
        self.begun = 0
        """Env steps that other processes had played when this one resumed the run."""
        self.counters = Counters()
        self.timed = Stopwatch(device)
        self._lag: int | None = None
        self._metrics: Mapping[str, Tensor] = {}
        self._first_update_here: float | None = None
        this = psutil.Process()
        self._memory = ResidentMemory(this)
        self._progress = Progress(self.counters, self.stop, progress or {}, warm_up, options.run.log_seconds)
        self._next_record = 0.0
        self.neighbours = Neighbours(this, self._progress.say)
        self._notes = notes
        trackers = [name for name, on in (("wandb", options.run.wandb), ("trackio", options.run.trackio)) if on]
        check_trackers(trackers)
        self.folder = options.run.runs_dir
        self._resumed: dict[str, Any] | None = None
        self._settled = options.run.resume is None  # whether the folder is that of this run, and not as it was before
        self._lines: dict[str, int] = {}  # how long the logs were at the checkpoint
        self._changed = True  # since the newest checkpoint
        if options.run.resume is not None:
            self.folder = Path(options.run.resume)
            with saving(self.folder):
                self._lock = hold(self.folder)
            try:  # only now: until then another process may have written a newer one
                self._resumed = checkpoint.read(checkpoint.newest(self.folder, options.run.resume_previous))
                self._load(self._resumed)
            except UserError:
                let_go(self.folder, self._lock)
                raise
        config = {"format": FORMAT, "version": version(), "script": self.script, "wrappers": wrappers}
        config |= plain(options)
        with saving(self.folder):
            if self._resumed is None:
                self.folder = new_folder(options.run.runs_dir, self.game, self.script)
                self._lock = hold(self.folder)
            remove_unfinished(self.folder)
            self._config = config
            if self._settled:
                self._describe()
            built = build_trackers(trackers, options.run.project, self.folder, config)
            self._logs = Records(self.folder, built, self._progress.say, self.begun)
        self.weights = Weights(self.folder)
        about = {"script": self.script, "game": self.game, "config": config}
        self._checkpointing = Checkpointing(options.run, self.folder, about, self.begun, self._progress.say)

    def __enter__(self) -> Run:
        self._running = process.running()
        self._running.__enter__()
        for note in (*self._notes, f"run folder {self.folder}"):
            self._progress.say(note)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        unfit: RunError | None = None
        try:
            self._progress.stop()
            if error is None:
                self._finish()
            else:
                self.reason = "failed"
                # What can be kept is kept, which a device that has failed refuses; the first error is the one to show,
                # unless the weights say why it came.
                with contextlib.suppress(RuntimeError):
                    unfit = self.weights.unfit(self.env_steps, self.updates)
                with contextlib.suppress(RunError, RuntimeError, MemoryError):
                    self._save()
                with contextlib.suppress(OSError):
                    self._checkpointing.ended(lambda: None, wait=True)
        finally:
            self._checkpointing.parts = {}  # its games end, before others are played with what it learnt
            try:
                self._logs.close(self.summary())
            finally:
                let_go(self.folder, self._lock)
                self._running.__exit__(kind, error, trace)
        if unfit is not None and isinstance(error, Exception):
            raise unfit from error

    @property
    def env_steps(self) -> int:
        """Env steps so far, those of the processes before this one too."""
        return self.counters.env_steps

    @property
    def updates(self) -> int:
        """Updates so far, likewise."""
        return self.counters.updates

    def track(self, **parts: Part) -> None:
        """Name everything that changes while the run continues, for checkpoints.

        In a resumed run all parts now continue from the checkpoint. Environments that could not be continued begin
        anew: every part is told to discard what was unfinished of them. A part that the checkpoint lacks is left empty.
        Its files stay as they are until it goes on.
        """
        self._checkpointing.parts = parts
        if self._resumed is None:
            return
        with understood(self.folder):
            states: dict[str, Any] = self._resumed["parts"]
            stop = {"stop": self.stop}
            lost = resume_parts({**parts, **stop}, {**states, "stop": self._resumed["run"]["stop"]})
            self._lines = {name: int(size) for name, size in self._resumed["run"]["lines"].items()}
        if REPLAY in parts.keys() - states.keys():
            self.counters.discarded_at = self.env_steps
        with saving(self.folder):
            self._logs.check(self._lines)
        self._resumed = None
        said = "the games begin anew" if lost is None else "the games continue where they were"
        said = f"{int(lost.sum())} games begin anew" if lost is not None and lost.any() else said
        self._progress.say(
            f"resumed at env step {self.env_steps:,}, update {self.updates:,}, after {clock(process.elapsed())}; {said}"
        )

    def due(self, every: int, initial: int = 0) -> range:
        """Return the env steps of the newest step at which something is due: one every `every` env steps, from
        `initial` on, counted from where parts were last left empty.
        """
        return updates_due(self.counters.before, self.env_steps, every, initial + self.counters.discarded_at)

    def played(self, played: PlayedStep, **values: float) -> None:
        """Count one env step and log the games that finished in it, and the script's values of the step."""
        self.played_many(1, played.episodes, 1, **values)

    def played_vector(self, step: VectorStep, policy_lag: int = 0, **values: float) -> None:
        """Count one step of N games; games that were reset in it made no env step.

        Args:
            step: what came of it.
            policy_lag: updates made since the actions were chosen.
        """
        self._lag, games = policy_lag, len(step.reset)
        with self.timed("logging"):
            self.played_many(games - int(step.reset.sum()), step.episodes, games, **values)

    def played_many(
        self,
        env_steps: int,
        episodes: tuple[EpisodeEnd, ...],
        at_once: int,
        of_games: Mapping[str, int] = {},
        /,
        **values: float,
    ) -> None:
        """Count env steps of `at_once` games, and log those that finished in them, of which `of_games` says more."""
        if not self._settled:
            with saving(self.folder):
                self._settle()
        self._changed = True
        self.stop.play(at_once)
        self.counters.stepped(env_steps, values)
        for episode in episodes:
            began = self.stop.add(episode.score, episode.place)
            with saving(self.folder):
                self._logs.episode(self.counters, episode, self.stop, began, {**values, **of_games})
        if episodes:
            with saving(self.folder):
                self._logs.scores([one.score for one in episodes], self.stop.mean_score, self.env_steps)
        now = time.perf_counter()
        if now >= self._next_record:
            self._record(now)
        self._progress.show(now)

    def updated(self, metrics: Mapping[str, Tensor], samples: int) -> None:
        """Count one update on so many samples. Its metrics, () each, stay on the device until the next record."""
        self._changed = True
        self.counters.updated(samples)
        self._metrics = metrics
        if self._first_update_here is None:
            self._first_update_here = process.elapsed()
            self._next_record = 0.0  # a record right after the first update
            self.timed.begin()
        if self.reason is not None:  # of a thread that was still to finish it: no step after it records that
            self._record(time.perf_counter())

    def report(self, scalars: Mapping[str, float], histograms: Mapping[str, Histogram] | None = None) -> None:
        """Write what is inside the learner to TensorBoard, and the scalars to reports.jsonl."""
        with saving(self.folder):
            self._logs.report(scalars, histograms or {}, self.env_steps)

    def over(self) -> bool:
        """Tell whether the run is over: solved, at a limit, or stopped by a signal."""
        return self.ended_by(self.stop.reason(self.env_steps))

    def ended_by(self, reason: str | None) -> bool:
        """Tell whether the run is over when somebody else (a player process) keeps its stop test.

        To be called where a checkpoint may be taken: between two rounds of the loop.
        """
        if self.reason is not None:
            return True
        if self._is_as_resumed():  # it may have been over already
            reason = reason or self.stop.reason(self.env_steps)
        self.neighbours.look()
        seconds, began = self.options.train_seconds, self._first_update_here
        if reason is not None:
            self.reason = reason
        elif process.stop_signal():
            self.reason = "interrupted"
        elif seconds is not None and began is not None and process.elapsed() - began >= seconds:
            self.reason = "train-seconds"
        if self.reason is None:
            with saving(self.folder):
                self._settle()
                self._checkpointing.ended(self._checkpoint)
            if self._checkpointing.due(self.env_steps):
                self._record(time.perf_counter())  # which ends a run whose loss or weights are no numbers any more
                with saving(self.folder):
                    self._checkpoint()
            return False
        if not self._is_as_resumed():
            self._record(time.perf_counter())
        return True

    def _is_as_resumed(self) -> bool:
        """Tell whether the run was resumed and nothing has been played since."""
        return self.env_steps == self.begun > 0

    def _record(self, now: float) -> None:
        """Write the counters; the only place that waits for the device."""
        elapsed = process.elapsed()
        self._next_record = now + min(max(RECORD_SECONDS, elapsed / 1000.0), MOST_RECORD_SECONDS)
        metrics = {name: float(value) for name, value in self._metrics.items()}
        if metrics:
            losses = {name: value for name, value in metrics.items() if name.startswith("loss")}
            self.weights.look(losses, self.env_steps, self.updates)
        counters = self.counters
        counters.rss, counters.neighbours = self._memory.bytes(), self.neighbours.cores
        counters.peak_rss = max(counters.peak_rss, counters.rss)
        speed = counters.record(elapsed)
        self._progress.newest(counters.recent_speed, metrics)
        with saving(self.folder):
            self._logs.speed(counters, elapsed, speed, metrics, self._lag)

    def _checkpoint(self) -> None:
        """Begin a checkpoint of now, and save the weights of the same moment: whoever steps them stands until then."""
        self._logs.keep()
        self._changed = False
        self._checkpointing.begin(self.env_steps, self._state())
        self.weights.save()

    def _state(self) -> dict[str, Any]:
        counts = {"counters": self.counters.state(), "stop": self.stop.state(), "elapsed": process.elapsed()}
        return {**counts, "lines": self._logs.sizes()}

    def _load(self, states: Mapping[str, Any]) -> None:
        """Have the counters of a checkpoint."""
        with understood(self.folder):
            state = states["run"]
            self.counters.load(state["counters"])
            process.add_elapsed(float(state["elapsed"]))
        self.begun = self.env_steps
        self.stop.limits = self._limits()

    def _limits(self) -> Limits:
        run, start = self.options, time.monotonic() - process.elapsed()
        deadline = None if run.max_minutes is None else start + 60.0 * run.max_minutes
        return Limits(run.stop_score, run.max_env_steps, deadline)

    def _describe(self) -> None:
        """Write what the run is, and where it goes on."""
        write_json(self.folder / "config.json", self._config)
        resumed_at = self.begun if self.options.resume else None
        write_json(self.folder / "environment.json", environment_of(self.folder, self.device, resumed_at))

    def _settle(self) -> bool:
        """Let the files of a run that goes on be those of its checkpoint, and say what it is now; return whether what
        is given up by that had come after the checkpoint.
        """
        if self._settled:
            return False
        given_up = self._logs.longer(self._lines)
        for name in OF_THE_END:  # what it says is no longer so
            (self.folder / name).unlink(missing_ok=True)
        checkpoint.give_up(self.folder, self.begun)
        self._logs.cut(self._lines)
        self._describe()
        if given_up:
            self.weights.save()
        self._settled = True
        return given_up

    def _finish(self) -> None:
        before = None if self._settled else reason_of(self.folder)
        if not self._settled and self.reason == "interrupted":
            self._progress.say(f"stopped at env step {self.env_steps:,}, where it was resumed: nothing was played")
            return
        solved_now = self.reason == "solved" != before  # by another stop score
        if before not in (None, "interrupted", "failed") and not solved_now:
            said = f"nothing to do: the run was over ({self.reason}) after {self.env_steps:,} env steps"
            self._progress.say(f"{said}; raise {_LIMITS.get(str(self.reason), 'its limits')} to continue")
            return
        with saving(self.folder):
            examined = {} if self._settled else found_after(self.folder)
            if self._settle():
                examined = {}  # of other weights
        summary = self._save(examined)
        with saving(self.folder):
            promised = self.reason == "interrupted"  # by the exit code
            self._checkpointing.finish(self._changed, self._checkpoint, promised)
        self._progress.say(ending(summary, self.options.stop_score))

    def _save(self, examined: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Write the weights and the summary, with what is known of games after it; return the summary."""
        summary = {**self.summary(), **examined}
        if not self._settled:  # it failed before it went on: what is there is better
            return summary
        with saving(self.folder):
            write_json(self.folder / "summary.json", summary)
            self.weights.save()
        return summary

    def summary(self) -> dict[str, Any]:
        """Return how the run stands: what summary.json will hold."""
        return {
            "script": self.script,
            "game": self.game,
            "seed": self.options.seed,
            "device": str(self.device),
            "solved": self.reason == "solved",
            "reason": self.reason,
            "elapsed": round(process.elapsed(), 3),
            "first_update": self.counters.first_update,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "samples": self.counters.samples,
            "episodes": self.stop.episodes,
            "mean_100": self.stop.mean_score,
            "profile": self.timed.shares(),
            "median_env_steps_per_s": self.counters.median_speed,
            "peak_rss_bytes": self.counters.peak_rss,
            "peak_device_bytes": peak_device_bytes(self.device),
        }
