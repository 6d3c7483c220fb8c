"""What surrounds a training loop: counters, the end of the run, logs, progress and the summary.

A run's folder holds `config.json` (resolved options), `environment.json` (versions and machine),
`episodes.jsonl` (one line a finished game), `speed.jsonl` (counters over time), TensorBoard's events, from 10 on
`reports.jsonl` (what is inside the learner), `weights.safetensors`, `checkpoints/` and, at the end, `summary.json`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import itertools
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TextIO, cast

import psutil
import safetensors
import safetensors.torch
import torch
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from fastdqn import checkpoint, startup
from fastdqn.checkpoint import Checkpoints, Part, Saved, write_whole
from fastdqn.config import Options
from fastdqn.errors import RunError, UserError
from fastdqn.loggers import check_loggers, make_loggers
from fastdqn.schedules import updates_due
from fastdqn.stopping import Limits, StopTest
from fastdqn.types import EpisodeEnd, Histogram, Metrics, PlayedStep, VectorStep

RECORD_SECONDS = 1.0
"""The shortest time between two records in speed.jsonl; long runs write about a thousand each time they double."""
RUNNING = "running.json"
"""Names the process of a run that is going on."""
PACKAGES = ("torch", "gymnasium", "ale-py", "opencv-python-headless", "numpy", "tensorboard", "fastdqn")


_COUNTERS = (
    *("env_steps", "frames", "updates", "samples", "epsilon", "_before", "_learns_from"),
    *("_first_update", "_first_update_env_steps", "_records", "_peak_rss"),
)
"""What of a run a checkpoint keeps by name."""


class Run:
    """One training run, as a context manager; its methods are what a script's loop calls.

    Args:
        script: name of the script, for the folder and the summary.
        options: all options, resolved.
        device: where the learner is.
        notes: lines to print at the start, say how the game is presented.

    Raises:
        RunError: the folder cannot be made or written to.
    """

    def __init__(self, script: str, options: Options, device: torch.device, notes: tuple[str, ...] = ()) -> None:
        self.script = script
        self.options = options
        self.device = device
        self.limits = Limits.of(options.run, time.time() - startup.elapsed())
        self.stop = StopTest(self.limits)
        self.reason: str | None = None
        self.begun = 0
        """Env steps that other processes had played when this one went on with the run."""
        self.env_steps = 0
        self.frames = 0
        self.updates = 0
        self.samples = 0
        self.epsilon = options.dqn.epsilon_start
        self.weights: Mapping[str, torch.Tensor] | None = None
        self.where = PartTimes(device)
        self._lag: int | None = None
        self._good_weights: dict[str, torch.Tensor] = {}
        self._good_update = 0
        self._metrics: Metrics | None = None
        self._before = 0  # env steps before the newest step
        self._learns_from = options.dqn.replay_initial
        self._parts: dict[str, Part] = {}
        self._first_update: float | None = None
        self._first_update_here: float | None = None
        self._first_update_env_steps = 0
        self._records: list[tuple[float, int, int]] = []  # (elapsed, env_steps, updates)
        self._peak_rss = 0
        self._process = psutil.Process()
        self._shown: dict[str, float | int | None] = {}
        self._console = Console(highlight=False)
        self._refresh = options.run.log_seconds or (1.0 if self._console.is_terminal else 10.0)
        self._next_record = self._next_refresh = 0.0
        self._live: Live | None = None
        self._notes = notes
        self._open_files: list[IO[Any]] = []
        self._reports_file: TextIO | None = None
        check_loggers(options.run)
        self.folder = options.run.runs_dir
        self._resumed: dict[str, Any] | None = None
        if options.run.resume is not None:
            self.folder = Path(options.run.resume)
            self._resumed = checkpoint.read(checkpoint.newest(self.folder, options.run.resume_previous))
            _refuse_running(self.folder)
            self._go_on(self._resumed["run"])
        config = {"script": script, **_plain(dataclasses.asdict(options))}
        with self._saving():
            if self._resumed is None:
                self.folder = _new_folder(options.run.runs_dir, options.run.game, script)
            _write_json(self.folder / RUNNING, {"pid": self._process.pid, "created": self._process.create_time()})
            _write_json(self.folder / "config.json", config)
            _write_json(self.folder / "environment.json", self._environment())
            self._episodes_file = self._open("episodes.jsonl")
            self._speed_file = self._open("speed.jsonl")
            self._board = _Board(self.folder)
            self._open_files.append(self._board.file)
        self._loggers = make_loggers(options.run, self.folder, config)
        self._checkpoints = Checkpoints(
            self.folder, {"script": script, "game": options.run.game, "config": config}, self.begun or None
        )
        self._next_checkpoint = self._checkpoint_after(startup.elapsed())
        self._next_checkpoint_env_steps = self.env_steps + (options.run.checkpoint_env_steps or 0)
        self._checkpointed: int | None = None  # env steps of the newest
        self._keeps_replay = options.run.checkpoint_replay

    def __enter__(self) -> Run:
        self._running = startup.running()
        self._running.__enter__()
        for note in (*self._notes, f"run folder {self.folder}"):
            self._console.print(note, soft_wrap=True)
        if self._console.is_terminal:
            self._live = Live(self._display(), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._live is not None:
                self._live.stop()
            if error is None:
                self._finish()
            else:
                self.reason = "failed"
                with contextlib.suppress(RunError):  # what can be kept is kept; the first error is the one to show
                    self._save()
                with contextlib.suppress(OSError):
                    self._checkpoints.ended(wait=True)
        finally:
            for logger in self._loggers:
                try:
                    logger.close(self.summary())
                except Exception as failure:
                    self._console.print(f"{type(logger).__name__} could not be closed: {failure}", soft_wrap=True)
            self._unlock()
            self._running.__exit__(kind, error, trace)
            for file in self._open_files:
                with contextlib.suppress(OSError):
                    file.close()

    def keep(self, **parts: Part) -> None:
        """Name everything that changes while the run goes on, for checkpoints.

        In a resumed run all parts now go on from the checkpoint. Its `games` say which of them could not be continued;
        of these, parts that have a `cut` are told. A `replay` that the checkpoint lacks begins with the newest frames.
        """
        self._parts = parts
        if self._resumed is None:
            return
        states: dict[str, Any] = self._resumed["parts"]
        anew: Any = None
        with _understood(self.folder):
            for name, part in parts.items():
                if name in states:
                    found: Any = part.load(states[name])
                    anew = found if name == "games" else anew
        for part in parts.values():
            if anew is not None and anew.any() and hasattr(part, "cut"):
                cast(Any, part).cut(anew)
        if "replay" in parts and "replay" not in states:
            self._learns_from = self.options.dqn.replay_initial + self.env_steps
            games, replay = cast(Any, parts.get("games")), cast(Any, parts["replay"])
            if hasattr(replay, "reset"):
                replay.reset(games.newest)
        with self._saving():
            self._cut_logs(self._resumed["run"]["lines"])
        self._resumed = None
        said = "its player begins a new game"
        if "player" in parts or anew is not None:
            lost = 0 if anew is None else int(anew.sum())
            said = f"{lost} games begin anew" if lost else "the games go on where they were"
        self._console.print(
            f"resumed at env step {self.env_steps:,}, update {self.updates:,}, after {_clock(startup.elapsed())}; "
            f"{said}",
            soft_wrap=True,
        )

    def due(self, every: int) -> range:
        """Return the env steps of the newest step at which an update is due, one each `every` env steps."""
        return updates_due(self._before, self.env_steps, every, self._learns_from)

    def played(self, played: PlayedStep, epsilon: float) -> None:
        """Count one env step and log the games that finished in it."""
        self._played(1, played.episodes, epsilon)

    def played_vector(self, step: VectorStep, epsilon: float, policy_lag: int = 0) -> None:
        """Count one step of N games; games that were reset in it made no env step.

        Args:
            step: what came of it.
            epsilon: of the newest env step.
            policy_lag: updates made since the actions were chosen.
        """
        self._lag = policy_lag
        with self.where("logging"):
            self._played(len(step.reset) - int(step.reset.sum()), step.episodes, epsilon)

    def _played(self, env_steps: int, episodes: tuple[EpisodeEnd, ...], epsilon: float) -> None:
        self._before = self.env_steps
        self.env_steps += env_steps
        self.epsilon = epsilon
        for episode in episodes:
            self.stop.add(episode.score)
            self.frames += episode.frames
            mean = self.stop.mean_score or 0.0
            line = {
                "episode": self.stop.episodes,
                "score": episode.score,
                "frames": episode.frames,
                "truncated": episode.truncated,
                "mean_100": mean,
                "env_steps": self.env_steps,
                "updates": self.updates,
                "epsilon": epsilon,
                "elapsed": round(startup.elapsed(), 3),
            }
            with self._saving():
                _write_line(self._episodes_file, line)
                self._log({"episode/score": episode.score, "episode/mean_100": mean})
        now = time.perf_counter()
        if now >= self._next_record:
            self._record(now)
        if now >= self._next_refresh:
            self._show(now)

    def updated(self, metrics: Metrics, batch_size: int) -> None:
        """Count one update. Its metrics stay on the device until the next record."""
        self.updates += 1
        self.samples += batch_size
        self._metrics = metrics
        if self._first_update is None:
            self._first_update = startup.elapsed()
            self._first_update_env_steps = self.env_steps
        if self._first_update_here is None:
            self._first_update_here = startup.elapsed()
            self._next_record = 0.0  # a record right after the first update
            self.where.begin()

    def report(self, scalars: Mapping[str, float], histograms: Mapping[str, Histogram]) -> None:
        """Write what is inside the learner to TensorBoard, and the scalars to reports.jsonl."""
        with self._saving():
            if self._reports_file is None:
                self._reports_file = self._open("reports.jsonl")
            _write_line(
                self._reports_file,
                {"elapsed": round(startup.elapsed(), 3), "env_steps": self.env_steps, **scalars},
            )
            self._log(scalars)
            for name, histogram in histograms.items():
                self._board.add_histogram(name, histogram, self.env_steps)

    def _log(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._board.add_scalar(name, value, self.env_steps)
        for logger in tuple(self._loggers):
            try:
                logger.log(values, self.env_steps)
            except Exception as error:  # whatever a package of somebody else's raises, the run goes on
                self._loggers.remove(logger)
                said = f"{type(logger).__name__} has failed and hears no more of this run: {error}"
                self._console.print(said, soft_wrap=True)

    def over(self) -> bool:
        """Tell whether the run is over: solved, at a limit, or stopped by a signal."""
        return self.ended_by(self.stop.reason(self.env_steps))

    def ended_by(self, reason: str | None) -> bool:
        """Tell whether the run is over when somebody else (a player process) keeps its stop test.

        To be called where a checkpoint may be taken: between two rounds of the loop.
        """
        if self.reason is not None:
            return True
        if reason is not None:
            self.reason = reason
        elif startup.stop_signal():
            self.reason = "interrupted"
        elif (
            self.options.run.train_seconds is not None
            and self._first_update_here is not None
            and startup.elapsed() - self._first_update_here >= self.options.run.train_seconds
        ):
            self.reason = "train-seconds"
        if self.reason is None:
            self._checkpoint_if_due()
            return False
        self._record(time.perf_counter())
        return True

    def _record(self, now: float) -> None:
        """Write the counters; the only place that waits for the device."""
        elapsed = startup.elapsed()
        self._next_record = now + max(RECORD_SECONDS, elapsed / 1000.0)
        loss = mean_q = None
        if self._metrics is not None:
            loss, mean_q = float(self._metrics.loss), float(self._metrics.mean_q)
            self._keep_weights(loss)
        rss = _resident_bytes(self._process)
        self._peak_rss = max(self._peak_rss, rss)
        since = self._records[-1] if self._records else (elapsed, self.env_steps, self.updates)
        self._records.append((elapsed, self.env_steps, self.updates))
        seconds = elapsed - since[0]
        speed = (self.env_steps - since[1]) / seconds if seconds > 0 else None
        played_since = self.env_steps - since[1]
        trained_steps = self.env_steps - self._first_update_env_steps + self.options.play_steps
        per_step = self.samples / trained_steps if self.updates else None
        self._shown = {"env_steps_per_s": speed, "loss": loss, "mean_q": mean_q}
        line = {
            "elapsed": round(elapsed, 4),
            "env_steps": self.env_steps,
            "updates": self.updates,
            "samples": self.samples,
            "epsilon": self.epsilon,
            "loss": loss,
            "mean_q": mean_q,
            "env_steps_per_s": speed,
            "policy_lag": self._lag,
            "rss_bytes": rss,
        }
        with self._saving():
            _write_line(self._speed_file, line)
            said = {
                "train/loss": loss,
                "train/mean_q": mean_q,
                "train/epsilon": self.epsilon,
                "train/updates": self.updates,
                "train/samples_per_step": per_step,
                "train/policy_lag": self._lag,
                "speed/env_steps_per_s": speed if played_since else None,
                "speed/resident_bytes": rss,
            }
            self._log({name: value for name, value in said.items() if value is not None})
            self._board.flush()

    def _keep_weights(self, loss: float) -> None:
        """Keep a copy of the weights while they are finite; once they or the loss are not, end the run with it."""
        weights = {} if self.weights is None else {name: t.detach().cpu() for name, t in self.weights.items()}
        if math.isfinite(loss) and all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
            self._good_weights = {name: tensor.clone() for name, tensor in weights.items()}
            self._good_update = self.updates
            return
        what = f"The loss became {loss}" if not math.isfinite(loss) else "A weight is no longer a finite number"
        kept = "no update was any good"
        if self._good_weights:
            self.weights = self._good_weights
            kept = f"the weights of update {self._good_update} are kept in {self.folder / 'weights.safetensors'}"
        else:
            self.weights = None
        raise RunError(
            f"{what} at env step {self.env_steps}, update {self.updates}; {kept}; a lower --learning-rate usually "
            "helps."
        )

    def _checkpoint_after(self, elapsed: float) -> float:
        minutes = self.options.run.checkpoint_minutes
        return math.inf if minutes is None else elapsed + 60.0 * minutes

    def _checkpoint_if_due(self) -> None:
        run = self.options.run
        if not run.checkpoints or not self._parts:
            return
        self._checkpoint_ended()
        elapsed, every = startup.elapsed(), run.checkpoint_env_steps
        by_steps = every is not None and self.env_steps >= self._next_checkpoint_env_steps
        if (elapsed < self._next_checkpoint and not by_steps) or self._checkpoints.busy:
            return
        self._record(time.perf_counter())  # which ends a run whose loss or weights are no numbers any more
        self._next_checkpoint = self._checkpoint_after(elapsed)
        if every is not None:
            self._next_checkpoint_env_steps = (self.env_steps // every + 1) * every
        self._checkpoint()

    def _checkpoint(self) -> None:
        """Begin a checkpoint of now."""
        with self._saving():
            self._write_weights()
            for file in self._open_files:
                file.flush()
        self._checkpointed = self.env_steps
        try:
            self._checkpoints.begin(self.env_steps, self._states)
        except MemoryError as error:
            self._leave_replay_out(str(error))
            self._checkpoints.begin(self.env_steps, self._states)

    def _checkpoint_ended(self, wait: bool = False) -> None:
        """Say what has been written; if it could not be, try once more without the replay, and from now on."""
        with self._saving():
            try:
                self._say_saved(self._checkpoints.ended(wait))
            except OSError as error:
                if not self._keeps_replay or "replay" not in self._parts:
                    raise
                self._leave_replay_out(error.strerror or str(error))
                self._checkpoint()
                self._say_saved(self._checkpoints.ended(wait=True))

    def _leave_replay_out(self, why: str) -> None:
        self._keeps_replay = False
        said = f"the checkpoint could not be written ({why}); checkpoints now leave the replay out"
        self._console.print(said, soft_wrap=True)

    def _states(self) -> dict[str, Any]:
        parts = {name: part.state() for name, part in self._parts.items() if self._keeps_replay or name != "replay"}
        return {"run": self._state(), "parts": parts}

    def _state(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _COUNTERS},
            "stop": self.stop.state(),
            "elapsed": startup.elapsed(),
            "lines": {path.name: path.stat().st_size for path in self._logs()},
        }

    def _go_on(self, state: Mapping[str, Any]) -> None:
        """Have the counters and logs of a checkpoint."""
        with _understood(self.folder):
            for name in _COUNTERS:
                setattr(self, name, state[name])
            self.stop.load(state["stop"])
            startup.add_elapsed(state["elapsed"])
        self.begun = self.env_steps
        self.limits = self.stop.limits = Limits.of(self.options.run, time.time() - startup.elapsed())

    def _logs(self) -> list[Path]:
        return [*self.folder.glob("*.jsonl"), *self.folder.glob("events.out.tfevents.*")]

    def _cut_logs(self, sizes: Mapping[str, int]) -> None:
        """Cut off what was logged after the checkpoint: it will be logged again."""
        for path in self._logs():
            if path.name != self._board.name and path.stat().st_size > sizes.get(path.name, 0):
                with path.open("r+b") as file:
                    file.truncate(sizes.get(path.name, 0))

    def _environment(self) -> dict[str, Any]:
        """Return what environment.json says: of this process, and of those before it where the run was resumed."""
        now = environment(self.device)
        if self._resumed is None:
            return now
        earlier: list[Any] = []
        with contextlib.suppress(OSError, ValueError):
            said: dict[str, Any] = json.loads((self.folder / "environment.json").read_text(encoding="utf-8"))
            earlier = [*said.pop("earlier", []), said]
        return {**now, "resumed_at_env_step": self.env_steps, "earlier": earlier}

    def _say_saved(self, saved: Saved | None) -> None:
        if saved is not None:
            self._console.print(
                f"checkpoint at env step {saved.env_steps:,}: {saved.size / 1e6:,.1f} MB, written in "
                f"{saved.written:.1f} s, {saved.stopped:.2f} s of them the run stood still",
                soft_wrap=True,
            )

    def _show(self, now: float) -> None:
        if self._live is not None:
            self._live.update(self._display(), refresh=True)
        elif self._next_refresh > 0.0:
            self._console.print(self._plain_line(), soft_wrap=True)
        self._next_refresh = now + self._refresh

    def _cells(self) -> dict[str, str]:
        speed, loss = self._shown.get("env_steps_per_s"), self._shown.get("loss")
        mean = self.stop.mean_score
        return {
            "env steps": f"{self.env_steps:,}",
            "env steps/s": "-" if speed is None else f"{speed:,.1f}",
            "episodes": f"{self.stop.episodes:,}",
            "mean-100": "-" if mean is None else f"{mean:.2f}",
            "epsilon": f"{self.epsilon:.3f}",
            "loss": "-" if loss is None else f"{loss:.5f}",
            "elapsed": _clock(startup.elapsed()),
            "left": self._left(),
        }

    def _fraction(self) -> float:
        """How much of the nearer limit is used up, 0 to 1."""
        parts = [0.0]
        if self.limits.max_env_steps:
            parts.append(self.env_steps / self.limits.max_env_steps)
        if self.options.run.max_minutes:
            parts.append(startup.elapsed() / (60.0 * self.options.run.max_minutes))
        return min(1.0, max(parts))

    def _left(self) -> str:
        """Time to the nearer limit, judged by the present speed."""
        left: list[float] = []
        if self.limits.deadline is not None:
            left.append(self.limits.deadline - time.time())
        speed = self._shown.get("env_steps_per_s")
        if self.limits.max_env_steps and speed:
            left.append((self.limits.max_env_steps - self.env_steps) / speed)
        return _clock(max(0.0, min(left))) if left else "-"

    def _display(self) -> Group:
        cells = self._cells()
        table = Table(box=None, pad_edge=False)
        for name in cells:
            table.add_column(name, justify="right", style="bold", header_style="dim", no_wrap=True)
        table.add_row(*cells.values())
        priming = self.options.dqn.replay_initial - self.env_steps
        state = f"filling the replay, {priming:,} to go" if self.updates == 0 and priming > 0 else "training"
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=1.0, completed=self._fraction(), width=28),
            Text(f"{100 * self._fraction():.0f}% of the limit, {state}"),
        )
        return Group(table, bar)

    def _plain_line(self) -> str:
        return " | ".join(f"{name} {value}" for name, value in self._cells().items())

    def _finish(self) -> None:
        if self.begun and self.env_steps == self.begun and (self.folder / "summary.json").exists():
            said = f"nothing to do: the run was over ({self.reason}) after {self.env_steps:,} env steps"
            self._console.print(f"{said}; raise its limits to go on", soft_wrap=True)
            return
        summary = self._save()
        if self.options.run.checkpoints and self._parts:
            self._checkpoint_ended(wait=True)
            if self._checkpointed != self.env_steps:
                self._checkpoint()
                self._checkpoint_ended(wait=True)
        mean = summary["mean_100"]
        speed = summary["median_env_steps_per_s"]
        self._console.print(
            f"{'SOLVED' if summary['solved'] else 'not solved'} ({self.reason}) after {_clock(summary['elapsed'])}: "
            f"{self.env_steps:,} env steps, {self.updates:,} updates, {self.stop.episodes:,} games, "
            f"mean-100 {'-' if mean is None else f'{mean:.2f}'}, "
            f"median {'-' if speed is None else f'{speed:.1f}'} env steps/s",
            soft_wrap=True,
        )
        if summary["where"]:
            said = f"where the time went since the first update: {percentages(summary['where'])}"
            self._console.print(said, soft_wrap=True)

    def _save(self) -> dict[str, Any]:
        """Write the weights and the summary; return the summary."""
        summary = self.summary()
        if self._resumed is not None:  # it failed before it had gone on: what is there is better
            return summary
        with self._saving():
            _write_json(self.folder / "summary.json", summary)
            self._write_weights()
        return summary

    def _write_weights(self) -> None:
        if self.weights is not None:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.weights.items()}
            write_whole(self.folder / "weights.safetensors", lambda path: safetensors.torch.save_file(tensors, path))

    def summary(self) -> dict[str, Any]:
        """Return how the run stands: what summary.json will hold."""
        trained = [r for r in self._records if r[2] > 0]
        speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(trained) if b[0] > a[0]]
        return {
            "script": self.script,
            "game": self.options.run.game,
            "seed": self.options.run.seed,
            "device": str(self.device),
            "solved": self.reason == "solved",
            "reason": self.reason,
            "elapsed": round(startup.elapsed(), 3),
            "first_update": self._first_update,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "samples": self.samples,
            "episodes": self.stop.episodes,
            "mean_100": self.stop.mean_score,
            "where": self.where.shares(),
            "median_env_steps_per_s": statistics.median(speeds) if speeds else None,
            "peak_rss_bytes": self._peak_rss,
            "peak_device_bytes": torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0,
        }

    def _unlock(self) -> None:
        """Say that nobody plays this run any more."""
        with contextlib.suppress(OSError):
            (self.folder / RUNNING).unlink()

    def _open(self, name: str) -> TextIO:
        file = (self.folder / name).open("a", encoding="utf-8", buffering=1)
        self._open_files.append(file)
        return file

    @contextlib.contextmanager
    def _saving(self) -> Generator[None]:
        """Turn an error of the file system into one sentence."""
        try:
            yield
        except (OSError, safetensors.SafetensorError) as error:
            why = (isinstance(error, OSError) and error.strerror) or str(error)
            raise RunError(
                f"Cannot write to {self.folder}: {why}; the run has ended after {self.env_steps} env steps."
            ) from error


@contextlib.contextmanager
def _understood(run: Path) -> Generator[None]:
    """Turn what goes wrong with a state that is another version's into one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        why = str(error).strip().splitlines()[-1].strip() if str(error) else type(error).__name__
        raise UserError(
            f"The checkpoint of {run} does not fit this version of fastdqn, or the game's of ale-py: {why}."
        ) from error


def percentages(shares: Mapping[str, float]) -> str:
    """Return the shares of a whole as one line: "update 90.0%, acting 10.0%"."""
    return ", ".join(f"{part} {100 * share:.1f}%" for part, share in shares.items())


class PartTimes:
    """Measures which part of a loop takes how much time; until `enable` is called it costs next to nothing.

    On a CUDA device it waits after each part for the device, which otherwise works on while the host goes ahead.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._enabled = False
        self._running = False
        self._began = 0.0
        self._seconds: dict[str, float] = {}
        self._nothing = contextlib.nullcontext()

    def enable(self, enabled: bool = True) -> None:
        """Measure from the first update on."""
        self._enabled = enabled

    def begin(self) -> None:
        """Begin now; what was before (filling the replay) does not count."""
        self._running = self._enabled
        self._began = time.perf_counter()
        self._seconds.clear()

    def __call__(self, part: str) -> contextlib.AbstractContextManager[None]:
        """Return a context whose time counts as `part`."""
        return self._timed(part) if self._running else self._nothing

    def shares(self) -> dict[str, float]:
        """Return each part's share of the time since `begin`, the largest first, and what is left as "the rest"."""
        if not self._running:
            return {}
        total = time.perf_counter() - self._began
        shares = {part: seconds / total for part, seconds in sorted(self._seconds.items(), key=lambda kv: -kv[1])}
        return {**shares, "the rest": 1.0 - sum(shares.values())}

    @contextlib.contextmanager
    def _timed(self, part: str) -> Generator[None]:
        begin = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds[part] = self._seconds.get(part, 0.0) + time.perf_counter() - begin


_events: Any = event_pb2  # generated modules, without types
_summaries: Any = summary_pb2


class _Board:
    """TensorBoard events, written in place: no thread beside the loop, and a full disk is an error here and now."""

    def __init__(self, folder: Path) -> None:
        stem = f"events.out.tfevents.{int(time.time())}"
        earlier = len(list(folder.glob(f"{stem}.*")))  # of a run that is resumed within a second
        self.name = f"{stem}.{earlier}.fastdqn"
        self.file = (folder / self.name).open("wb")
        self._writer = RecordWriter(self.file)
        self._write(_events.Event(wall_time=time.time(), file_version="brain.Event:2"))
        self.file.flush()

    def add_scalar(self, tag: str, value: float, env_steps: int) -> None:
        summary = _summaries.Summary(value=[_summaries.Summary.Value(tag=tag, simple_value=value)])
        self._write(_events.Event(wall_time=time.time(), step=env_steps, summary=summary))

    def add_histogram(self, tag: str, histogram: Histogram, env_steps: int) -> None:
        """Write a distribution that is known already, bar by bar."""
        centers, mass = histogram.centers, histogram.mass
        half = (centers[1] - centers[0]) / 2.0
        proto = _summaries.HistogramProto(
            min=centers[0] - half,
            max=centers[-1] + half,
            num=sum(mass),
            sum=sum(c * m for c, m in zip(centers, mass, strict=True)),
            sum_squares=sum(c * c * m for c, m in zip(centers, mass, strict=True)),
            bucket_limit=[center + half for center in centers],
            bucket=mass,
        )
        summary = _summaries.Summary(value=[_summaries.Summary.Value(tag=tag, histo=proto)])
        self._write(_events.Event(wall_time=time.time(), step=env_steps, summary=summary))

    def flush(self) -> None:
        self.file.flush()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and machine: what a figure needs beside it to mean something."""
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    packages["torch"] = str(torch.__version__)  # names its build, +cpu or +cu130, which the package's own may not
    return {
        "python": platform.python_version(),
        "packages": packages,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cores": startup.cores(),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "commit": _commit(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def cpu_name() -> str:
    """Return the processor's name, with family and model where the name alone says little."""
    with contextlib.suppress(OSError):
        fields = dict(
            [part.strip() for part in line.split(":", 1)]
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
            if ":" in line
        )
        flags = fields.get("flags", "").split()
        vectors = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
        if "model name" in fields:
            return f"{fields['model name']} family {fields.get('cpu family')} model {fields.get('model')} {vectors}"
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the source tree, if there is one, with a + for uncommitted changes."""
    here = Path(__file__).resolve().parent.parent
    if not (here / ".git").exists():
        return None

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10).stdout

    try:
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _resident_bytes(process: psutil.Process) -> int:
    total = 0
    for one in (process, *process.children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += int(one.memory_info().rss)
    return total


def _refuse_running(run: Path) -> None:
    """Refuse to go on with a run that is still going on."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, psutil.Error):
        said: dict[str, Any] = json.loads((run / RUNNING).read_text(encoding="utf-8"))
        if psutil.Process(said["pid"]).create_time() == said["created"]:
            raise UserError(f"The run {run} is still going on, in process {said['pid']}.")


def _new_folder(parent: Path, game: str, script: str) -> Path:
    """Make and return runs/<time>-<game>-<script>; two runs of one second get different folders."""
    parent.mkdir(parents=True, exist_ok=True)
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{''.join(c if c.isalnum() or c in '-_' else '_' for c in game)}-{script}"
    for attempt in range(1000):
        folder = parent / (stem if attempt == 0 else f"{stem}-{attempt}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise RunError(f"There are already a thousand folders called {stem} in {parent}.")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value) if isinstance(value, Path) else value


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _write_line(file: TextIO, value: dict[str, Any]) -> None:
    file.write(json.dumps(value) + "\n")


def _clock(seconds: float) -> str:
    """Return h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"
