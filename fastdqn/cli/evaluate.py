"""`fastdqn evaluate`: what trained networks score under a named protocol, one run or many."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fastdqn import process
from fastdqn.cli.folders import DEMO, RUNS, RunFolders, folders_of, leave_out
from fastdqn.errors import RunError, UserError, counted
from fastdqn.options.fields import above_zero, at_least, between
from fastdqn.terminal import complain, say

if TYPE_CHECKING:
    from fastdqn.tools.evaluate import Agent


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play whole games with trained networks under a named protocol, and say what they score."""

    runs: RunFolders
    """Folders of runs or of sweeps, "latest" for the newest run in --runs-dir, or "demo" for the network that comes
    with fastdqn."""
    game: str | None = None
    """The environment of your own that the runs were trained in, module:function or module:Id-v0: its code is loaded
    only if it is named here. Atari's games need no name."""
    protocol: Literal["training", "nature", "nature-steps", "machado", "atari-100k"] = "training"
    """training: as the run was trained; nature: up to 30 no-ops, epsilon 0.05, 5 minutes a game, 30 games;
    nature-steps: the same for 125,000 env steps; machado: sticky actions 0.25, all 18 actions, 100 games; atari-100k:
    up to 30 no-ops, epsilon 0.001, noisy layers without noise, 100 games."""
    episodes: Annotated[int | None, tyro.conf.arg(name="games")] = None
    """Games to count; by default the protocol's."""
    env_steps: int | None = None
    """Count the games that begin within so many env steps, instead."""
    epsilon: float | None = None
    """Share of random actions; by default the protocol's."""
    num_envs: int = 8
    """Games played at once."""
    seed: int = 0
    """Of games and random actions."""
    weights: Literal["newest", "best"] = "newest"
    """newest: of the end or the newest checkpoint; best: of when the mean of 100 games was highest, which runs of
    sessions keep."""
    device: str = "cpu"
    """Where the networks are evaluated: cpu, cuda, cuda:N, mps or auto."""
    max_minutes: float | None = None
    """Stop the evaluation of a run after this many minutes with what has finished."""
    runs_dir: Path = RUNS
    """Where "latest" looks."""


def evaluate(options: Evaluate) -> int:
    """Evaluate run after run, and write into the folder of each what was found; return the exit code, 1 if a run has no
    score because none of its games has ended.

    A run that cannot be evaluated is named and left out. Ctrl-C ends the run that is being evaluated, and what has
    finished stays.

    Raises:
        UserError: a mistake in the options, or no run can be evaluated.
    """
    _check(options)
    folders = folders_of(options.runs, options.runs_dir)
    from fastdqn.execution.devices import prepare_device
    from fastdqn.tools.evaluate import load_agent

    device = prepare_device(options.device)
    means: dict[Path, float] = {}
    failed = False  # a run whose games took longer than there was time for, or whose score could not be written
    why: list[UserError] = []
    said = ""
    with process.running():
        for folder in folders:
            try:
                agent = load_agent(folder, device, options.game, best=options.weights == "best")
                about = f"{options.protocol}: {_about(agent, options.protocol)}{_changed(options)}"
                if about != said:
                    say(about)
                said = about
                mean = _evaluated(agent, folder, options)
            except UserError as error:
                why.append(error)
                if len(folders) > 1:
                    leave_out(error if str(folder) in str(error) else f"{folder}: {error}")
                continue
            except RunError as error:
                complain(f"error: {error}")
                mean = None
            if process.stop_signal():
                break
            if mean is None:
                failed = True
            else:
                means[folder] = mean
    if len(why) == len(folders):
        raise why[0] if len(why) == 1 else UserError("None of these runs can be evaluated.")
    if len(folders) > 1:
        _show_means(means)
    return process.exit_code() or int(failed)


def _about(agent: Agent, protocol: str) -> str:
    """Return what is said of a protocol: Atari's words for Atari's games alone."""
    from fastdqn.envs import games
    from fastdqn.tools.evaluate import PROTOCOLS

    chosen, game = PROTOCOLS[protocol], agent.options.game.name
    if (games.is_atari(game) and not (agent.options.actor_critic and protocol == "training")) or chosen.changes:
        return chosen.about
    drawn = "actions as its policy draws them" if agent.options.actor_critic else f"epsilon {agent.epsilon:g}"
    how = "the mean action" if agent.options.continuous else drawn
    return f"{game} as the run was trained, with {how}, {chosen.episodes} games unless said otherwise"


def _changed(options: Evaluate) -> str:
    """Return what else was asked for than the protocol says."""
    said = [] if options.episodes is None else [counted(options.episodes, "game")]
    said += [] if options.env_steps is None else [f"games that begin within {options.env_steps:,} env steps"]
    said += [] if options.epsilon is None else [f"epsilon {options.epsilon:g}"]
    return f"; here {', '.join(said)}" if said else ""


def _check(options: Evaluate) -> None:
    at_least(options.episodes, 1, "--games")
    at_least(options.env_steps, 1, "--env-steps")
    if options.episodes is not None and options.env_steps is not None:
        raise UserError("--games and --env-steps contradict each other; give one of them.")
    at_least(options.seed, 0, "--seed")
    at_least(options.num_envs, 1, "--num-envs")
    between(options.epsilon, 0.0, 1.0, "--epsilon")
    above_zero(options.max_minutes, "--max-minutes")


def _evaluated(agent: Agent, run: Path, options: Evaluate) -> float | None:
    """Evaluate a run's agent, print a line and write a file; return the mean score, None if no game has finished.

    Raises:
        UserError: the run cannot be evaluated.
        RunError: the file cannot be written.
    """
    from fastdqn.envs import games
    from fastdqn.runs.folder import write_json
    from fastdqn.runs.weights import checksum_of
    from fastdqn.tools.evaluate import epsilon_of
    from fastdqn.tools.evaluate import evaluate as play

    began, shown = time.monotonic(), [time.monotonic()]
    checksum = checksum_of(run) if options.weights == "newest" else None  # before the run, if it trains, has others

    def stop() -> str | None:
        if process.stop_signal():
            return "interrupted"
        late = options.max_minutes is not None and time.monotonic() - began > 60.0 * options.max_minutes
        return "max-minutes" if late else None

    def show(done: int, steps: int) -> None:
        if time.monotonic() - shown[0] > 5.0:
            shown[0] = time.monotonic()
            say(f"{counted(done, 'game')}, {steps:,} env steps")

    score = play(
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
    found = score.as_dict(games.rom_of(game) if games.is_atari(game) else "")
    best = "best-" if options.weights == "best" else ""
    file = f"{best}evaluation-{options.protocol}{'-stopped' if score.stopped else ''}.json"
    path = Path(f"demo-{file}") if run == DEMO else run / file  # nothing is written into the package
    limits = {"games": options.episodes, "env_steps": options.env_steps, "minutes": options.max_minutes}
    how = {"protocol": options.protocol, "num_envs": options.num_envs, "seed": options.seed, "weights": options.weights}
    try:
        epsilon = epsilon_of(agent, options.protocol, options.epsilon)
        write_json(path, {**how, "limits": limits, "epsilon": epsilon, "checksum": checksum, **found})
    except OSError as error:
        say(f"{run}: {_sentence(found)}")
        raise RunError(f"Cannot write {path}: {error.strerror}.") from error
    say(f"{run}: {_sentence(found)}; written: {path.name}")
    return found["mean"]


def _sentence(found: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return f"no game has finished in {found['env_steps']:,} env steps ({found['stopped']}): there is no score"
    error, human, stopped = found["standard_error"], found["human_normalised"], found["stopped"]
    return (
        f"{counted(found['games'], 'game')}, {found['env_steps']:,} env steps: mean {found['mean']:.2f}"
        f"{'' if error is None else f' (standard error {error:.2f})'}, median {found['median']:,.10g}"
        f"{'' if human is None else f', {100 * human:.1f}% of the way from random play to a person'}"
        f"{f'; stopped early ({stopped})' if stopped else ''}"
    )


def _show_means(means: Mapping[Path, float]) -> None:
    """Print a table of the mean over the runs of each kind; those that do not count among them are named."""
    from fastdqn.tools.compare import left_out, means_of, show
    from fastdqn.tools.labels import grouped
    from fastdqn.tools.reading import RunData, read_run

    runs: list[RunData] = []
    for folder in means:
        try:
            runs.append(read_run(folder))
        except UserError as error:
            leave_out(error)
    groups = grouped(runs)
    if runs:
        show(means_of(groups, means), left_out(groups, lone=True))
