"""`fastdqn plot`: learning curves and speeds of runs, and what the sessions of one have done."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fastdqn.cli.folders import RUNS, RunFolders, folders_of, leave_out, of_those_that_can, runs_of
from fastdqn.errors import UserError
from fastdqn.options.fields import at_least
from fastdqn.terminal import say

if TYPE_CHECKING:
    from fastdqn.tools.plot import Axis

ENDINGS = (".png", ".svg", ".pdf")


@dataclasses.dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs, a panel for each game; those that differ in their seed alone become a mean and
    a band."""

    runs: RunFolders
    """Folders of runs or of sweeps, or "latest" for the newest run in --runs-dir."""
    out: Path = Path("learning_curves.png")
    """The picture: PNG, SVG or PDF, by its ending."""
    what: Literal["score", "speed", "sessions"] = "score"
    """Scores, or env steps/s over minutes, or the sessions of each run of 32: two pictures and measures, written into
    its folder."""
    over: Literal["minutes", "env-steps"] | None = None
    """Draw scores over minutes or over env steps; by default over both for one game, over env steps for several."""
    each: bool = False
    """A curve for each run, also where only the seeds differ."""
    mean_of: int = 100
    """Games whose mean score is drawn; fewer show a short run's end sooner."""
    runs_dir: Path = RUNS
    """Where "latest" looks."""
    game: str | None = None
    """With --what sessions: the environment of your own that the run was trained in, module:Id-v0; its code is loaded
    only if it is named here."""


def plot(options: Plot) -> int:
    """Draw the picture; return the exit code."""
    if options.what == "sessions":
        return _sessions(options)
    at_least(options.mean_of, 1, "--mean-of")
    if options.out.suffix.lower() not in ENDINGS:
        raise UserError(f"The picture {options.out} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    if options.what == "speed" and options.over == "env-steps":
        raise UserError("Speeds are drawn over minutes; leave out --over.")
    if options.what == "speed" and options.mean_of != Plot.mean_of:
        raise UserError("Speeds are not of games; leave out --mean-of.")
    if options.game is not None:
        raise UserError("--game is of --what sessions alone: here nothing is played; leave it out.")
    runs = runs_of(options.runs, options.runs_dir, games=options.what == "score")
    from fastdqn.tools.labels import grouped, one_by_one
    from fastdqn.tools.plot import draw_curves, draw_speeds, speeds_of
    from fastdqn.tools.reading import chosen

    if options.what == "speed":
        runs = of_those_that_can(lambda run: (speeds_of(run), run)[1], runs)
    groups = one_by_one(grouped(runs)) if options.each else grouped(runs)
    for members in (members for labels in groups.values() for members in labels.values()):
        kind = chosen(members)
        drawn = {run.folder for run in (*kind.finished, *kind.unfinished)}
        for run in members:
            if run.folder not in drawn:
                leave_out(f"{run.folder} {kind.left_out[run.folder]}.")
    if options.what == "score":
        axes: dict[str | None, Axis] = {"minutes": "elapsed", "env-steps": "env_steps"}
        draw_curves(groups, options.out, options.mean_of, axes.get(options.over))
    else:
        draw_speeds(groups, options.out)
    say(f"written: {options.out}")
    return 0


def _sessions(options: Plot) -> int:
    """Draw and measure the sessions of each run; one of which there is nothing to draw is named and left out."""
    if options != Plot(options.runs, what="sessions", runs_dir=options.runs_dir, game=options.game):
        raise UserError("--what sessions writes into the folder of the run; leave out what else is said of a picture.")
    folders = folders_of(options.runs, options.runs_dir)
    from fastdqn import process
    from fastdqn.tools.trial import report_trial

    why: list[UserError] = []
    with process.running():
        for folder in folders:
            try:
                say(report_trial(folder, options.game))
            except UserError as error:
                why.append(error)
            if process.stop_signal():
                break
    if len(why) == len(folders):
        raise why[0]
    for error in why:
        leave_out(error)
    return process.exit_code()
