"""Draws learning curves beside those that Dopamine published for the same agents.

    fastdqn sweep 10 --games krull,freeway,road_runner --agents dopamine-dqn,dopamine-rainbow --seeds 1 \\
        --into sweeps/curves -- --protocol machado --no-full-action-set --num-envs 8 --max-env-steps 750000
    python bench/beside_dopamine.py sweeps/curves/runs

Scores are those of the training games, as Dopamine's are: each million of emulator frames has the mean of the games
that ended in it. A run need not be over: the millions that it has finished count. Each run named becomes a line of
curves.jsonl, in place of the one of the same game, agent and seed that stood there; curves.png shows all lines.
Dopamine's numbers are in bench/dopamine.json. It plays one game at a time; how many a run played is in its line.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.dopamine import published
from bench.programs import ROOT, exit_code
from fastdqn.cli.folders import RUNS, RunFolders, of_those_that_can, runs_of
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import title_of
from fastdqn.errors import UserError
from fastdqn.options.dqn import AgentName, AgentOptions, DQNOptions, PaceOptions, UpdateOptions
from fastdqn.options.game import GameOptions, VectorOptions
from fastdqn.options.groups import defaults_of
from fastdqn.options.parts import PartOptions
from fastdqn.options.presets import changed, with_names
from fastdqn.runs.folder import write_whole
from fastdqn.tools.pictures import drawing, save_picture
from fastdqn.tools.plot import COLORS, tidy
from fastdqn.tools.reading import RunData, whole_lines

SHOWN = 3
"""Millions of Dopamine's that are drawn at least."""
MILLION = 250_000
"""Env steps of a million frames."""
GAMES: Mapping[str, Any] = {
    "frame_skip": 4,
    "noop_max": 0,
    "episodic_life": False,
    "clip_rewards": True,
    "fire_reset": False,
    "sticky_actions": 0.25,
    "full_action_set": False,
    "crop": False,
}
"""How Dopamine's agents play."""
BESIDE = (
    "name",
    "protocol",
    "num_envs",
    "env_threads",
    "profile",
    "precision",
    "crowded_threads",
    "report_env_steps",
    "held_out",
    "importance_decay",
    "learning_rate_decay",
)
"""Options of the groups below that a run to be compared may set as it likes: how fast it learns, or what it looks at.
(Schedules may be as long as they like, as those of Dopamine's agents are flat.)"""


@dataclasses.dataclass(frozen=True)
class Options:
    """What is compared."""

    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions
    update: UpdateOptions
    agent: AgentOptions
    parts: PartOptions


@dataclasses.dataclass(frozen=True)
class CurveOptions:
    runs: RunFolders = ()
    """Folders of runs, or folders of such folders; none to draw the picture anew."""
    out: Path = ROOT / "bench" / "results"
    """Folder of curves.jsonl and curves.png."""


def main(words: Sequence[str]) -> int:
    return exit_code(lambda: draw(parsed(CurveOptions, words, CurveOptions(), __doc__ or "")))


def draw(options: CurveOptions) -> int:
    lines = read_lines(options.out / "curves.jsonl")
    if options.runs:
        lines |= {key_of(line): line for line in of_those_that_can(line_of, runs_of(options.runs, RUNS))}
    if not lines:
        raise UserError("Name the folder of at least one run.")
    in_order = [lines[key] for key in sorted(lines)]
    text = "".join(f"{json.dumps(line)}\n" for line in in_order)
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / "curves.jsonl", lambda path: path.write_text(text, encoding="utf-8"))
    draw_picture(in_order, options.out / "curves.png")
    print(f"{len(in_order)} runs: {options.out / 'curves.jsonl'}, curves.png")
    return 0


def key_of(line: dict[str, Any]) -> tuple[str, str, int]:
    return line["game"], line["agent"], line["seed"]


def read_lines(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the lines that were written before, none if there is no such file.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        return {key_of(line): line for line in whole_lines(path.read_text(encoding="utf-8"))}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged; mend or remove it.") from error


def line_of(run: RunData) -> dict[str, Any]:
    """Return what a run comes to: the mean score and the number of the games that ended in each million frames.

    Raises:
        UserError: it is too short, or was not trained as Dopamine's agents were.
    """
    agent = str(run.config.get("dqn", {}).get("agent"))
    if agent not in published().get(run.game, {}):
        known = ", ".join(title_of(game) for game in published())
        raise UserError(f"{run.folder}: there are no curves of {agent} on {title_of(run.game)}, only of {known}.")
    for group, wanted in as_dopamine(run.game, agent).items():
        for name, value in wanted.items():
            if name not in BESIDE and (found := run.config.get(group, {}).get(name, value)) != value:
                raise UserError(f"{run.folder} was not trained as Dopamine's agents: {name} is {found}, not {value}.")
    last = max(run.summary.get("env_steps", 0), max(game["env_steps"] for game in run.episodes))
    scores: list[list[float]] = [[] for _ in range(int(last // MILLION))]
    elapsed = 0.0
    for game in run.episodes:
        number = (int(game["env_steps"]) - 1) // MILLION
        if number < len(scores):
            scores[number].append(float(game["score"]))
            elapsed = float(game["elapsed"])
    if not scores or not all(scores):
        raise UserError(f"{run.folder} has not played a million frames to their end.")
    try:
        stamp: dict[str, Any] = json.loads((run.folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{run.folder} does not say on which machine it was trained: {error}.") from error
    return {
        "game": run.game,
        "agent": agent,
        "seed": run.seed,
        "means": [round(statistics.fmean(million), 2) for million in scores],
        "ended": [len(million) for million in scores],
        "minutes": round(elapsed / 60, 1),
        "num_envs": run.config["vector"]["num_envs"],
        **{name: stamp[name] for name in ("cpu", "cores", "gpu", "threads", "packages", "commit", "time")},
    }


def as_dopamine(game: str, agent: str) -> dict[str, dict[str, Any]]:
    """Return the options, by group and name, with which `agent` is Dopamine's on `game`."""
    asked = changed(defaults_of(Options), {"game": GAMES})
    return dataclasses.asdict(with_names(asked, game, game, cast(AgentName, agent)))


@drawing()
def draw_picture(lines: Sequence[dict[str, Any]], out: Path) -> None:
    """Draw a panel for each game: a band for Dopamine's seeds and their mean, dots for runs.

    Raises:
        RunError: the picture cannot be written.
    """
    from matplotlib.figure import Figure

    known = published()
    games = list(dict.fromkeys(line["game"] for line in lines))
    agents = sorted({line["agent"] for line in lines})
    figure: Any = Figure(figsize=(3.6 * max(2, len(games)), 4.2), layout="constrained")
    for panel, game in zip(figure.subplots(1, len(games), squeeze=False)[0], games, strict=True):
        here = [line for line in lines if line["game"] == game]
        longest = max(SHOWN, *(len(line["means"]) for line in here))
        for color, agent in zip(COLORS, agents, strict=False):
            theirs = known[game].get(agent, [])[:longest]
            millions = range(1, len(theirs) + 1)
            panel.fill_between(millions, list(map(min, theirs)), list(map(max, theirs)), color=color, alpha=0.2)
            panel.plot(millions, list(map(statistics.fmean, theirs)), color=color, linewidth=1.0, linestyle="--")
            for line in (line for line in here if line["agent"] == agent):
                panel.plot(range(1, len(line["means"]) + 1), line["means"], "o-", color=color, markersize=5)
        panel.set_title(title_of(game), fontsize=10)
        panel.set_xlabel("million frames", fontsize=9)
        tidy(panel)
        panel.set_xlim(left=0.5)
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].set_ylabel("mean score of the games that ended", fontsize=9)
    _legend(figure, dict(zip(agents, COLORS, strict=False)))
    save_picture(figure, out, dpi=150)


def _legend(figure: Any, colors: dict[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    words: list[str] = []
    for agent, color in colors.items():
        handles += [Line2D([], [], color=color, marker="o"), Patch(color=color, alpha=0.2)]
        words += [f"{agent}, a run", "Dopamine's five: mean (dashed), range"]
    figure.legend(handles, words, loc="outside lower center", ncols=2, frameon=False, fontsize=9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
