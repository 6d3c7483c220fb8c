"""The command `fastdqn`: evaluate, watch, plot and compare runs, and list the games.

    fastdqn evaluate runs/20261121-...-pong-... --protocol nature
    fastdqn watch latest --out pong.mp4 --values
    fastdqn plot runs/*pong* --out pong.png
    fastdqn compare runs/*pong*
    fastdqn games

Only what a command needs is imported once it is known which, so that --help answers at once.
"""

from __future__ import annotations

import fastdqn.process  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError

if TYPE_CHECKING:
    from fastdqn.tools.plot import RunData

RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional]
RunFolder = Annotated[Path, tyro.conf.Positional]


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play whole games with a trained network under a named protocol, and say what it scores."""

    run: RunFolder
    """Folder of the run, or "latest" for the newest in runs."""
    protocol: Literal["training", "nature", "nature-steps", "machado"] = "training"
    """training: as the run was trained; nature: 30 no-ops, epsilon 0.05, 5 minutes a game, 30 games; nature-steps: the
    same for 125,000 env steps; machado: sticky actions 0.25, all 18 actions, 100 games."""
    episodes: int | None = None
    """Games to count; by default the protocol's."""
    env_steps: int | None = None
    """Count the games that begin within so many env steps, instead."""
    epsilon: float | None = None
    """Share of random actions; by default the protocol's."""
    num_envs: int = 8
    """Games played at once."""
    seed: int = 0
    """Of games and random actions."""
    device: str = "cpu"
    """Where the network is evaluated: cpu, cuda, cuda:N, mps or auto."""
    max_minutes: float | None = None
    """Stop after this many minutes with what has finished."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """Record one game of a trained network as a video."""

    run: RunFolder
    """Folder of the run, or "latest" for the newest in runs."""
    out: Path = Path("watch.mp4")
    """The video: .mp4 or .gif."""
    values: bool = False
    """Draw the value of each action beside the screen."""
    epsilon: float | None = None
    """Share of random actions; by default the run's final one."""
    seed: int = 0
    """Of the game and of random actions."""
    max_env_steps: int = 27_000
    """Longest video (27,000 env steps are 30 minutes); a GIF has at most 1,500."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs; those that differ in their seed alone become a mean and a band."""

    runs: RunFolders
    """Folders of runs."""
    out: Path = Path("learning_curves.png")
    """The picture: PNG, SVG or PDF, by its ending."""
    what: Literal["score", "speed"] = "score"
    """Scores, or env steps/s."""
    each: bool = False
    """A curve for each run, also where only the seeds differ."""
    games: int = 100
    """Games whose mean score is drawn; fewer show a short run's end sooner."""


@dataclasses.dataclass(frozen=True)
class Compare:
    """Print a table of runs: solved or not, time, env steps, speed, score, and the options in which they differ."""

    runs: RunFolders
    """Folders of runs."""


@dataclasses.dataclass(frozen=True)
class Games:
    """List the Atari games: names, actions, and the scores of people and of random play."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """Only those whose name contains this."""


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        words = sys.argv[1:]
        options: Any = parsed(Evaluate | Watch | Plot | Compare | Games, words, None, __doc__ or "", "fastdqn")
        doing: Any = {Evaluate: _evaluate, Watch: _watch, Plot: _plot, Compare: _compare, Games: _games}
        code: int = doing[type(options)](options)
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return code


def folder_of(run: Path) -> Path:
    """Return the folder that `run` means; "latest" is the newest in runs.

    Raises:
        UserError: there is no run at all.
    """
    if str(run) != "latest":
        return run
    found = sorted(Path("runs").rglob("config.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError("There is no run in the folder runs; name the folder of one.")
    return found[-1].parent


def _runs_of(folders: Sequence[Path]) -> list[RunData]:
    """Return the runs in `folders`, those of a series one by one; what cannot be drawn is named and left out.

    Raises:
        UserError: nothing is left.
    """
    from fastdqn.tools.plot import read_run

    runs: list[RunData] = []
    why: list[UserError] = []
    for folder in map(folder_of, folders):
        inside = sorted(path.parent for path in folder.glob("*/*/config.json"))
        for one in [folder] if (folder / "config.json").exists() or not inside else inside:
            try:
                runs.append(read_run(one))
            except UserError as error:
                why.append(error)
    if not runs:
        raise why[0]
    for error in why:
        print(f"left out: {error}", file=sys.stderr)
    return runs


def _evaluate(options: Evaluate) -> int:
    import time

    for value, name in ((options.episodes, "--episodes"), (options.env_steps, "--env-steps")):
        if value is not None and value < 1:
            raise UserError(f"{name} must be at least 1, not {value}.")
    if options.episodes is not None and options.env_steps is not None:
        raise UserError("--episodes and --env-steps contradict each other; give one of them.")
    if options.seed < 0:
        raise UserError(f"--seed must be at least 0, not {options.seed}.")
    if options.num_envs < 1 or (options.epsilon is not None and not 0.0 <= options.epsilon <= 1.0):
        raise UserError("--num-envs must be at least 1, and --epsilon between 0 and 1.")
    if options.max_minutes is not None and not options.max_minutes > 0:
        raise UserError(f"--max-minutes must be more than 0, not {options.max_minutes:g}.")
    run = folder_of(options.run)
    import json

    from fastdqn import process
    from fastdqn.envs import games
    from fastdqn.execution.devices import prepare_device
    from fastdqn.tools.evaluate import PROTOCOLS, evaluate, load_agent

    device = prepare_device(options.device)
    agent = load_agent(run, device)
    began, shown = time.monotonic(), [0.0]

    def stop() -> str | None:
        if process.stop_signal():
            return "interrupted"
        late = options.max_minutes is not None and time.monotonic() - began > 60.0 * options.max_minutes
        return "max-minutes" if late else None

    def show(done: int, steps: int) -> None:
        if time.monotonic() - shown[0] > 5.0:
            shown[0] = time.monotonic()
            print(f"{done} games, {steps:,} env steps", flush=True)

    print(f"{run}: {options.protocol}: {PROTOCOLS[options.protocol].about}")
    with process.running():
        score = evaluate(
            agent,
            options.protocol,
            options.num_envs,
            options.seed,
            options.episodes,
            options.env_steps,
            options.epsilon,
            stop,
            show,
            min(options.num_envs, process.cores()),
        )
    game = agent.options.game.name
    found = score.as_dict("" if games.is_custom(game) else games.rom_of(game))
    if not score.games:
        print(f"No game has finished in {score.env_steps:,} env steps ({score.stopped}): there is no score.")
    else:
        error = found["standard_error"]
        human = found["human_normalised"]
        print(
            f"{found['games']} games, {score.env_steps:,} env steps: mean {found['mean']:.2f}"
            f"{'' if error is None else f' (standard error {error:.2f})'}, median {found['median']:g}"
            f"{'' if human is None else f', {100 * human:.1f}% of the way from random play to a person'}"
            f"{f'; stopped early ({score.stopped})' if score.stopped else ''}"
        )
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name not in ("run", "device")}
    path = run / f"evaluation-{options.protocol}{'-stopped' if score.stopped else ''}.json"
    try:
        path.write_text(json.dumps({**asked, **found}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"Cannot write {path}: {error.strerror}.") from error
    print(f"written: {path}")
    return process.exit_code()


def _watch(options: Watch) -> int:
    if options.seed < 0:
        raise UserError(f"--seed must be at least 0, not {options.seed}.")
    if options.max_env_steps < 1 or (options.epsilon is not None and not 0.0 <= options.epsilon <= 1.0):
        raise UserError("--max-env-steps must be at least 1, and --epsilon between 0 and 1.")
    run = folder_of(options.run)
    from fastdqn import process
    from fastdqn.execution.devices import prepare_device
    from fastdqn.tools.evaluate import load_agent
    from fastdqn.tools.watch import record

    agent = load_agent(run, prepare_device())
    epsilon = agent.dqn.epsilon_final if options.epsilon is None else options.epsilon
    with process.running():
        watched = record(agent, options.out, options.seed, epsilon, options.values, options.max_env_steps)
    ended = "" if watched.over else ", not to its end"
    print(f"a game of {watched.env_steps:,} env steps{ended}, score {watched.score:g}; written: {options.out}")
    return process.exit_code()


def _plot(options: Plot) -> int:
    if not options.runs:
        raise UserError("Name the folder of at least one run.")
    if options.games < 1:
        raise UserError(f"--games must be at least 1, not {options.games}.")
    from fastdqn.tools.plot import draw_curves, draw_speeds, grouped

    groups = grouped(_runs_of(options.runs))
    if options.each:
        groups = {
            f"{label}, seed {run.config['run']['seed']}{f' ({run.folder.name})' if len(runs) > 1 else ''}": [run]
            for label, runs in groups.items()
            for run in runs
        }
    if options.what == "score":
        draw_curves(groups, options.out, games=options.games)
    else:
        draw_speeds(groups, options.out)
    print(f"written: {options.out}")
    return 0


def _compare(options: Compare) -> int:
    if not options.runs:
        raise UserError("Name the folder of at least one run.")
    from rich.console import Console
    from rich.table import Table

    from fastdqn.tools.compare import lines_of, score_of

    groups = lines_of(_runs_of(options.runs))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)  # a file or a pipe has room for every column
    table = Table()
    table.add_column("run", overflow="fold")
    for heading in ("seed", "ended", "minutes", "env steps", "env steps/s", "mean-100"):
        table.add_column(heading, justify="left" if heading == "ended" else "right", no_wrap=True)
    for lines in groups:
        for line in lines:
            speed = "-" if line.env_steps_per_s is None else f"{line.env_steps_per_s:,.1f}"
            minutes = f"{line.minutes:.1f}"
            cells = (line.label, str(line.seed), line.ended, minutes, f"{line.env_steps:,}", speed, f"{line.score:.2f}")
            table.add_row(*cells)
        if len(lines) > 1:
            score = score_of(lines)
            interval = f"{score.value:.2f} ({score.low:.2f} to {score.high:.2f})"
            table.add_row(f"IQM of {len(lines)} runs", *[""] * 5, interval)
        table.add_section()
    console.print(table)
    return 0


def _games(options: Games) -> int:
    from rich.console import Console
    from rich.table import Table

    from fastdqn.envs.games import actions_of, gymnasium_id, rom_names
    from fastdqn.envs.scores import REFERENCES

    names = [name for name in rom_names() if options.name.lower() in name]
    if not names:
        raise UserError(f"There is no game with {options.name!r} in its name; fastdqn games lists all.")
    table = Table(caption="scores: Wang et al. 2016, table 2", caption_justify="left")
    for heading in ("game", "also", "actions", "human", "random"):
        table.add_column(heading, justify="left" if heading in ("game", "also") else "right")
    for name in names:
        reference = REFERENCES.get(name)
        scores = ("-", "-") if reference is None else (f"{reference.human:,.1f}", f"{reference.random:,.1f}")
        table.add_row(name, gymnasium_id(name), str(actions_of(name)), *scores)
    Console(highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
