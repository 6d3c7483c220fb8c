"""The run: where, for how long, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fastdqn.errors import UserError
from fastdqn.options.fields import HUNDRED_YEARS, LARGEST, MOST_THREADS, above_zero, at_least, beside, between, finite
from fastdqn.options.game import GameOptions

STOP_EPSILON = 0.02
"""The least epsilon of a game that counts towards a stop score: that of the 2017 post. A policy without chance would
play a few games again and again."""


@dataclass(frozen=True)
class RunOptions:
    """The run: where, for how long, and what it leaves behind."""

    cuda: bool = beside(False)
    """Train on the CUDA device; the same as --device cuda."""
    device: str | None = beside(None)
    """Where to train: cpu, cuda, cuda:N, mps, or auto (CUDA if there is one, else the CPU). None: cpu."""
    seed: int = 0
    """Root of all random numbers of the run."""
    max_env_steps: int | None = beside(3_000_000)
    """Stop after this many env steps (in Atari's games 4 frames each)."""
    max_minutes: float | None = beside(None)
    """Stop this many minutes after the start of the process; those before a --resume count, too."""
    train_seconds: float | None = beside(None)
    """Stop this many seconds after the first update (what bench/fps.py uses)."""
    stop_score: float | None = beside(18.0)
    """Solved, and so done, when the mean raw score of the last 100 games, in the order in which they began, is above
    this."""
    fresh_games: int = beside(100)
    """Games that the final weights play once the run is solved, off the clock: at epsilon 0.02, or as noisy layers
    or an actor-critic play; of Atari's games then 30 by Nature's protocol. 0 for neither."""
    threads: int | None = beside(None)
    """CPU threads that PyTorch trains with; None: one for each core. Players of 21 and 22 have one each."""
    runs_dir: Path = beside(Path("runs"))  # noqa: RUF009 - a path does not change
    """Where the run's folder is made."""
    resume: str | None = beside(None)
    """Resume a run from its newest checkpoint: its folder, or "latest" for the newest of this script in --runs-dir. Its
    options are the defaults; those that change what is learnt cannot be changed."""
    resume_previous: bool = beside(False)
    """Resume from the checkpoint before the newest."""
    checkpoints: bool = beside(True)
    """Write checkpoints: at the end, on Ctrl-C, and as often as --checkpoint-minutes and
    --checkpoint-env-steps say."""
    checkpoint_minutes: float | None = beside(10.0)
    """Minutes between two checkpoints; None for none by the clock."""
    checkpoint_env_steps: int | None = beside(None)
    """Env steps between two checkpoints."""
    checkpoint_replay: bool = beside(True)
    """Keep the replay in the checkpoints, compressed. A run that is resumed without it plays --replay-initial env steps
    before its next update."""
    wandb: bool = beside(False)
    """Log to Weights & Biases, too; offline unless WANDB_MODE says otherwise."""
    trackio: bool = beside(False)
    """Log to Trackio, too; on this machine unless TRACKIO_SPACE_ID says otherwise."""
    project: str = beside("fastdqn")
    """Name of the project for --wandb and --trackio."""
    log_seconds: float | None = beside(None)
    """Seconds between two lines of progress on the terminal; files and loggers have a pace of their own. None: 1 on a
    terminal, 10 elsewhere."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        if self.cuda and self.device not in (None, "auto") and not str(self.device).startswith("cuda"):
            raise UserError(f"--cuda and --device {self.device} contradict each other; give one of them.")
        between(self.seed, 0, LARGEST, "--seed")
        finite(self.stop_score, "--stop-score")
        at_least(self.max_env_steps, 1, "--max-env-steps")
        at_least(self.fresh_games, 0, "--fresh-games")
        for option, value, most in (
            ("--max-minutes", self.max_minutes, HUNDRED_YEARS // 60),
            ("--train-seconds", self.train_seconds, HUNDRED_YEARS),
        ):
            above_zero(value, option)
            between(value, 0, most, option)
        above_zero(self.log_seconds, "--log-seconds")
        above_zero(self.checkpoint_minutes, "--checkpoint-minutes")
        between(self.threads, 1, MOST_THREADS, "--threads")
        at_least(self.checkpoint_env_steps, 1, "--checkpoint-env-steps")

    def describe_end(self) -> str:
        """Return one line that says what ends the run."""
        ends = [
            "" if self.stop_score is None else f"when the mean of 100 games is above {self.stop_score:,.10g}",
            "" if self.max_env_steps is None else f"after {self.max_env_steps:,} env steps",
            "" if self.max_minutes is None else f"after {self.max_minutes:g} minutes",
            "" if self.train_seconds is None else f"{self.train_seconds:g} s after the first update",
        ]
        return f"stops {', or '.join(end for end in ends if end) or 'at Ctrl-C alone'}"


class RunSettings(Protocol):
    """The groups of options that every script has."""

    @property
    def run(self) -> RunOptions: ...
    @property
    def game(self) -> GameOptions: ...
