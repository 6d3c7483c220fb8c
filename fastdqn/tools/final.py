"""The evaluation that ends a run of Atari-100k: what its final weights score in whole games."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from fastdqn import process, terminal
from fastdqn.envs import games
from fastdqn.errors import counted
from fastdqn.runs.folder import hold, let_go, saving, write_json
from fastdqn.runs.run import Run
from fastdqn.seeds import as_int, seeds_of
from fastdqn.tools.evaluate import PROTOCOLS, Score, evaluate, load_agent

PROTOCOL = "atari-100k"


def evaluate_final(run: Run, count: int, at_once: int) -> None:
    """Let the final weights of a run that has made all its env steps play whole games by the protocol of Atari-100k,
    and write what they score into its summary.json as `evaluation`.

    Games, random actions and so the scores follow from the run's seed and `at_once` alone: an evaluation that was
    stopped is repeated when the run is resumed, and one that is there already is not. Environments of one's own are
    played as they were trained.

    Args:
        run: that has ended.
        count: games; 0 for none.
        at_once: of these, games played at once.

    Raises:
        UserError: another process has the run's folder, or its weights cannot be read.
        RunError: the summary cannot be written.
    """
    path = run.folder / "summary.json"
    if run.reason != "max-env-steps" or count == 0:
        return
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    console = terminal.console()
    if "evaluation" in summary:
        if len(summary["evaluation"]["scores"]) != count:
            again = f"fastdqn evaluate {terminal.typed(run.folder)}{games.named_again(run.game)}"
            again += f" --protocol {protocol_of(run.game)} --games {count}"
            console.print(f"it was evaluated when it ended; other games are played by {again}", soft_wrap=True)
        return
    with saving(run.folder):
        lock = hold(run.folder)  # another process may resume it meanwhile
    try:
        seed = as_int(seeds_of(run.options.seed).fresh)
        with process.running():
            score = _played(run, count, at_once, seed, console)
        if score.stopped:
            words = f"{terminal.typed(run.folder)}{games.named_again(run.game)}"
            console.print(f"the evaluation was stopped; --resume {words} plays it again", soft_wrap=True)
            return
        found = score.as_dict(games.rom_of(run.game) if games.is_atari(run.game) else "")
        trained = run.counters
        seconds = summary["elapsed"] - (trained.first_update or 0.0)
        how = {"protocol": protocol_of(run.game), "epsilon": PROTOCOLS[PROTOCOL].epsilon, "seed": seed}
        summary["evaluation"] = {**how, **found}
        summary["minutes"] = round(summary["elapsed"] / 60.0, 2)
        summary["samples_per_s"] = round(trained.samples / seconds, 1) if seconds > 0 else None
        with saving(run.folder):
            write_json(path, summary)
        console.print(_said(found, summary), soft_wrap=True)
    finally:
        let_go(run.folder, lock)


def protocol_of(game: str) -> str:
    """Return the protocol of the evaluation: Atari-100k's, or for an environment of one's own the training's."""
    return PROTOCOL if games.is_atari(game) else "training"


def _played(run: Run, count: int, at_once: int, seed: int, console: Console) -> Score:
    agent = load_agent(run.folder, run.device, None if games.is_atari(run.game) else run.game)
    with terminal.counting(console, f"{count} games with the final weights", count) as watch:
        return evaluate(
            agent,
            protocol_of(run.game),
            min(at_once, count),
            seed,
            episodes=count,
            epsilon=PROTOCOLS[PROTOCOL].epsilon,
            noise=PROTOCOLS[PROTOCOL].noise,
            stop=lambda: "interrupted" if process.stop_signal() else None,
            watch=watch,
            threads=run.options.threads or process.cores(),
        )


def _said(found: dict[str, Any], summary: dict[str, Any]) -> str:
    human, error = found["human_normalised"], found["standard_error"]
    return (
        f"evaluation: {counted(found['games'], 'game')} in {found['seconds']:.0f} s, mean {found['mean']:.2f}"
        f"{'' if error is None else f' (standard error {error:.2f})'}"
        f"{'' if human is None else f', human-normalised {human:.3f}'}; trained in {summary['minutes']:g} minutes"
    )
