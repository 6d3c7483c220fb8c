"""What a run logs: .jsonl files, TensorBoard, and the trackers that were asked for."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

import torch

from fastdqn import process
from fastdqn.errors import CheckpointError
from fastdqn.runs.counters import Counters
from fastdqn.runs.limits import StopTest
from fastdqn.runs.tensorboard import Board
from fastdqn.runs.trackers import Tracker
from fastdqn.types import EpisodeEnd, Histogram


class Records:
    """The logs of a run, appended to; whatever the file system refuses is an OSError.

    Args:
        folder: of the run.
        trackers: that hear every scalar, too; one that fails hears no more, and the run continues.
        say: prints a sentence.
        begun: the env step at which the run is resumed, 0 for a new one.
    """

    def __init__(self, folder: Path, trackers: list[Tracker], say: Callable[[str], None], begun: int = 0) -> None:
        self._folder = folder
        self._trackers = trackers
        self._say = say
        self._lines: dict[str, TextIO] = {}
        self._board = Board(folder, begun)
        for name in ("episodes.jsonl", "speed.jsonl"):
            self._open(name)

    def episode(
        self, counters: Counters, episode: EpisodeEnd, stop: StopTest, began: int, values: Mapping[str, float]
    ) -> None:
        """Write a finished game, its number in the order in which games began, and the mean of the 100 that count."""
        mean = stop.mean_score  # None while the first of the games played at once have not finished
        line = {
            **_written(values),
            "episode": stop.episodes,
            "began": began,
            "score": episode.score,
            "frames": episode.frames,
            "truncated": episode.truncated,
            "mean_100": mean,
            "env_steps": counters.env_steps,
            "updates": counters.updates,
            "elapsed": round(process.elapsed(), 3),
        }
        self._write("episodes.jsonl", line)

    def scores(self, scores: Sequence[float], mean_100: float | None, env_steps: int) -> None:
        """Log the games that were counted at one env step as one point, their mean: TensorBoard shows one a step."""
        means = {} if mean_100 is None else {"episode/mean_100": mean_100}
        self._log({"episode/score": statistics.fmean(scores), **means}, env_steps)

    def speed(
        self,
        counters: Counters,
        elapsed: float,
        env_steps_per_s: float | None,
        metrics: Mapping[str, float],
        policy_lag: int | None,
    ) -> None:
        """Write how far the run is, and let it reach the files."""
        line = {
            **_written({**counters.values, **metrics}),
            "elapsed": round(elapsed, 4),
            "env_steps": counters.env_steps,
            "updates": counters.updates,
            "samples": counters.samples,
            "env_steps_per_s": env_steps_per_s,
            "policy_lag": policy_lag,
            "rss_bytes": counters.rss,
            "threads": torch.get_num_threads(),
            "neighbour_cores": round(counters.neighbours, 2),
        }
        scalars = {
            **{f"train/{name}": value for name, value in {**metrics, **counters.values}.items()},
            "train/updates": counters.updates,
            "train/samples_per_step": counters.samples_per_step,
            "train/policy_lag": policy_lag,
            "speed/env_steps_per_s": env_steps_per_s,
            "speed/resident_bytes": counters.rss,
            "speed/neighbour_cores": counters.neighbours,
        }
        (self._folder / "speed.jsonl").stat()  # a file that somebody has removed can be written to without a word
        self._write("speed.jsonl", line)
        self._log({name: value for name, value in scalars.items() if value is not None}, counters.env_steps)
        self.flush()

    def report(self, scalars: Mapping[str, float], histograms: Mapping[str, Histogram], env_steps: int) -> None:
        """Write what is inside a learner."""
        self._write(
            "reports.jsonl", {"elapsed": round(process.elapsed(), 3), "env_steps": env_steps, **_written(scalars)}
        )
        self._log(scalars, env_steps)
        for name, histogram in histograms.items():
            self._board.add_histogram(name, histogram, env_steps)

    def flush(self) -> None:
        """Let everything that was written reach the files."""
        for file in self._files():
            file.flush()

    def keep(self) -> None:
        """Let everything that was written reach the disk, as a checkpoint does that says how much there is."""
        for file in self._files():
            file.flush()
            os.fsync(file.fileno())

    def sizes(self) -> dict[str, int]:
        """Return how long each log is now."""
        return {path.name: path.stat().st_size for path in self._paths()}

    def check(self, sizes: Mapping[str, int]) -> None:
        """Look whether logs can be cut off where a checkpoint says.

        Raises:
            CheckpointError: a line would be cut in two: somebody has changed the file.
        """
        for path in self._longer(sizes):
            kept = sizes.get(path.name, 0)
            if kept and path.suffix == ".jsonl":
                with path.open("rb") as file:
                    file.seek(kept - 1)
                    if file.read(1) != b"\n":
                        raise CheckpointError(
                            f"{path} is not as the run wrote it: no line ends where its checkpoint says."
                        )

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Cut off what was logged after the checkpoint that says these sizes: it will be logged again."""
        for path in self._longer(sizes):
            with path.open("r+b") as file:
                file.truncate(sizes.get(path.name, 0))

    def longer(self, sizes: Mapping[str, int]) -> bool:
        """Tell whether anything was logged after the checkpoint that says these sizes. TensorBoard's files do not say:
        each process has one.
        """
        return any(path.suffix == ".jsonl" for path in self._longer(sizes))

    def _longer(self, sizes: Mapping[str, int]) -> list[Path]:
        logs = [path for path in self._paths() if path.name != self._board.name]
        return [path for path in logs if path.stat().st_size > sizes.get(path.name, 0)]

    def close(self, summary: Mapping[str, Any]) -> None:
        """Close everything; the trackers are told how the run ended."""
        for tracker in self._trackers:
            try:
                tracker.close(summary)
            except Exception as failure:
                self._say(f"{type(tracker).__name__} could not be closed: {failure}")
        for file in (*self._lines.values(), self._board):
            with contextlib.suppress(OSError):
                file.close()

    def _write(self, name: str, line: Mapping[str, Any]) -> None:
        """Append a line to a .jsonl file, which is made at its first line."""
        (self._lines.get(name) or self._open(name)).write(json.dumps(line) + "\n")

    def _log(self, values: Mapping[str, float], env_steps: int) -> None:
        """Write scalars to TensorBoard and to the trackers."""
        for name, value in values.items():
            self._board.add_scalar(name, value, env_steps)
        for tracker in tuple(self._trackers):
            try:
                tracker.log(values, env_steps)
            except Exception as error:  # whatever a package of somebody else's raises, the run continues
                self._trackers.remove(tracker)
                self._say(f"{type(tracker).__name__} has failed and hears no more of this run: {error}")

    def _files(self) -> list[IO[Any]]:
        return [*self._lines.values(), self._board.file]

    def _paths(self) -> list[Path]:
        return [*self._folder.glob("*.jsonl"), *self._folder.glob("events.out.tfevents.*")]

    def _open(self, name: str) -> TextIO:
        self._lines[name] = (self._folder / name).open("a", encoding="utf-8", buffering=1)
        return self._lines[name]


def _written(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return what JSON can hold: counts as they are, None for what is no number, or infinite."""
    known = {name: value if isinstance(value, int) else float(value) for name, value in values.items()}
    return {name: value if math.isfinite(value) else None for name, value in known.items()}
