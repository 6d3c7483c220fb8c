"""Scripts of several processes or threads, the phases of their runs, and how such a run is met in one of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastdqn.execution.presence import SILENT_SECONDS, START_SECONDS
from fastdqn.runs.checkpoint import checkpoints_in
from tests.faults.inside import where
from tests.faults.table import SETTINGS, a_sentence, script
from tests.helpers.scripts import Started, only_run, started, summary

ENDLESS = ("--max-env-steps", "None", "--stop-score", "None", "--checkpoint-env-steps", "100")
QUIET = ("--threads", "1", "--log-seconds", "1000", "--checkpoint-minutes", "None")
SAC = (
    *("--game", "Pendulum-v1", "--hidden", "8", "--batch-size", "8", "--num-envs", "2"),
    *("--replay-initial", "40", "--replay-size", "6000", *QUIET),
)
PPO = (
    *("--game", "CartPole-v1", "--num-envs", "2", "--rollout-steps", "16", "--batch-size", "16", "--epochs", "2"),
    *QUIET,
)
INITIAL = 3000
FILLING = ("--replay-initial", str(INITIAL))
SHORT_GAMES = ("--max-frames", "10", "--fresh-games", "1000000", "--stop-score")
SILENT_SESSION = 20.0  # seconds without a word after which one counts as hung
SLOW = {"writing": 3.0, "last": 8.0}
"""Seconds that a checkpoint takes, by phase; the last one longer than a rank is left alone whose peer is gone."""


@dataclass(frozen=True)
class System:
    """A script, and what is in it."""

    script: str
    words: tuple[str, ...]
    child: str = ""
    """What its last child is called, "session 2" or "rank 1"; empty for none."""
    solved: tuple[str, ...] = ()
    """What lets it be solved soon, and evaluate for long; empty where that takes too long."""
    fills: bool = True
    """Whether it fills a replay first."""
    breaks: tuple[str, ...] = ("learner", "game")

    @property
    def number(self) -> str:
        return self.script[:2]

    @property
    def called(self) -> str:
        """Number of the script, and what of it."""
        return f"{self.number}{' over ranks' if self.ranks else ''}{' with PPO' if '--algorithm' in self.words else ''}"

    @property
    def ranks(self) -> bool:
        return self.child.startswith("rank")

    def silent(self, phase: str) -> float:
        """Return the seconds without a word after which its child counts as hung."""
        if not self.ranks:
            return SILENT_SESSION
        return START_SECONDS if phase == "start" else SILENT_SECONDS

    @property
    def phases(self) -> list[str]:
        some = [("filling", self.fills), ("evaluation", bool(self.solved))]
        return ["start", "learning", "writing", *(name for name, there in some if there)]

    def victims(self, phase: str) -> list[str]:
        """Return which processes there are in a phase."""
        return ["main", *([self.child] if self.child and phase != "evaluation" else [])]


TWO = ("--processes", "2")
SOLVED = (*SHORT_GAMES, "-1000000")
SYSTEMS = (
    System("31_sac", SAC, solved=SOLVED),
    System("32_sac_hogwild", (*SAC, "--sessions", "2"), "session 2", SOLVED),
    System("33_trainer_thread", (*SAC, "--trainer-thread", "--steps-per-update", "2"), solved=SOLVED),
    System("33_trainer_thread", ("--algorithm", "ppo", *PPO, "--trainer-thread"), "", (*SHORT_GAMES, "0"), fills=False),
    System("41_ppo_ranks", (*PPO, *TWO), "rank 1", (*SHORT_GAMES, "0"), fills=False),
    System("42_sac_ranks", (*SAC, *TWO), "rank 1", SOLVED),
    System("09_cuda_graph", (*SETTINGS, *TWO), "rank 1", fills=False, breaks=("learner",)),
)


@contextlib.contextmanager
def going_on(folder: Path, system: System, phase: str, *words: str, **faults: str) -> Iterator[Started]:
    """Start a script, wait for a phase of it; at the end nothing of it may be left.

    Raises:
        AssertionError: something is left.
    """
    more: dict[str, tuple[str, ...]] = {"filling": FILLING, "evaluation": system.solved}
    slow = {"TOY_SLOW_DISK": str(SLOW[phase])} if phase in SLOW else {}
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:  # a short path: a fork server's socket is in it
        environment = {**where(folder / "site"), "TMPDIR": scratch, **slow, **faults}
        words = (*system.words, *ENDLESS, *more.get(phase, ()), *words)
        with started(system.script, folder / "runs", *words, env=environment, fresh=True) as run:
            run.wait_until(partial(_reached, run, system, phase), 120.0)
            run.session()
            yield run
        left = [path.name for path in Path(scratch).iterdir()]
        left += [path.name for path in Path("/dev/shm").iterdir() if any(f"_{pid}_" in path.name for pid in run.seen)]
        assert not left, f"left behind: {left}"


def _reached(run: Started, system: System, phase: str) -> bool:
    if phase == "begun":
        return True
    if phase == "start":
        return len(run.players()) > 0 if system.child else any(run.folder.iterdir())
    if phase == "filling":
        return run.env_steps() > 0 and run.updates() == 0
    if phase == "learning":
        return run.updates() > 3 and bool(checkpoints_in(only_run(run.folder)))
    if phase == "evaluation":
        return summary(only_run(run.folder))["reason"] == "solved"
    begun = [path.name for path in only_run(run.folder).glob("checkpoints/*.unfinished")]
    if phase == "last":
        return any(int(name[:12]) >= LAST for name in begun)
    return bool(begun) and bool(checkpoints_in(only_run(run.folder)))


LAST = 200
"""Env steps of a run that is met while it writes its last checkpoint."""


def process_of(run: Started, victim: str) -> int:
    """Return the id of a process of a run."""
    return run.process.pid if victim == "main" else max(player.pid for player in run.players())


def send(run: Started, victim: str, number: int) -> None:
    """Send a signal to a process of a run."""
    os.kill(process_of(run, victim), number)


def goes_on(folder: Path, system: System, phase: str = "") -> str | None:
    """Resume what a fault has left; return what is wrong with that."""
    found = list((folder / "runs").iterdir()) if (folder / "runs").exists() else []
    if not found:
        return None
    saved = checkpoints_in(found[0])
    begun = int(saved[-1].stem) if saved else 0
    end = max(begun, 2 * INITIAL if phase == "filling" else 0) + 200
    words = ("--max-env-steps", str(end), "--stop-score", "None", "--fresh-games", "0")
    done = script("--resume", str(found[0]), *words, name=system.script)
    if not saved:
        return a_sentence(done, (2,))
    if done.returncode:
        return f"resumed: exit code {done.returncode}, {done.stderr[-400:]}"
    if summary(found[0])["env_steps"] < end or int(checkpoints_in(found[0])[-1].stem) < end:
        return f"resumed: it ended at env step {summary(found[0])['env_steps']}"
    left = [path.name for path in found[0].rglob("*.unfinished")]
    return f"left behind: {left}" if left else None
