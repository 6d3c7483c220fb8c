"""Times CleanRL's DQN, Rainbow and PPO on an Atari game, and the scripts here that learn alike, in turns.

    python bench/beside_cleanrl.py ~/cleanrl
    python bench/beside_cleanrl.py ~/cleanrl --only rainbow --repeats 5

CLEANRL is a checkout of its repository (github.com/vwxyzjn/cleanrl). Its scripts run with the packages that are
installed here; what these no longer take is changed (bench/cleanrl_script.py). Both sides learn from as many samples
for each env step, which is checked, act at their final epsilon, and take as many threads as they do by default. Only
the steady state counts, from some seconds after the first update on. DQN and Rainbow are timed here twice: with
CleanRL's update, 32 transitions every 4 env steps, and with 128 every 16. CleanRL computes in float32; ours does where
the processor has no bf16, or with `-- --precision fp32`: options after -- go to our scripts.

A table goes to the terminal, JSON lines to --out.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench import fps
from bench.fps_figures import ratios, steady_state
from bench.fps_ladder import Row, chosen
from bench.lines import Write, lines_in
from bench.lists import names
from bench.programs import ROOT, exit_code
from bench.sides import Side, ended
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import gymnasium_id, rom_of
from fastdqn.errors import RunError, UserError
from fastdqn.runs.machine import environment
from fastdqn.terminal import console_for_tables

WARMUP = 3.0  # seconds after the first update that do not count
PATIENCE = 300.0  # within which there is a first one
FILLED = 1_000  # env steps before it; fewer than by default, their number does not change the speed
SAME = 0.05  # by which samples for each env step may differ: a turn ends somewhere between two updates


@dataclasses.dataclass(frozen=True)
class Pair:
    """What is compared."""

    theirs: str  # the script
    words: tuple[str, ...]  # its options
    batch_size: int  # of its updates
    ours: tuple[str, ...]  # as bench/fps.py --only takes them


LEARNS = ("--learning-starts", str(FILLED), "--buffer-size", "100000")
PAIRS = {
    "dqn": Pair(
        "dqn_atari",
        (*LEARNS, "--start-e", "0.01"),
        32,
        ("09 --batch-size 8 --steps 4 --num-envs 4", "09 --batch-size 8 --steps 16 --num-envs 16"),
    ),
    "rainbow": Pair(
        "rainbow_atari",
        LEARNS,
        32,
        (
            "10 --variant rainbow --batch-size 8 --steps 4 --num-envs 4",
            "10 --variant rainbow --batch-size 8 --steps 16 --num-envs 16",
        ),
    ),
    "ppo": Pair("ppo_atari", (), 256, ("41",)),
}


@dataclasses.dataclass(frozen=True)
class Options:
    cleanrl: tyro.conf.Positional[Path]
    """Folder with a checkout of CleanRL."""
    only: str = ",".join(PAIRS)
    """Which algorithms, separated by commas."""
    game: str = "pong"
    """Which Atari game."""
    seconds: float = 15.0
    """Length of the steady state that is measured, in each turn."""
    repeats: int = 3
    """Turns."""
    extra: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Options for our scripts: what stands after -- on the command line."""
    out: Path = ROOT / "bench" / "results"
    """Folder for the JSON lines."""


def commit_of(checkout: Path) -> str | None:
    """Return the commit of a checkout; None if it is none, as of an archive."""
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return None
    return said or None


def time_theirs(pair: Pair, options: Options, game: str) -> dict[str, Any]:
    """Run CleanRL's script and return its steady-state figures.

    Raises:
        RunError: it failed, or made no update in time.
    """
    with tempfile.TemporaryDirectory() as name, ended(sides := []):
        folder = Path(name)
        command = [
            sys.executable,
            str(ROOT / "bench" / "cleanrl_script.py"),
            str(options.cleanrl.resolve()),
            name,
            pair.theirs,
        ]
        command += ["--env-id", game, "--no-cuda", *pair.words]
        sides.append(Side(pair.theirs, command, folder))
        lines = sides[0].speeds_for(options.seconds + WARMUP, PATIENCE)
    steady = steady_state(lines, WARMUP, pair.theirs)
    steady["batch_size"] = float(pair.batch_size)
    steady["samples_per_step"] = steady["updates_per_s"] * pair.batch_size / steady["env_steps_per_s"]
    return steady


def as_much(trial: dict[str, Any], beside: dict[str, Any], label: str) -> None:
    """Raise RunError if two do not learn from as many samples for each env step: their speeds say nothing then."""
    samples, others = trial["samples_per_step"], beside["samples_per_step"]
    if abs(samples / others - 1.0) > SAME:
        raise RunError(
            f"{label} learns from {samples:.2f} samples for each env step, CleanRL's script from {others:.2f}: their "
            "speeds are not to be compared."
        )


def turns(algorithm: str, options: Options, write: Write, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Time one algorithm; return one dict for each row of the table, CleanRL's first."""
    pair = PAIRS[algorithm]
    rows: list[Row] = [row for words in pair.ours for row in chosen(words)]
    speeds: dict[str, list[dict[str, Any]]] = {name: [] for name in (pair.theirs, *(row.label for row in rows))}
    fps_options = fps.BenchOptions(
        game=options.game, seconds=options.seconds, warmup=WARMUP, replay_initial=FILLED, extra=options.extra
    )
    game = gymnasium_id(rom_of(options.game))
    for repeat in range(options.repeats):
        for name in speeds if repeat % 2 == 0 else reversed(speeds):  # none always follows the same one
            if process.stop_signal():
                raise RunError("Stopped before the turn was over.")
            row = next((row for row in rows if row.label == name), None)
            trial = fps.time_script(row, fps_options, "cpu") if row else time_theirs(pair, options, game)
            speeds[name].append(trial)
            write("trial", repeat=repeat, algorithm=algorithm, row=name, **trial)
            say(f"turn {repeat + 1}/{options.repeats}: {name} {trial['env_steps_per_s']:,.1f} env steps/s")
        for row in rows:
            as_much(speeds[row.label][-1], speeds[pair.theirs][-1], row.label)
    theirs = [trial["env_steps_per_s"] for trial in speeds[pair.theirs]]
    found: list[dict[str, Any]] = []
    for name, trials in speeds.items():
        each = [trial["env_steps_per_s"] for trial in trials]
        samples = statistics.median(trial["samples_per_step"] for trial in trials)
        figures = {"env_steps_per_s": each, "samples_per_step": samples, "ratios": ratios(each, theirs)}
        found.append({"row": name, "theirs": name == pair.theirs, **figures})
        write("row", algorithm=algorithm, **found[-1])
    return found


def spread(values: list[float], digits: int) -> str:
    """Return the median and, in brackets, the range."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}-{high})"


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Medians of the turns, and their ranges", title_justify="left")
    for heading in ("", "env steps/s", "samples for each", "x CleanRL"):
        table.add_column(heading, justify="left" if not heading else "right")
    for row in rows:
        speeds, samples = spread(row["env_steps_per_s"], 0), f"{row['samples_per_step']:.1f}"
        theirs = row["theirs"]
        label, beside = (f"{row['row']} (CleanRL)", "") if theirs else (row["row"], spread(row["ratios"], 2))
        table.add_row(label, speeds, samples, beside)
    return table


def bench(options: Options) -> int:
    if options.repeats < 1 or options.seconds <= 0:
        raise UserError("--repeats and --seconds must be above 0.")
    fps.check_one_game(options.extra)
    algorithms = names(options.only, "--only", PAIRS, "algorithm")
    if missing := [
        one for one in algorithms if not (options.cleanrl / "cleanrl" / f"{PAIRS[one].theirs}.py").is_file()
    ]:
        script = f"cleanrl/{PAIRS[missing[0]].theirs}.py"
        raise UserError(f"{options.cleanrl} is no checkout of CleanRL: it has no {script}.")
    rom_of(options.game)
    console = console_for_tables()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-beside-cleanrl.jsonl"
    stamp = {**environment(torch.device("cpu")), "cleanrl": commit_of(options.cleanrl)}
    shown = dataclasses.replace(options, cleanrl=Path(options.cleanrl.name))
    rows: list[dict[str, Any]] = []

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)

    with lines_in(path, shown, stamp) as write, process.running():
        for algorithm in algorithms:
            rows += turns(algorithm, options, write, say)
    console.print(table_of(rows))
    say(f"written: {path}")
    return 0


def main() -> int:
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)

    def work() -> int:
        options: Any = parsed(Options, words[:end], None, __doc__ or "")
        return bench(dataclasses.replace(options, extra=tuple(words[end + 1 :])))

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
