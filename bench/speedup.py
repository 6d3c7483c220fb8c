"""How PPO and SAC speed up over ranks: 41 on CartPole-v1 and 42 on Pendulum-v1, with the published settings.

    python bench/speedup.py
    python bench/speedup.py --only sac --worlds 1,2 --env-steps 2000
    python bench/speedup.py --only ppo --worlds 1,2 --env-steps 4000 --rollout-steps 512 --batch-sizes 64
    python bench/speedup.py --batch-sizes 256,1024,4096 --hidden 64,256,1024 --worlds 1,2

Each run has as many env steps a process, so n ranks do n times the work, and speed-up = (wall1 / walln) x (total n /
total 1), where the totals are env steps and the wall times are of whole runs, imports included. A plain run (33 without
a thread, and 31) has the settings of one rank. For each algorithm there are four figures: the mean score of 100 games
over env steps a process, over env steps in total and over wall time, and bars of the speed-ups beside the ideal.
Several batch or network sizes make all runs once for each, and a figure of the speed-up of the most ranks over them.
JSON lines, and the figures, go to --out.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.fps import exit_code
from bench.scaling import numbers
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError
from fastdqn.options.ranks import published_changes
from fastdqn.runs.machine import environment

ROOT = Path(__file__).resolve().parent.parent
PLAIN = 0
"""Stands for the run without ranks."""


class Algorithm(NamedTuple):
    """What is timed."""

    title: str
    game: str
    script: str
    plain: tuple[str, ...]  # the script without ranks, and what makes it one
    group: str  # of its options


ALGORITHMS = {
    "ppo": Algorithm(
        "PPO", "CartPole-v1", "41_ppo_ranks", ("33_trainer_thread", "--algorithm", "ppo", "--no-trainer-thread"), "ppo"
    ),
    "sac": Algorithm("SAC", "Pendulum-v1", "42_sac_ranks", ("31_sac",), "sac"),
}


@dataclasses.dataclass(frozen=True)
class SpeedupOptions:
    only: str = "ppo,sac"
    """Algorithms, separated by commas."""
    worlds: str = "1,2,4,8"
    """Numbers of processes, separated by commas; 1 is the one that others are compared with, and is run anyway."""
    env_steps: int | None = None
    """Env steps a process; by default the published 100,000 for PPO and 10,000 for SAC."""
    rollout_steps: int | None = None
    """Env steps of a rollout of PPO, of all processes together; by default the published 32,768. No run has fewer env
    steps than a rollout."""
    threads: int = 1
    """PyTorch threads of each process."""
    batch_sizes: str = ""
    """Samples of a process for each update, separated by commas; by default the published 4,096 and 2,048."""
    hidden: str = ""
    """Units of the hidden layers, separated by commas; by default 64 for PPO and 256 for SAC."""
    seed: int = 0
    """Of all runs."""
    out: Path = ROOT / "bench" / "results"
    """Folder for JSON lines and figures."""


class Trial(NamedTuple):
    """A run, and how its score rose."""

    world: int  # or PLAIN
    wall: float  # seconds, imports included
    total: int  # env steps of all ranks
    updates: int
    curve: list[tuple[int, float, float]]  # env steps in total, seconds, mean score of 100 games, wherever games ended


def command_of(name: str, world: int, options: SpeedupOptions, varied: Mapping[str, int], folder: str) -> list[str]:
    """Return the command line of a run; its settings are the published ones, word by word."""
    algorithm, ranks = ALGORITHMS[name], max(world, 1)
    changes = {key: dict(values) for key, values in published_changes(algorithm.game, ranks, name == "sac").items()}
    if options.env_steps is not None:
        changes["run"]["max_env_steps"] = options.env_steps * ranks
    if name == "ppo" and options.rollout_steps is not None:
        changes["ppo"]["rollout_steps"] = max(1, options.rollout_steps // ranks)
    changes[algorithm.group] |= varied
    if name == "sac":
        changes["sac"]["replay_initial"] = max(1, changes["sac"]["replay_initial"])
    script, *words = (algorithm.script,) if world != PLAIN else algorithm.plain
    for setting, value in itertools.chain.from_iterable(values.items() for values in changes.values()):
        words += [f"--{setting.replace('_', '-')}", str(value)]
    if world == PLAIN and name == "sac":
        words += ["--steps-per-update", "1"]
    ranked = ["--processes", str(world)] if world != PLAIN else []
    common = ["--game", algorithm.game, "--device", "cpu", "--threads", str(options.threads), "--no-checkpoints"]
    common += ["--seed", str(options.seed), "--runs-dir", folder, "--log-seconds", "5"]
    return [sys.executable, str(ROOT / "experiments" / f"{script}.py"), *words, *ranked, *common]


def trial_of(name: str, world: int, options: SpeedupOptions, varied: Mapping[str, int]) -> Trial:
    """Run once.

    Raises:
        RunError: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(name, world, options, varied, folder)
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode != 0:
            raise RunError(f"{Path(command[1]).stem} failed with exit code {done.returncode}:\n{done.stderr.strip()}")
        run = next(Path(folder).iterdir())
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (run / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]
    return Trial(world, summary["elapsed"], summary["env_steps"], summary["updates"], curve_of(lines))


def curve_of(games: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, float]]:
    """Return the curve of a run's games; those of a rollout are one point of it, since all are counted at its end."""
    last = {game["env_steps"]: game for game in games if game["mean_100"] is not None}
    return [(env_steps, game["elapsed"], game["mean_100"]) for env_steps, game in last.items()]


def speed_ups(trials: Sequence[Trial]) -> dict[int, float]:
    """Return (wall1 / walln) x (total n / total 1) of each number of ranks n."""
    one = next(trial for trial in trials if trial.world == 1)
    return {trial.world: one.wall / trial.wall * trial.total / one.total for trial in trials if trial.world != PLAIN}


def said(trials: Sequence[Trial]) -> list[str]:
    """Return the lines that are printed of the trials of an algorithm."""
    lines = ["Run times"]
    lines += [f"  {label(trial.world)}: {trial.wall:.1f} s, {trial.total:,} env steps" for trial in trials]
    return [*lines, "Speedups", *(f"  {label(world)}: {gain:.2f}" for world, gain in speed_ups(trials).items())]


def label(world: int) -> str:
    """Return what a number of processes is called."""
    return "plain" if world == PLAIN else "1 process" if world == 1 else f"{world} processes"


def draw(name: str, trials: Sequence[Trial], threads: int, stem: Path) -> list[Path]:
    """Draw the four figures of an algorithm; return where they are."""
    from matplotlib.figure import Figure

    algorithm, machine = ALGORITHMS[name], f"{process.cores()} cores, {threads} thread{'s' if threads > 1 else ''} each"
    axes = {
        "process": "env steps a process",
        "total": "env steps of all processes",
        "time": "wall time, s",
    }
    written: list[Path] = []
    for kind, words in axes.items():
        figure = Figure(figsize=(7.0, 4.5), layout="constrained")
        panel: Any = figure.subplots()
        for trial in trials:
            line = "--" if trial.world == PLAIN else "-"
            across = [places_of(trial, point)[kind] for point in trial.curve]
            panel.plot(
                across,
                [point[2] for point in trial.curve],
                line,
                marker=".",
                zorder=3 if trial.world == PLAIN else 2,
                label=label(trial.world),
            )
        panel.set(xlabel=words, ylabel="mean score of 100 games", title=_title(algorithm, machine))
        panel.legend()
        written.append(stem.with_name(f"{stem.name}-{kind}.png"))
        figure.savefig(written[-1], dpi=120)
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    panel = figure.subplots()
    gains = speed_ups(trials)
    places = list(range(len(gains)))
    panel.bar([place - 0.2 for place in places], list(gains.values()), 0.4, label="measured")
    panel.bar([place + 0.2 for place in places], list(gains), 0.4, label="ideal", color="lightgray")
    panel.set_xticks(places, [str(world) for world in gains])
    panel.set(xlabel="processes", ylabel="speed-up", title=_title(algorithm, machine))
    panel.legend()
    written.append(stem.with_name(f"{stem.name}-speedup.png"))
    figure.savefig(written[-1], dpi=120)
    return written


def places_of(trial: Trial, point: tuple[int, float, float]) -> dict[str, float]:
    """Return where a point of a curve lies on each of the three axes."""
    env_steps, seconds, _ = point
    return {"process": env_steps / max(trial.world, 1), "total": env_steps, "time": seconds}


def draw_sizes(name: str, gains: Mapping[tuple[int, int], float], world: int, threads: int, path: Path) -> None:
    """Draw the speed-up of the most ranks over batch sizes, a line for each network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    panel: Any = figure.subplots()
    for hidden in sorted({hidden for _, hidden in gains}):
        points = sorted((batch, gain) for (batch, other), gain in gains.items() if other == hidden)
        panel.plot(*zip(*points, strict=True), "o-", label=f"{hidden} units")
    panel.axhline(world, color="gray", linestyle=":", label="ideal")
    panel.set_xscale("log", base=2)
    machine = f"{process.cores()} cores, {threads} thread{'s' if threads > 1 else ''} each"
    panel.set(xlabel="batch of each process", ylabel=f"speed-up of {world} processes")
    panel.set_title(_title(ALGORITHMS[name], machine))
    panel.legend()
    figure.savefig(path, dpi=120)


def _title(algorithm: Algorithm, machine: str) -> str:
    return f"{algorithm.title} on {algorithm.game}, {machine}"


def bench(options: SpeedupOptions) -> int:
    names = [name.strip() for name in options.only.split(",")]
    if unknown := [name for name in names if name not in ALGORITHMS]:
        raise UserError(f"--only {unknown[0]}: there is no such algorithm here; there are {', '.join(ALGORITHMS)}.")
    worlds = sorted({1, *numbers(options.worlds, "--worlds")})
    given = [size for size in (options.threads, options.env_steps, options.rollout_steps) if size is not None]
    if min(given) < 1:
        raise UserError("--threads, --env-steps and --rollout-steps must be at least 1.")
    sizes: list[list[dict[str, int]]] = [
        [{setting: size} for size in numbers(words, option)] if words else [{}]
        for setting, words, option in (
            ("batch_size", options.batch_sizes, "--batch-sizes"),
            ("hidden", options.hidden, "--hidden"),
        )
    ]
    console = Console(highlight=False, soft_wrap=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-speedup.jsonl"
    settings = {name: str(value) for name, value in dataclasses.asdict(options).items() if name != "out"}
    with path.open("w", encoding="utf-8", buffering=1) as file:

        def write(kind: str, **values: Any) -> None:
            file.write(json.dumps({"kind": kind, **values}) + "\n")

        write("environment", options=settings, **environment(torch.device("cpu")))
        for name in names:
            gains: dict[tuple[int, int], float] = {}
            for batch, hidden in itertools.product(*sizes):
                varied = {**batch, **hidden}
                trials: list[Trial] = []
                for world in (PLAIN, *worlds):
                    trials.append(trial_of(name, world, options, varied))
                    write("trial", algorithm=name, **varied, **trials[-1]._asdict())
                found = speed_ups(trials)
                write("row", algorithm=name, **varied, speed_ups=found)
                more = "".join(f", {setting.replace('_', ' ')} {value}" for setting, value in varied.items())
                console.print("\n".join([f"{ALGORITHMS[name].title}{more}", *said(trials)]))
                gains[varied.get("batch_size", 0), varied.get("hidden", 0)] = found[worlds[-1]]
                stem = "-".join([path.stem, name, *(f"{setting[0]}{value}" for setting, value in varied.items())])
                for figure in draw(name, trials, options.threads, options.out / stem):
                    console.print(f"written: {figure}")
            if len(gains) > 1:
                drawn = options.out / f"{path.stem}-{name}-sizes.png"
                draw_sizes(name, gains, worlds[-1], options.threads, drawn)
                console.print(f"written: {drawn}")
    console.print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: bench(parsed(SpeedupOptions, sys.argv[1:], SpeedupOptions(), __doc__ or ""))))
