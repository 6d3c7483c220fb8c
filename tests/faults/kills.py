"""Kills: at random moments, and at every operation on a file of a checkpoint and of a resume."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.faults.table import SCRIPT, SETTINGS, Row, Tally, learnt, script, try_all, whole_run
from tests.helpers.scripts import ROOT

END = 400  # env steps
OFTEN = ("--checkpoint-env-steps", "50")
FEW = 160  # env steps of a run that is killed at each operation in turn
CREW = (
    *("--game", "CartPole-v1", "--threads", "1", "--num-envs", "3", "--checkpoint-minutes", "None"),
    *("--batch-size", "8", "--n-step", "3", "--synchronous", "--players", "2", "--log-seconds", "1000"),
)
CONTROL = (
    *("--num-envs", "2", "--threads", "1", "--checkpoint-minutes", "None", "--log-seconds", "1000"),
    *("--batch-size", "16", "--replay-initial", "60", "--replay-size", "150"),
)
KILLER = ("-m", "tests.faults.killer")


def random_moments(folder: Path, count: int, name: str = SCRIPT, settings: Sequence[str] = SETTINGS) -> Tally:
    """Kill a run that writes checkpoints all the time, resume it, and hold its end against one that nothing disturbed.

    Every third one is killed a second time, while it resumes. At least one of all must have had a checkpoint.
    """
    began = time.monotonic()
    wanted = learnt(whole_run(folder / "whole", END, *OFTEN, name=name, settings=settings))
    takes = time.monotonic() - began
    rng = random.Random(0)
    resumable: list[int] = []

    def trial(number: int, after: float, again: float | None) -> str | None:
        runs = folder / f"{number}"
        _killed(name, after, *settings, *OFTEN, "--max-env-steps", str(END), "--runs-dir", str(runs))
        found = list(runs.iterdir()) if runs.exists() else []
        if found and list(found[0].glob("checkpoints/*.checkpoint")):
            resumable.append(number)
        if found and again is not None:
            _killed(name, again, "--resume", str(found[0]))
        return _ends_well(found[0], wanted, name=name) if found else None  # it had not begun

    moments = [(rng.uniform(0.2, 1.1) * takes, rng.uniform(0.3, 1.0) * takes) for _ in range(count)]
    tally = try_all(
        [partial(trial, i, after, again if i % 3 == 2 else None) for i, (after, again) in enumerate(moments)]
    )
    if not resumable:
        tally.wrong.append("no run had a checkpoint when it was killed")
    return tally


def crews(folder: Path, count: int) -> Tally:
    """The same for two players that wait for each other, half of the trials with samples and half with gradients."""
    half = (count + 1) // 2
    samples = random_moments(folder / "21", half, "21_a3c_data", (*CREW, "--pieces", "2"))
    gradients = random_moments(folder / "22", count - half, "22_a3c_grad", (*CREW, "--gradients", "2"))
    return Tally(samples.tried + gradients.tried, samples.wrong + gradients.wrong)


def control(folder: Path, count: int) -> Tally:
    """The same for soft actor-critic, with a replay that goes round."""
    return random_moments(folder, count, "31_sac", CONTROL)


def sessions(folder: Path, count: int) -> Tally:
    """The same for one session in a process of its own, whose run repeats."""
    return random_moments(folder, count, "32_sac_hogwild", (*CONTROL, "--sessions", "1", "--distributed", "synced"))


def beside(folder: Path, count: int) -> Tally:
    """The same for a trainer beside the games, without a thread, so that the run repeats."""
    words = (*CONTROL, "--no-trainer-thread", "--steps-per-update", "0.5")
    return random_moments(folder, count, "33_trainer_thread", words)


def each_operation(folder: Path, count: int) -> Tally:
    """Kill a run at each operation on a file, of which it makes as many while it writes checkpoints, and likewise one
    that is resumed; then resume it. With a `count`, at so many of them, evenly spread.
    """
    words = (*SETTINGS, *OFTEN)
    wanted = learnt(whole_run(folder / "whole", FEW, *OFTEN))
    half = whole_run(folder / "half", FEW // 2, *OFTEN)
    fresh = _operations(*words, "--max-env-steps", str(FEW), "--runs-dir", str(folder / "counted"))
    resumed = _operations("--resume", str(_copy(half, folder / "resumed")), "--max-env-steps", str(FEW))

    def while_new(at: int) -> str | None:
        runs = folder / f"new-{at}"
        _killed_at(at, *words, "--max-env-steps", str(FEW), "--runs-dir", str(runs))
        found = list(runs.iterdir()) if runs.exists() else []
        return _ends_well(found[0], wanted, f"new, operation {at}: ") if found else None

    def while_resumed(at: int) -> str | None:
        run = _copy(half, folder / f"resumed-{at}")
        _killed_at(at, "--resume", str(run), "--max-env-steps", str(FEW))
        return _ends_well(run, wanted, f"resumed, operation {at}: ", "--max-env-steps", str(FEW))

    trials = [partial(while_new, at) for at in range(1, fresh + 1)]
    trials += [partial(while_resumed, at) for at in range(1, resumed + 1)]
    every = max(1, len(trials) // count) if count else 1
    return try_all(trials[every // 2 :: every])


def _killed(name: str, after: float, *words: str) -> None:
    """Start a script and kill it after so many seconds, if it has not ended by then."""
    path = str(ROOT / "experiments" / f"{name}.py")
    with subprocess.Popen(
        [sys.executable, path, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(after)
        process.kill()


def _killed_at(operation: int, *words: str) -> None:
    script(*words, before=(*KILLER, str(operation)))


def _operations(*words: str) -> int:
    """Return how many operations on files a run makes."""
    done = script(*words, before=(*KILLER, "0"))
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def _copy(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to))


def _ends_well(run: Path, wanted: object, where: str = "", *words: str, name: str = SCRIPT) -> str | None:
    """Resume a killed run; return what is wrong with its end, if anything."""
    done = script("--resume", str(run), *words, name=name)
    if done.returncode == 2 and ("has no checkpoint to resume" in done.stderr or "has no config.json" in done.stderr):
        early = not list(run.glob("checkpoints/*.checkpoint"))
        return None if early else f"{where}it has a checkpoint, but: {done.stderr}"
    if done.returncode != 0:
        return f"{where}{done.stderr[-300:]}"
    if learnt(run) != wanted:
        return f"{where}it has not learnt the same"
    left = [path.name for path in run.rglob("*.unfinished")]
    return f"{where}left behind: {left}" if left else None


ROWS = (
    Row("kill -9 at a random moment", "resumed, it ends exactly as if nothing had been", 50, 1, random_moments),
    Row(
        "kill -9 of 21 and 22 at a random moment",
        "the same, where players wait for each other",
        20,
        2,
        crews,
        ("21_a3c_data", "22_a3c_grad"),
    ),
    Row(
        "kill -9 of 31 at a random moment",
        "resumed, it ends exactly as if nothing had been",
        20,
        2,
        control,
        ("31_sac",),
    ),
    Row("kill -9 of 32 at a random moment", "the same, of one session", 20, 1, sessions, ("32_sac_hogwild",)),
    Row("kill -9 of 33 at a random moment", "the same, without a thread", 20, 1, beside, ("33_trainer_thread",)),
    Row("kill -9 at each operation on a file", "the same", 0, 1, each_operation),
)
