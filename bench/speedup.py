"""How PPO and SAC speed up over ranks: 41 on CartPole-v1 and 42 on Pendulum-v1, with the published settings.

    python bench/speedup.py
    python bench/speedup.py --only sac --processes 1,2 --env-steps-each 4000
    python bench/speedup.py --only ppo --processes 1,2 --env-steps-each 4000 --total-rollout-steps 512 --batch-sizes 64
    python bench/speedup.py --batch-sizes 256,1024,4096 --hidden 64,256,1024 --processes 1,2

Each run has as many env steps a process, so n ranks do n times the work, and speed-up = (wall1 / walln) x (total n /
total 1), where the totals are env steps and the wall times are of whole runs, imports included. A plain run (33 without
a thread, and 31) has the settings of one rank. For each algorithm there are four figures: the mean score of 100 games
over env steps a process, over env steps in total and over wall time, and bars of the speed-ups beside the ideal.
Several batch or network sizes make all runs once for each, and a figure of the speed-up of the most ranks over them.
JSON lines, the figures and the folders of the runs go to --out, and so do two GIFs of the most ranks' agent, one as it
began and one as it has become, where pygame is installed.

Each run is made once. Speeds in turns, of PPO on Pong too, are what bench/fps.py measures.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.lines import lines_in
from bench.lists import names, whole_numbers
from bench.programs import ROOT, exit_code, said_by
from fastdqn import process
from fastdqn.cli.parser import parsed
from fastdqn.cli.watch import Watch, watch
from fastdqn.errors import UserError
from fastdqn.options.actor_critic import PPOOptions
from fastdqn.options.ranks import published_changes
from fastdqn.options.sac import SACOptions
from fastdqn.runs.machine import environment
from fastdqn.tools.pictures import drawing, save_picture

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
    processes: str = "1,2,4,8"
    """Numbers of processes, separated by commas; 1 is the one that others are compared with, and is run anyway."""
    env_steps_each: int | None = None
    """Env steps a process; by default the published 100,000 for PPO and 10,000 for SAC."""
    total_rollout_steps: int | None = None
    """Env steps of a rollout of PPO, of all processes together, unlike --rollout-steps of the script itself; by default
    the published 32,768. No run has fewer env steps than a rollout."""
    threads: int = 1
    """PyTorch threads of each process."""
    batch_sizes: str = ""
    """Samples of a process for each update, separated by commas; by default the published 4,096 and 2,048."""
    hidden: str = ""
    """Units of the hidden layers, separated by commas; by default 64 for PPO and 256 for SAC."""
    seed: int = 0
    """Of all runs."""
    out: Path = ROOT / "bench" / "results"
    """Folder for JSON lines, figures, GIFs and the folders of the runs."""


class Trial(NamedTuple):
    """A run, and how its score rose."""

    world: int  # or PLAIN
    wall: float  # seconds, imports included
    total: int  # env steps of all ranks
    updates: int
    curve: list[tuple[int, float, float]]  # env steps in total, seconds, mean score of 100 games, wherever games ended


def sizes_of(name: str, options: SpeedupOptions) -> list[dict[str, int]]:
    """Return the batch and network sizes that an algorithm is run with, in turn: one without any, for its own, where
    none are asked for.

    Raises:
        UserError: they are no numbers.
    """
    if not (options.batch_sizes or options.hidden):
        return [{}]
    algorithm = ALGORITHMS[name]
    published = published_changes(algorithm.game, 1, name == "sac")[algorithm.group]["batch_size"]
    usual = PPOOptions().hidden if name == "ppo" else SACOptions().hidden
    batches = whole_numbers(options.batch_sizes, "--batch-sizes") if options.batch_sizes else [published]
    units = whole_numbers(options.hidden, "--hidden") if options.hidden else [usual]
    return [{"batch_size": batch, "hidden": hidden} for batch, hidden in itertools.product(batches, units)]


def worlds_of(options: SpeedupOptions) -> list[int]:
    """Return the numbers of processes, 1 among them.

    Raises:
        UserError: they are no numbers.
    """
    return sorted({1, *whole_numbers(options.processes, "--processes")})


def planned(options: SpeedupOptions) -> Iterator[tuple[str, dict[str, int], int]]:
    """Yield algorithm, sizes and number of processes of every run.

    Raises:
        UserError: an option makes no sense.
    """
    algorithms = names(options.only, "--only", ALGORITHMS, "algorithm here")
    given = [
        size for size in (options.threads, options.env_steps_each, options.total_rollout_steps) if size is not None
    ]
    if min(given) < 1:
        raise UserError("--threads, --env-steps-each and --total-rollout-steps must be at least 1.")
    for name in algorithms:
        for varied in sizes_of(name, options):
            yield from ((name, varied, world) for world in (PLAIN, *worlds_of(options)))


def command_of(name: str, world: int, options: SpeedupOptions, varied: Mapping[str, int], folder: str) -> list[str]:
    """Return the command line of a run; its settings are the published ones, word by word."""
    algorithm, ranks = ALGORITHMS[name], max(world, 1)
    changes = {key: dict(values) for key, values in published_changes(algorithm.game, ranks, name == "sac").items()}
    if options.env_steps_each is not None:
        changes["run"]["max_env_steps"] = options.env_steps_each * ranks
    if name == "ppo" and options.total_rollout_steps is not None:
        changes["ppo"]["rollout_steps"] = max(1, options.total_rollout_steps // ranks)
    changes[algorithm.group] |= varied
    if name == "sac":
        changes["sac"]["replay_initial"] = max(1, changes["sac"]["replay_initial"])
    script, *words = (algorithm.script,) if world != PLAIN else algorithm.plain
    for setting, value in itertools.chain.from_iterable(values.items() for values in changes.values()):
        option = setting.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    if world == PLAIN and name == "sac":
        words += ["--steps-per-update", "1"]
    ranked = ["--processes", str(world)] if world != PLAIN else []
    common = ["--game", algorithm.game, "--device", "cpu", "--threads", str(options.threads), "--no-checkpoints"]
    common += ["--seed", str(options.seed), "--runs-dir", folder, "--log-seconds", "5"]
    return [sys.executable, str(ROOT / "experiments" / f"{script}.py"), *words, *ranked, *common]


def trial_of(name: str, world: int, options: SpeedupOptions, varied: Mapping[str, int], folder: Path) -> Trial:
    """Run once; the run's folder is the only one in `folder`.

    Raises:
        RunError: it failed.
    """
    command = command_of(name, world, options, varied, str(folder))
    said_by(command, Path(command[1]).stem)
    run = next(folder.iterdir())
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


@drawing()
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
        save_picture(figure, written[-1], dpi=120)
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
    save_picture(figure, written[-1], dpi=120)
    return written


def places_of(trial: Trial, point: tuple[int, float, float]) -> dict[str, float]:
    """Return where a point of a curve lies on each of the three axes."""
    env_steps, seconds, _ = point
    return {"process": env_steps / max(trial.world, 1), "total": env_steps, "time": seconds}


def lines_of_sizes(gains: Mapping[tuple[int, int], float]) -> tuple[str, dict[str, list[tuple[int, float]]]]:
    """Return what the speed-ups by batch and network size are drawn over, batches unless there is but one size of them,
    and a line of points for each of the others.
    """
    over = 0 if len({batch for batch, _ in gains}) > 1 else 1
    lines: dict[str, list[tuple[int, float]]] = {}
    for sizes, gain in sorted(gains.items()):
        other = f"{sizes[1]} units" if over == 0 else f"batches of {sizes[0]}"
        lines.setdefault(other, []).append((sizes[over], gain))
    return ("batch of each process", "units of each hidden layer")[over], lines


@drawing()
def draw_sizes(name: str, gains: Mapping[tuple[int, int], float], world: int, threads: int, path: Path) -> None:
    """Draw the speed-up of the most ranks over batch or network sizes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    panel: Any = figure.subplots()
    words, lines = lines_of_sizes(gains)
    for other, points in lines.items():
        panel.plot(*zip(*points, strict=True), "o-", label=other)
    panel.axhline(world, color="gray", linestyle=":", label="ideal")
    panel.set_xscale("log", base=2)
    machine = f"{process.cores()} cores, {threads} thread{'s' if threads > 1 else ''} each"
    panel.set(xlabel=words, ylabel=f"speed-up of {world} processes")
    panel.set_title(_title(ALGORITHMS[name], machine))
    panel.legend()
    save_picture(figure, path, dpi=120)


def draw_games(run: Path, stem: Path) -> None:
    """Let `fastdqn watch` draw a game of a run's agent as it began, and one as it has become.

    Raises:
        UserError: what draws the game is not installed.
    """
    for kind in ("untrained", "trained"):
        watch(Watch(run, out=stem.with_name(f"{stem.name}-{kind}.gif"), untrained=kind == "untrained"))


def _title(algorithm: Algorithm, machine: str) -> str:
    return f"{algorithm.title} on {algorithm.game}, {machine}"


def bench(options: SpeedupOptions) -> int:
    plan = list(planned(options))
    console = Console(highlight=False, soft_wrap=True, markup=False)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-speedup.jsonl"
    gains: dict[str, dict[tuple[int, int], float]] = {}
    with lines_in(path, options, environment(torch.device("cpu"))) as write:
        for (name, sizes), runs in itertools.groupby(plan, lambda run: (run[0], tuple(run[1].items()))):
            varied = dict(sizes)
            called = "-".join([name, *(f"{setting[0]}{value}" for setting, value in sizes)])
            trials: list[Trial] = []
            for _, _, world in runs:
                trials.append(trial_of(name, world, options, varied, path.with_suffix("") / f"{called}-{world}"))
                write("trial", algorithm=name, **varied, **trials[-1]._asdict())
            found = speed_ups(trials)
            write("row", algorithm=name, **varied, speed_ups=found)
            more = "".join(f", {setting.replace('_', ' ')} {value}" for setting, value in sizes)
            console.print("\n".join([f"{ALGORITHMS[name].title}{more}", *said(trials)]))
            if varied:
                gains.setdefault(name, {})[varied["batch_size"], varied["hidden"]] = found[trials[-1].world]
            stem = path.with_name(f"{path.stem}-{called}")
            for figure in draw(name, trials, options.threads, stem):
                console.print(f"written: {figure}")
            try:
                draw_games(next((path.with_suffix("") / f"{called}-{trials[-1].world}").iterdir()), stem)
            except UserError as error:
                console.print(f"no GIFs: {error} The runs stay in {path.with_suffix('')}, for fastdqn watch.")
    for name, by_size in gains.items():
        if len(by_size) > 1:
            drawn = path.with_name(f"{path.stem}-{name}-sizes.png")
            draw_sizes(name, by_size, worlds_of(options)[-1], options.threads, drawn)
            console.print(f"written: {drawn}")
    console.print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: bench(parsed(SpeedupOptions, sys.argv[1:], SpeedupOptions(), __doc__ or ""))))
