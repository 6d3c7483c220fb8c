"""Faults in scripts of several processes or threads, and in soft actor-critic alone: kill -9, Ctrl-C, stops, exceptions
in each process and in each phase of a run, full disks, damaged checkpoints, clocks that are set.

After each the run has ended in time and with the right exit code, nothing of it is left (no process, no shared memory,
no temporary or half-written file), and it can be resumed from its checkpoint, if it has one.
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fastdqn.runs.checkpoint import checkpoints_in
from tests.faults.files import damage
from tests.faults.stages import LAST, SLOW, SYSTEMS, System, goes_on, going_on, send
from tests.faults.table import Row, Tally, a_sentence, script, try_all, whole_run
from tests.helpers.scripts import only_run, summary

IN_TIME = 10.0  # seconds for an end
IMPORTS = 30.0  # seconds for an end where children first finish their imports, on a busy machine
PAUSE = 8.0  # seconds for which a whole run is stopped
CLOCK = 15.0  # seconds that a run with a time limit is to take
TOLD = "ValueError: it broke as it was told to"


def wrong_end(ended: tuple[int, str, str], code: int, said: str = "") -> str | None:
    """Return what is wrong with exit code or words of a run that is to say one sentence, or nothing."""
    if ended[0] != code:
        return f"exit code {ended[0]}: {ended[2][-400:]}"
    if "Traceback" in ended[1] + ended[2]:
        return f"a traceback: {ended[2][-600:]}"
    return None if not said or re.fullmatch(f"error: .*{said}.*\n", ended[2]) else f"it says {ended[2]!r}"


def killed(system: System, phase: str, victim: str, folder: Path) -> str | None:
    """Kill a process; where others are left, they say so."""
    words = ("--max-env-steps", str(LAST)) if phase == "last" else ()
    with going_on(folder, system, phase, *words) as run:
        send(run, victim, signal.SIGKILL)
        ended = run.finish(IMPORTS if (phase, victim) == ("start", "main") else IN_TIME + SLOW.get(phase, 0.0))
    if victim == "main":  # a child that was about to begin may say so, in Python's own words
        wrong = None if ended[0] == -signal.SIGKILL else f"exit code {ended[0]}"
    else:
        wrong = wrong_end(ended, 1, "was killed")
    if phase == "last" and int(checkpoints_in(only_run(folder / "runs"))[-1].stem) < LAST:
        wrong = wrong or "the last checkpoint was not written"
    return wrong or goes_on(folder, system, phase)


def interrupted(system: System, phase: str, presses: int, folder: Path) -> str | None:
    """Press Ctrl-C once or twice."""
    with going_on(folder, system, phase) as run:
        run.ctrl_c()
        if presses == 2:
            time.sleep(0.3)
            if run.process.poll() is None:
                run.ctrl_c()
        ended = run.finish(IN_TIME + 2.0 * SLOW.get(phase, 0.0))
    code = -signal.SIGINT if presses == 2 and ended[0] == -signal.SIGINT else 130  # in Python's own end: 130 to a shell
    wrong = wrong_end(ended, code)
    if not wrong and presses == 1 and phase in ("filling", "learning", "writing"):
        reason = summary(only_run(folder / "runs"))["reason"]
        wrong = None if reason == "interrupted" else f"its reason is {reason}"
    return wrong or goes_on(folder, system, phase)


def stopped(system: System, phase: str, victim: str, folder: Path) -> str | None:
    """Stop a process for ever, or rank 0 until the others have left, which must be soon."""
    words = () if system.ranks else ("--session-timeout", f"{system.silent(phase):g}")
    with going_on(folder, system, phase, *words) as run:
        send(run, victim, signal.SIGSTOP)
        if victim == "main":
            end = time.monotonic() + system.silent(phase) + IN_TIME
            while run.players():
                assert time.monotonic() < end, "the others wait for one that is stopped"
                time.sleep(0.1)
            send(run, victim, signal.SIGCONT)
        ended = run.finish(system.silent(phase) + IN_TIME + SLOW.get(phase, 0.0))
    said = "(is gone|has been silent|failed)" if victim == "main" else "(hung|has been silent)"
    return wrong_end(ended, 1, said) or goes_on(folder, system, phase)


def paused(system: System, folder: Path) -> str | None:
    """Stop all of a run for a while, as Ctrl-Z does, and let it go on."""
    with going_on(folder, system, "learning") as run:
        family = run.session()
        for one in family:
            one.suspend()
        time.sleep(PAUSE)
        for one in family:
            one.resume()
        before = run.updates()
        run.wait_until(lambda: run.updates() > before, 30.0)
        run.ctrl_c()
        ended = run.finish(IN_TIME)
    return wrong_end(ended, 130) or goes_on(folder, system)


def broken(system: System, what: str, victim: str, folder: Path) -> str | None:
    """Let a learner or a game raise an exception: it is a traceback, or a sentence where it is an environment's."""
    rounds = ("--checkpoint-env-steps", "40")
    with going_on(folder, system, "begun", *rounds, TOY_BREAKS=what, TOY_WHO=victim) as run:
        code, _, err = run.finish(120.0)
    if code != 1 or TOLD not in err:
        return f"exit code {code}: {err[-600:]}"
    if what == "game":
        return wrong_end((code, "", err), 1, f"failed in step: {TOLD}") or goes_on(folder, system)
    if "Traceback" not in err or (victim != "main" and "its traceback is above." not in err):
        return f"no traceback: {err[-600:]}"
    return goes_on(folder, system)


def full_disk(system: System, size: int, folder: Path) -> str | None:
    """Let no file grow beyond `size`, which stands for a full disk: one sentence, and what was saved goes on."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    words = (*system.words, "--checkpoint-env-steps", "100", "--stop-score", "None", "--max-env-steps", "400")
    done = script(*words, "--runs-dir", str(folder / "runs"), name=system.script, preexec_fn=limited)
    wrong = None if done.returncode == 0 else a_sentence(done, (1,))
    return wrong or goes_on(folder, system)


def damaged(system: System, whole: Path, kind: str, folder: Path) -> str | None:
    """Damage the newest checkpoint: it is refused in one sentence, and the run goes on from the one before."""
    run = Path(shutil.copytree(whole, folder / "runs" / "run"))
    newest = checkpoints_in(run)[-1]
    damage(newest, kind, random.Random(kind))
    words = ("--resume", str(run), "--max-env-steps", "600")
    wrong = a_sentence(script(*words, name=system.script), (3,))
    if wrong:
        return wrong
    done = script(*words, "--resume-previous", name=system.script)
    return f"resumed: {done.stderr[-400:]}" if done.returncode else goes_on(folder, system)


def set_clock(system: System, by: float, folder: Path) -> str | None:
    """Set the wall clock of all its processes in the middle of a run that has a time limit."""
    began = time.monotonic()
    words = ("--max-minutes", str(CLOCK / 60.0))
    with going_on(folder, system, "begun", *words, TOY_CLOCK=str(by)) as run:
        ended = run.finish(CLOCK + 2.0 * IN_TIME)
    took = time.monotonic() - began
    said = summary(only_run(folder / "runs"))
    right = said["reason"] == "max-minutes" and CLOCK <= said["elapsed"] <= took + 1.0
    return wrong_end(ended, 0) or (None if right else f"{said['reason']} after {said['elapsed']} s, of {took:.1f} s")


Trial = tuple[str, Callable[[Path], str | None]]


def all_of(trials: Callable[[Path], Sequence[Trial]], folder: Path, count: int) -> Tally:
    """Make trials one after the other, each in a folder of its own; with a `count` that many of them."""
    folder.mkdir(exist_ok=True)

    def one(number: int, name: str, trial: Callable[[Path], str | None]) -> str | None:
        place = folder / f"{number}"
        place.mkdir()
        try:
            wrong = trial(place)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            wrong = f"{type(error).__name__}: {str(error)[-600:]}"
        return f"{name}: {wrong}" if wrong else None

    chosen = trials(folder)[: count or None]
    return try_all([partial(one, i, *named) for i, named in enumerate(chosen)], at_once=1)


def _kills(system: System, _: Path) -> list[Trial]:
    phases = [*system.phases, *(["last"] if system.ranks else [])]
    chosen = [(phase, victim) for phase in phases for victim in reversed(system.victims(phase))]
    return [
        (f"{victim}, {phase}", partial(killed, system, phase, victim))
        for phase, victim in chosen
        if (phase, victim) != ("last", "main")
    ]


def _presses(system: System, _: Path) -> list[Trial]:
    chosen = [(phase, presses) for phase in system.phases for presses in (1, 2)]
    return [(f"{presses} x, {phase}", partial(interrupted, system, phase, presses)) for phase, presses in chosen]


def _stops(system: System, _: Path) -> list[Trial]:
    phases = [phase for phase in system.phases if phase not in ("start", "evaluation")]
    stops = [(phase, victim) for phase in phases for victim in system.victims(phase) if victim != "main"]
    stops += [("learning", "main")] if system.ranks else []
    return [
        ("all, for a while", partial(paused, system)),
        *((f"{victim}, {phase}", partial(stopped, system, phase, victim)) for phase, victim in stops),
    ]


def _exceptions(system: System, _: Path) -> list[Trial]:
    chosen = [(what, victim) for what in system.breaks for victim in system.victims("learning")]
    if system.child.startswith("session"):
        chosen = [(what, victim) for what, victim in chosen if victim != "main"]  # which neither plays nor learns
    return [(f"{what}, {victim}", partial(broken, system, what, victim)) for what, victim in chosen]


def _files(system: System, folder: Path) -> list[Trial]:
    words = ("--checkpoint-env-steps", "100", "--stop-score", "None")
    whole = whole_run(folder / "whole", 400, *words, name=system.script, settings=system.words)
    size = checkpoints_in(whole)[-1].stat().st_size
    limits = [300, 1500, size // 2, size - 500]
    return [
        *((f"{limit:,} bytes", partial(full_disk, system, limit)) for limit in limits),
        *((kind, partial(damaged, system, whole, kind)) for kind in ("a bit", "zeros", "cut", "empty")),
        *((f"{by:+g} s", partial(set_clock, system, by)) for by in (3600.0, -3600.0)),
    ]


KINDS: Sequence[tuple[str, str, Callable[[System, Path], list[Trial]]]] = (
    ("kill -9 of each process in each phase", "a sentence in 10 s, nothing left, resumed", _kills),
    ("Ctrl-C, once and twice, in each phase", "exit code 130 in 10 s, nothing left, resumed", _presses),
    ("processes that are stopped", "counted as hung; all for a while, it goes on", _stops),
    ("exceptions in each process", "the traceback, or an environment's sentence, and resumed", _exceptions),
    ("full disks, damaged checkpoints, clocks", "a one-line error, resumed; time limits hold", _files),
)

ROWS = tuple(
    Row(
        f"{system.called}: {name}",
        holds,
        0,
        1 if system.child and make is _kills and system.number != "09" else 0,
        partial(all_of, partial(make, system)),
        (system.script,),
    )
    for system in SYSTEMS
    for name, holds, make in KINDS
)
