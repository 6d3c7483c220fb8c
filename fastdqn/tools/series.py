"""Series: a script run again and again, one process after the other, with other variants and seeds, and one picture."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.options.parts import VARIANTS, Variant
from fastdqn.options.presets import changed
from fastdqn.terminal import say
from fastdqn.tools.compare import notes_of, show, table_of
from fastdqn.tools.labels import grouped
from fastdqn.tools.plot import draw_curves
from fastdqn.tools.reading import RunData, read_run

GRACE_SECONDS = 2.0
"""For which a run has to hear of Ctrl-C by itself."""


def run_series(
    script: Path,
    words: Sequence[str],
    parse: Callable[[Sequence[str]], Any],
    variant: Variant | Literal["all"] | None,
    seeds: range,
    runs_dir: Path,
    game: str,
) -> int:
    """Run `script` once for each variant and seed; print a table, draw the curves.

    Every run is a process of its own, so that its clock begins with it. Ctrl-C ends the run that is going on and the
    series with it; what has finished is drawn all the same.

    Args:
        script: what to run.
        words: the command line; all of it but variant, seeds and folder goes to each run.
        parse: returns the options of a run for such words, or refuses them.
        variant: one of them, or all; None for the agent's own parts.
        seeds: of each variant.
        runs_dir: where the folder of the series is made.
        game: for the folder's name.

    Returns:
        0, the exit code of the run that ended the series, or 128 + the signal that did.

    Raises:
        UserError: one of the runs would be refused; none has begun then.
        RunError: the folder cannot be made.
    """
    common = without(words, "--variant", "--seed", "--seeds", "--runs-dir")
    if variant is None:
        alone = parse(common)
        named: dict[str, tuple[str, ...]] = {alone.dqn.agent: ()}
    else:
        tried = VARIANTS if variant == "all" else (variant,)
        kept = distinct({name: parse([*common, "--variant", name]) for name in tried})
        named = {name: ("--variant", name) for name in kept}
    folder = runs_dir / f"{datetime.now():%Y%m%d-%H%M%S}-{re.sub(r'[^A-Za-z0-9-]', '_', game)}-{script.stem}-series"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"Cannot make the folder {folder}: {error.strerror}.") from error
    left: list[Path] = []
    code = 0
    with process.running():
        for seed, name in itertools.product(seeds, named):
            say(f"--- {name}, seed {seed}")
            into = folder / f"{name}-{seed}"
            own = (*named[name], "--seed", str(seed), "--runs-dir", str(into))
            code = _finish(subprocess.Popen([sys.executable, str(script), *common, *own]))
            left += list(into.iterdir()) if into.is_dir() else []
            if code or process.stop_signal():
                break
    runs = _with_games(left)
    if runs:
        groups = grouped(runs)
        draw_curves(groups, folder / "curves.png")
        show(table_of(groups), notes_of(groups))
        say(f"written: {folder / 'curves.png'}")
    elif left:
        say("no game has ended in these runs, so that there is nothing to compare")
    return process.exit_code() or code


def distinct(variants: Mapping[Variant, Any]) -> tuple[Variant, ...]:
    """Return the variants whose runs differ, and say of each other one which it is: a game's preset may have a part."""
    kept: dict[Variant, Any] = {}
    for variant, options in variants.items():
        unnamed = changed(options, {"series": {"variant": "all"}})
        same = next((other for other, known in kept.items() if known == unnamed), None)
        if same is None:
            kept[variant] = unnamed
        else:
            say(f"{variant} is {same} with these options, and is left out")
    return tuple(kept)


def without(words: Sequence[str], *options: str) -> list[str]:
    """Return `words` without these options and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = True
        elif not any(word.startswith(f"{option}=") for option in options):
            kept.append(word)
    return kept


def _finish(child: subprocess.Popen[bytes]) -> int:
    """Wait for `child`, hand a signal on to it, and return its exit code. It ends where this process leaves at once."""
    asked: float | None = None
    passed_on = False
    try:
        with process.killing(child):
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(timeout=0.2)
                number = process.stop_signal()
                if number and asked is None:
                    asked = time.monotonic()
                # A terminal sends SIGINT to every process, and SIGHUP changes nothing beside another one.
                waits = number == signal.SIGINT and asked is not None and time.monotonic() - asked < GRACE_SECONDS
                if number and not waits and not passed_on:
                    passed_on = True
                    again = getattr(signal, "SIGHUP", None) if number == signal.SIGINT else number
                    if again is not None:
                        child.send_signal(again)
    finally:
        child.kill()


def _with_games(folders: Sequence[Path]) -> list[RunData]:
    """Return the runs that have finished a game."""
    runs: list[RunData] = []
    for folder in folders:
        with contextlib.suppress(UserError):
            runs.append(read_run(folder))
    return [run for run in runs if run.episodes]
