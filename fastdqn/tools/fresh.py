"""Fresh games after a run was solved: what its final weights score in games that decided nothing.

A run stops at the first moment at which its last 100 games are good enough, so that luck has chosen them; and many of
them began with worse weights than the final ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from rich.console import Console

from fastdqn import process, terminal
from fastdqn.envs import games
from fastdqn.errors import RunError, UserError
from fastdqn.options.run import STOP_EPSILON, RunOptions
from fastdqn.runs.folder import hold, let_go, saving, write_json
from fastdqn.seeds import as_int, seeds_of
from fastdqn.tools.evaluate import PROTOCOLS, Agent, Score, evaluate, load_agent

MOST_AT_ONCE = 32
ERRORS = 2.0
"""Standard errors by which the mean of fresh games may be below the stop score of a run that counts as solved."""


class Examination(NamedTuple):
    """Games to play after a run: `name` is where summary.json has them, `protocol` how they are played."""

    name: str
    protocol: str
    epsilon: float
    games: int | None  # None for as many as the run's options say


class FinishedRun(Protocol):
    """What is to be known of a run that is over."""

    @property
    def folder(self) -> Path: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def options(self) -> RunOptions: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def game(self) -> str: ...


_NATURE = PROTOCOLS["nature"]
EXAMINATIONS = (
    Examination("fresh", "training", STOP_EPSILON, None),
    Examination("nature", "nature", _NATURE.epsilon or 0.0, _NATURE.episodes),
)


def play_fresh(run: FinishedRun) -> None:
    """Let a run that was solved play fresh games, and write their means into its summary.json.

    These are the games of `EXAMINATIONS`, with seeds of their own; an environment of one's own plays the first kind
    only. An agent with noisy layers keeps its noise, an actor-critic draws its actions, soft actor-critic plays its
    mean ones, and none of them has an epsilon in the first kind.

    Raises:
        RunError: the summary cannot be written.
    """
    path = run.folder / "summary.json"
    if run.reason != "solved" or run.options.fresh_games == 0 or not path.exists():
        return
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    left = [one for one in EXAMINATIONS if one.protocol == "training" or games.is_atari(run.game)]
    console = terminal.console()
    if all(one.name in summary for one in left):
        if summary["fresh"].get("games") != run.options.fresh_games:
            again = f"fastdqn evaluate {terminal.typed(run.folder)}{games.named_again(run.game)}"
            console.print(f"its fresh games were played when it was solved; {again} plays others", soft_wrap=True)
        return
    threads = run.options.threads or process.cores()
    try:
        with saving(run.folder):
            lock = hold(run.folder)  # another process may resume it meanwhile
    except UserError as error:
        console.print(f"no fresh games: {error}", soft_wrap=True)
        return
    try:
        try:
            _play(run, left, summary, threads, console)
        except (UserError, RunError) as error:  # no agent that can be evaluated, or games that cannot be made
            console.print(f"no fresh games: {error}", soft_wrap=True)
        with saving(run.folder):
            write_json(path, summary)
    finally:
        let_go(run.folder, lock)


def _play(
    run: FinishedRun, left: Sequence[Examination], summary: dict[str, Any], threads: int, console: Console
) -> None:
    """Play what is left of the examinations, and write their means into `summary`.

    Raises:
        UserError: what is learnt is no agent that can be evaluated, or its games are not alike.
        RunError: its environment cannot be made, or fails.
    """
    agent = load_agent(run.folder, run.device, run.game)
    seed, own = as_int(seeds_of(run.options.seed).fresh), games.named_again(run.game)
    with process.running():
        for number, one in enumerate(left):
            if one.name in summary:  # an earlier process was stopped after it
                continue
            count = one.games or run.options.fresh_games
            noisy = agent.options.parts is not None and agent.options.parts.noisy
            chance = noisy or agent.options.actor_critic  # of its own
            epsilon = 0.0 if chance and one.protocol == "training" else one.epsilon
            score = _played(agent, one, count, epsilon, seed + number, threads, console)
            if score.stopped:
                console.print(
                    f"the fresh games were stopped; --resume {terminal.typed(run.folder)}{own} plays them",
                    soft_wrap=True,
                )
                break
            found = score.as_dict("")
            kept = ("games", "mean", "median", "standard_error", "scores", "truncated", "seconds")
            summary[one.name] = {"epsilon": epsilon, "seed": seed + number, **{name: found[name] for name in kept}}
            if number == 0:
                summary["confirmed"] = confirms(score, run.options.stop_score)
            console.print(_said(one, epsilon, found, summary["confirmed"]), soft_wrap=True)


def confirms(score: Score, stop_score: float | None) -> bool:
    """Tell whether the mean of fresh games is at least the stop score less two standard errors."""
    found = score.as_dict("")
    if stop_score is None or found["mean"] is None:
        return False
    return found["mean"] >= stop_score - ERRORS * (found["standard_error"] or 0.0)


def _played(
    agent: Agent, one: Examination, count: int, epsilon: float, seed: int, threads: int, console: Console
) -> Score:
    with terminal.counting(console, f"{count} fresh games, off the clock", count) as watch:
        return evaluate(
            agent,
            one.protocol,
            min(MOST_AT_ONCE, count),
            seed,
            episodes=count,
            epsilon=epsilon,
            stop=lambda: "interrupted" if process.stop_signal() else None,
            watch=watch,
            threads=threads,
        )


def _said(one: Examination, epsilon: float, found: dict[str, Any], confirmed: bool) -> str:
    error = found["standard_error"]
    mean = f"mean {found['mean']:.2f}{'' if error is None else f' (standard error {error:.2f})'}"
    if one.protocol == "nature":
        return f"Nature's protocol, {found['games']} games at epsilon {epsilon:g}: {mean}"
    verdict = "which does not refute the run" if confirmed else "which REFUTES the run: it counts as no record"
    return f"{found['games']} fresh games at epsilon {epsilon:g}: {mean}, {verdict}"
