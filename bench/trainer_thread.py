"""Times 33 with its trainer in a thread and without, on environments that are quick, slow, or asleep.

    python bench/trainer_thread.py
    python bench/trainer_thread.py --only sleep --repeats 5
    python bench/trainer_thread.py --steps-per-update 10

The environment is Pendulum-v1 for soft actor-critic, with one update for each env step and with one for as many as are
the default, and 8 of CartPole-v1 for PPO. What a step of it, or of all, does besides is computed in Python, computed
elsewhere, or slept through, for as long as `--milliseconds` says; how much work that is, is measured once at the start.
Three forms take turns: without a thread, with one PyTorch thread and with one for each core; and with a trainer thread,
whose PyTorch has one. JSON lines go to --out.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.fps_figures import gains_of, steady_state
from bench.lines import lines_in
from bench.lists import names, numbers
from bench.paced import WORK, amount_for
from bench.programs import ROOT, exit_code, said_by
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.errors import UserError
from fastdqn.runs.machine import environment


class Case(NamedTuple):
    """What is learnt, and where."""

    algorithm: str
    game: str
    games: int
    words: tuple[str, ...]
    steps_per_update: float | None = None
    """Env steps for each update; None where a rollout is learnt from."""

    @property
    def called(self) -> str:
        return self.algorithm if self.steps_per_update is None else f"{self.algorithm} every {self.steps_per_update:g}"


@dataclasses.dataclass(frozen=True)
class ThreadOptions:
    only: str = ""
    """Kinds of environments, separated by commas: nothing, python, outside, sleep; by default all."""
    milliseconds: float = 10.0
    """Work of each step of the environment, of all 8 where PPO learns."""
    steps_per_update: str = "1,10"
    """Env steps for each update of soft actor-critic, separated by commas; each is a row of its own."""
    seconds: float = 8.0
    """Length of the steady state that is measured, in each turn."""
    warmup: float = 2.0
    """Seconds after the first update that do not count."""
    repeats: int = 3
    """Turns."""
    out: Path = ROOT / "bench" / "results"
    """Folder for the JSON lines."""


def cases(steps_per_update: str) -> list[Case]:
    """Return soft actor-critic at each pace, and PPO.

    Raises:
        UserError: a pace is no number above 0.
    """
    found: list[Case] = []
    for every in numbers(steps_per_update, "--steps-per-update"):
        words = ("--algorithm", "sac", "--steps-per-update", f"{every:g}", "--replay-initial", "300")
        found.append(Case("sac", "Pendulum-v1", 1, words, every))
    return [*found, Case("ppo", "CartPole-v1", 8, ("--algorithm", "ppo"))]


def forms() -> dict[str, tuple[str, ...]]:
    """Return the options of each form."""
    return {
        "no thread": ("--no-trainer-thread", "--threads", "1"),
        "no thread, all cores": ("--no-trainer-thread", "--threads", str(process.cores())),
        "thread": ("--trainer-thread", "--threads", "1"),
    }


def time_form(work: str, amount: float, case: Case, form: tuple[str, ...], options: ThreadOptions) -> Any:
    """Run 33 and return its steady-state figures.

    Raises:
        RunError: it failed, or made no update in the measured time.
    """
    amount /= case.games
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "bench" / "paced.py"), f"{work}:{amount:g}", case.game]
        command += [str(ROOT / "experiments" / "33_trainer_thread.py"), "--game", "Paced-v0", "--device", "cpu"]
        command += [*case.words, *form, "--num-envs", str(case.games), "--runs-dir", folder]
        command += ["--no-checkpoints", "--max-env-steps", "1000000000", "--stop-score", "None"]
        command += ["--train-seconds", str(options.warmup + options.seconds)]
        said_by(command, "33")
        run = next(Path(folder).iterdir())
        lines = [json.loads(line) for line in (run / "speed.jsonl").read_text(encoding="utf-8").splitlines()]
    return steady_state(lines, options.warmup, "33")


def bench(options: ThreadOptions) -> int:
    kinds = names(options.only, "--only", WORK, "kind") if options.only else list(WORK)
    if options.repeats < 1 or options.seconds <= 0 or options.warmup < 0 or options.milliseconds < 0:
        raise UserError(
            "--repeats must be at least 1, --seconds more than 0, --warmup and --milliseconds not negative."
        )
    learners = cases(options.steps_per_update)
    console = Console(highlight=False, soft_wrap=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-trainer-thread.jsonl"
    with lines_in(path, options, environment(torch.device("cpu"))) as write:
        amounts = {work: amount_for(work, options.milliseconds / 1000.0) for work in kinds}
        for work, amount in amounts.items():
            for case in learners:
                which = {"work": work, "algorithm": case.algorithm, "steps_per_update": case.steps_per_update}
                speeds: dict[str, list[float]] = {form: [] for form in forms()}
                for repeat in range(options.repeats):
                    for form, words in forms().items():
                        trial = time_form(work, amount, case, words, options)
                        speeds[form].append(trial["env_steps_per_s"])
                        write("trial", **which, form=form, repeat=repeat, **trial)
                gain = statistics.median(gains_of(speeds))
                write("row", **which, speeds=speeds, gain=gain)
                shown = ", ".join(f"{form} {statistics.median(of):,.0f}" for form, of in speeds.items())
                console.print(f"{case.called}, {work}: {shown} env steps/s; a thread gives {gain:.2f} times the better")
    console.print(f"written: {path}")
    return 0


def main() -> int:
    return exit_code(lambda: bench(parsed(ThreadOptions, sys.argv[1:], ThreadOptions(), __doc__ or "")))


if __name__ == "__main__":
    sys.exit(main())
