"""Trains 31 and Stable-Baselines3's soft actor-critic side by side: the same environment and settings, a core for each.

    python bench/beside_sb3.py --game HalfCheetah-v5 --max-env-steps 300000
    python bench/beside_sb3.py --only speed --repeats 3

Both learn at the same time, each in one PyTorch thread on a core of its own, so that a busy neighbour slows both. Then
each plays games with its mean action. A table, a picture of the games of training over env steps and minutes, and JSON
lines go to --out. `--only speed` takes turns instead, on all cores, and says updates/s alone. Needs Stable-Baselines3
(`pip install 'fastdqn[sb3]'`), and what the environment needs.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import contextlib
import dataclasses
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.lines import Write, lines_in
from bench.programs import ROOT, exit_code, said_by
from bench.sides import Side, ended, steady
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError
from fastdqn.runs.machine import environment
from fastdqn.tools.pictures import drawing, save_picture

BEGIN_SECONDS = 120.0  # within which 31 has its folder
WARMUP = 2.0  # seconds after the first update that do not count in a speed
OURS, THEIRS = "31", "Stable-Baselines3"
THEIRS_ALWAYS = {
    "adam_epsilon": 1e-8,
    "steps_per_update": 1,
    "newest_in_batch": False,
    "max_norm": None,
    "orthogonal": False,
}
"""What theirs has, whatever it is asked for: with other settings of 31 the two are not compared."""


@dataclasses.dataclass(frozen=True)
class Options:
    game: str = "Pendulum-v1"
    """An environment that Gymnasium knows, with continuous actions."""
    max_env_steps: int = 300_000
    """Env steps that each trains for."""
    seed: int = 0
    """Of both."""
    evaluation_games: int = 20
    """Games that each plays at the end, with its mean action."""
    only: Literal["both", "speed"] = "both"
    """speed: updates/s in turns, no scores."""
    seconds: float = 15.0
    """With --only speed: length of each turn after the first update."""
    repeats: int = 3
    """With --only speed: turns."""
    threads: int | None = None
    """With --only speed: PyTorch's threads; by default one for each core."""
    out: Path = ROOT / "bench" / "results"
    """Folder for JSON lines and picture."""


def ours(options: Options, runs: Path, words: list[str]) -> list[str]:
    """Return the command of 31."""
    command = [sys.executable, str(ROOT / "experiments" / "31_sac.py"), "--game", options.game, "--device", "cpu"]
    command += ["--seed", str(options.seed), "--max-env-steps", str(options.max_env_steps), "--stop-score", "None"]
    return [*command, "--no-checkpoints", "--runs-dir", str(runs), *words]


def theirs(options: Options, config: Mapping[str, Any], threads: int, games: int) -> list[str]:
    """Return the command of Stable-Baselines3, with the settings of 31's config.json.

    Raises:
        UserError: these have something that it cannot be told.
    """
    sac = config["sac"]
    if unlike := [name for name, value in THEIRS_ALWAYS.items() if sac.get(name, value) != value]:
        raise UserError(f"Stable-Baselines3 cannot be told --{unlike[0].replace('_', '-')} as 31 has it here.")
    names = ("learning_rate", "batch_size", "gamma", "replay_size", "replay_initial", "target_average")
    names += ("hidden", "temperature", "initial_temperature", "target_entropy")
    asked = {name: sac[name] for name in names}
    asked |= {"game": options.game, "seed": options.seed, "threads": threads, "env_steps": options.max_env_steps}
    asked |= {"evaluation_games": games, "evaluation_seed": 10_000 + options.seed}
    return [sys.executable, str(ROOT / "bench" / "sb3_sac.py"), json.dumps(asked)]


def config_of(runs: Path, side: Side) -> tuple[Path, dict[str, Any]]:
    """Return the folder of 31's run and its config.json, once it is there.

    Raises:
        RunError: it has failed, or takes too long.
    """
    deadline = time.monotonic() + BEGIN_SECONDS
    while time.monotonic() < deadline:
        side.check()
        for found in runs.glob("*/config.json"):
            with contextlib.suppress(ValueError):
                return found.parent, json.loads(found.read_text(encoding="utf-8"))
        time.sleep(0.2)
    raise RunError(f"31 has not begun within {BEGIN_SECONDS:g} s.")


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n"]


def learn(options: Options, console: Console, write: Write) -> dict[str, dict[str, Any]]:
    """Train both, evaluate both; return what was found of each."""
    cores = sorted(psutil.Process().cpu_affinity() or [0])
    own = [cores[0], cores[1]] if len(cores) > 1 else [None, None]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name, ended(sides := []):
        folder = Path(name)
        runs = folder / "runs"
        sides.append(Side(OURS, ours(options, runs, ["--threads", "1"]), folder, own[0]))
        run, config = config_of(runs, sides[0])
        sides.append(Side(THEIRS, theirs(options, config, 1, options.evaluation_games), folder, own[1]))
        said = 0.0
        while any(side.process.poll() is None for side in sides):
            for side in sides:
                side.check()
            if process.stop_signal():
                raise RunError("Stopped before both had finished.")
            if time.monotonic() >= said:
                said = time.monotonic() + 60.0
                counts = [(read(run / "speed.jsonl") or [{"env_steps": 0}])[-1]["env_steps"]]
                counts += [max((line.get("env_steps", 0) for line in sides[1].lines()), default=0)]
                console.print(f"{OURS}: {counts[0]:,} env steps, {THEIRS}: {counts[1]:,}, of {options.max_env_steps:,}")
            time.sleep(1.0)
        for side in sides:
            side.check()
        lines = sides[1].lines()
        command = [sys.executable, "-m", "fastdqn", "evaluate", str(run), "--games", str(options.evaluation_games)]
        command += ["--seed", str(10_000 + options.seed)]
        said_by(command, "The evaluation of 31")
        evaluations = sorted(run.glob("evaluation*.json*"))
        scores = json.loads(evaluations[-1].read_text(encoding="utf-8"))
        found[OURS] = side_of(read(run / "episodes.jsonl"), read(run / "speed.jsonl"), scores["scores"], OURS)
        kinds = {kind: [line for line in lines if line["kind"] == kind] for kind in ("episode", "speed", "evaluation")}
        found[THEIRS] = side_of(kinds["episode"], kinds["speed"], kinds["evaluation"][0]["scores"], THEIRS)
        write("settings", sac=config["sac"])
    for name, one in found.items():
        write("row", name=name, **one)
    return found


def side_of(
    episodes: list[dict[str, Any]], speeds: list[dict[str, Any]], scores: list[float], name: str
) -> dict[str, Any]:
    """Return what is kept of one side."""
    speeds = [{"samples": 0, **line} for line in speeds]
    found = {"updates_per_s": steady(speeds, WARMUP, name), "minutes": speeds[-1]["elapsed"] / 60.0}
    found |= {"env_steps": speeds[-1]["env_steps"], "evaluation": scores}
    played = [{key: line[key] for key in ("env_steps", "elapsed", "score")} for line in episodes]
    return {**found, "episodes": [{key: round(value, 2) for key, value in line.items()} for line in played]}


def time_both(options: Options, console: Console, write: Write) -> None:
    """Take turns on all cores, in each the other one first, and say updates/s."""
    threads = options.threads or process.cores()
    ratios: list[float] = []
    config: dict[str, Any] = {}
    for repeat in range(options.repeats):
        if repeat % 2 == 0:
            first, config = turn_of_ours(options, threads)
            second = turn_of_theirs(options, threads, config)
        else:
            second = turn_of_theirs(options, threads, config)
            first, config = turn_of_ours(options, threads)
        ratios.append(first / second)
        write("trial", repeat=repeat, threads=threads, ours=first, theirs=second)
        console.print(f"{repeat + 1}/{options.repeats}: {OURS} {first:.1f}, {THEIRS} {second:.1f} updates/s")
    write("row", threads=threads, ratios=ratios, ratio=statistics.median(ratios))
    console.print(f"{statistics.median(ratios):.2f} times as many updates/s, {threads} threads, median of the turns")


LONG = 1_000_000_000
"""Env steps of a turn: more than there is time for."""


def turn_of_ours(options: Options, threads: int) -> tuple[float, dict[str, Any]]:
    """Return the updates/s of 31, and its config.json."""
    words = ["--threads", str(threads), "--train-seconds", str(options.seconds + WARMUP), "--replay-initial", "300"]
    with tempfile.TemporaryDirectory() as name, ended(sides := []):
        folder = Path(name)
        runs = folder / "runs"
        sides.append(Side(OURS, ours(dataclasses.replace(options, max_env_steps=LONG), runs, words), folder))
        run, config = config_of(runs, sides[0])
        sides[0].process.wait()
        sides[0].check()
        return steady(read(run / "speed.jsonl"), WARMUP, OURS), config


def turn_of_theirs(options: Options, threads: int, config: Mapping[str, Any]) -> float:
    """Return the updates/s of Stable-Baselines3 with the settings of 31's config.json."""
    with tempfile.TemporaryDirectory() as name, ended(sides := []):
        command = theirs(dataclasses.replace(options, max_env_steps=LONG), config, threads, 0)
        sides.append(Side(THEIRS, command, Path(name)))
        return steady(sides[0].speeds_for(options.seconds + WARMUP), WARMUP, THEIRS)


@drawing()
def draw(found: Mapping[str, Mapping[str, Any]], title: str, path: Path) -> None:
    """Draw games of training, and their moving average, over env steps and over minutes."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, key, scale, label in zip(
        panels, ("env_steps", "elapsed"), (1.0, 60.0), ("env steps", "minutes"), strict=True
    ):
        for color, (name, one) in zip(("#4477aa", "#ee6677"), found.items(), strict=False):
            games = one["episodes"]
            x = [game[key] / scale for game in games]
            scores = [game["score"] for game in games]
            axes.plot(x, scores, ".", color=color, alpha=0.25, markersize=3)
            means = [statistics.fmean(scores[max(0, i - 9) : i + 1]) for i in range(len(scores))]
            axes.plot(x, means, color=color, label=f"{name}, mean of 10 games")
        axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("score of a game of training")
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=10)
    save_picture(figure, path, dpi=120)


def show(found: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    table = Table(title="A core for each, one thread", title_justify="left")
    for heading in ("", "env steps", "minutes", "updates/s", "last 10 games of training", "games with the mean action"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, one in found.items():
        scores, last = one["evaluation"], [game["score"] for game in one["episodes"]][-10:]
        error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
        table.add_row(
            name,
            f"{one['env_steps']:,}",
            f"{one['minutes']:.1f}",
            f"{one['updates_per_s']:.1f}",
            f"{statistics.fmean(last):,.1f}" if last else "-",  # no game of training has ended
            f"{statistics.fmean(scores):,.1f} ({error:,.1f})",
        )
    console.print(table)


def bench(options: Options) -> int:
    if min(options.max_env_steps, options.evaluation_games, options.repeats) < 1 or options.seconds <= 0:
        raise UserError("--max-env-steps, --evaluation-games, --repeats and --seconds must be above 0.")
    if importlib.util.find_spec("stable_baselines3") is None:
        raise UserError("Stable-Baselines3 is not installed: pip install 'fastdqn[sb3]'.")
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=True, width=150)  # a file or a pipe has room for every column
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-beside-sb3"
    stamp = environment(torch.device("cpu"))
    with lines_in(stem.with_suffix(".jsonl"), options, stamp) as write, process.running():
        if options.only == "speed":
            time_both(options, console, write)
        else:
            found = learn(options, console, write)
            draw(found, f"{options.game}, seed {options.seed}", stem.with_suffix(".png"))
            show(found, console)
    console.print(f"written: {stem}.jsonl")
    return 0


def main() -> int:
    return exit_code(lambda: bench(parsed(Options, sys.argv[1:], Options(), __doc__ or "")))


if __name__ == "__main__":
    sys.exit(main())
