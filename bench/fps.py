"""Times the scripts of the ladder themselves, and the ceilings of this machine beside them.

Each script runs as a user would run it, in its own process, at its final epsilon. Only the steady state counts: from
`--warmup` seconds after the first update to the end, read from the counters that the script logs. The scripts take
turns, `--repeats` times, because machines change their speed while one looks; gains are medians of ratios within a
turn.

The table goes to the terminal; JSON lines and a plot go to --out.

    python bench/fps.py                                    the whole ladder
    python bench/fps.py --only 01,05 --repeats 5
    python bench/fps.py --sweep steps=1..6                 02 with N = 1 to 6, as in the 2017 post
    python bench/fps.py --only 05 --sweep batch-size=8,16,32
    python bench/fps.py --only 02,03 -- --threads 1        options after -- go to the scripts
    python bench/fps.py --only 01,09 -- --batch-size 8     the Nature regime: 8 samples for each env step
    python bench/fps.py --only 06,07,08,09 --profile         where the time of a loop goes
    python bench/fps.py --only "20, 21 --players 1, 21 --players 2"    options of one script alone
    python bench/fps.py --only 09 --busy 1                 once more while another process computes
    python bench/fps.py --only 10 --sweep variant=dqn,prioritized,rainbow -- --batch-size 8
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import tyro

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.fps_figures import median_ratio, playing, share_of, steady_state
from bench.fps_ladder import Row, beside, chosen, sweep_values
from bench.fps_table import draw, print_table
from bench.lines import lines_in
from bench.programs import ROOT, busy_processes, exit_code, said_by
from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError
from fastdqn.execution.devices import prepare_device
from fastdqn.options.dqn import AgentName
from fastdqn.options.run import RunOptions
from fastdqn.runs.machine import environment
from fastdqn.terminal import console_for_tables


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    only: str = ""
    """Scripts to time, by number or name, separated by commas, each with options of its own if it is to have any; by
    default all."""
    cuda: bool = False
    """The same as --device cuda."""
    device: str | None = None
    """Where to train: cpu, cuda, cuda:N, mps or auto; by default cpu."""
    game: str = "pong"
    """Which game; a script that plays none of Atari's plays its own instead."""
    agent: AgentName = "post2017"
    """Hyper-parameters by paper, the same in all scripts instead of their own."""
    seconds: float = 20.0
    """Length of the steady state that is measured, in each repeat."""
    warmup: float = 3.0
    """Seconds after the first update that do not count."""
    repeats: int = 3
    """How many times each script is timed."""
    patience: float = 600.0
    """Seconds that a script may take besides those that are measured; then it has failed, and the next one is timed."""
    replay_initial: int = 1000
    """Transitions that fill the replay first; fewer than a real run's, their number does not change the speed."""
    sweep: str = ""
    """Option and values to time one script with: steps=1..6, batch-size=16,32,64; by default 02."""
    alone: bool = True
    """Time also what each script's games and its update do alone."""
    busy: int = 0
    """Time each script once more beside as many processes that compute all the time; `x previous` is then what it
    keeps of its speed."""
    profile: bool = False
    """Also print where the time of 06 and later goes; on a GPU the scripts then wait after each part and are slower."""
    extra: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Options for every script: what stands after -- on the command line."""
    out: Path = ROOT / "bench" / "results"
    """Folder for the JSON lines and the plot."""


def rows_of(options: BenchOptions) -> list[Row]:
    """Return what is to be timed, in the order of the table."""
    rows = chosen(options.only or ("02" if options.sweep else ""))
    if options.sweep:
        if len(rows) != 1:
            raise UserError("--sweep times one script; name it with --only.")
        (row,), (name, values) = rows, sweep_values(options.sweep)
        rows = [Row(f"{row.label} {name}={value}", row.rung, (*row.extra, f"--{name}", value)) for value in values]
    labels = [row.label for row in rows]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(f"{twice[0]} would be timed twice; leave out what is named twice.")
    check_one_game([*options.extra, *(word for row in rows for word in row.extra)])
    return rows


def check_one_game(words: Sequence[str]) -> None:
    """Raise UserError if a script's own options name its game."""
    if any(word == "--game" or word.startswith("--game=") for word in words):
        raise UserError("All scripts play one game here: give --game to the bench, before --.")


def time_script(row: Row, options: BenchOptions, device: str) -> dict[str, Any]:
    """Run one script and return its steady-state figures.

    Raises:
        RunError: the script failed, took too long, or made no update in the measured time.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "experiments" / f"{row.rung.script}.py")]
        command += ["--game", row.rung.game_of(options.game), "--device", device, "--runs-dir", folder]
        if row.rung.family == "dqn":
            command += ["--agent", options.agent, "--epsilon-decay", "0"]
        if row.rung.family != "actor-critic" and not _is_ppo_thread([*options.extra, *row.extra]):
            command += ["--replay-initial", str(options.replay_initial)]
        command += ["--max-env-steps", "1000000000", "--stop-score", "None"]
        command += ["--train-seconds", str(options.warmup + options.seconds)]
        command += ["--no-checkpoints"]
        command += [*options.extra, *row.extra]
        if options.profile and row.rung.wrappers == "vector":
            command.append("--profile")
        with busy_processes(row.busy):
            said_by(command, row.label, options.warmup + options.seconds + options.patience)
        run = next(Path(folder).iterdir())
        lines = [json.loads(line) for line in (run / "speed.jsonl").read_text(encoding="utf-8").splitlines()]
        summary, config = (
            json.loads((run / f"{name}.json").read_text(encoding="utf-8")) for name in ("summary", "config")
        )
    players, steady = playing(config), steady_state(lines, options.warmup, row.label)
    steady["batch_size"] = round(steady["batch_size"] / config.get("ranks", {}).get("processes", 1))  # of each
    return {
        **steady,
        "players": players,
        "games": players * config.get("vector", {}).get("num_envs", 1),
        "peak_rss_bytes": summary["peak_rss_bytes"],
        "peak_device_bytes": summary["peak_device_bytes"],
        "profile": summary["profile"],
        "bootstrap": config.get("returns", {}).get("trace_decay") is None,
        "crop": config.get("game", {}).get("crop", False),
    }


def _is_ppo_thread(words: Sequence[str]) -> bool:
    """Tell whether `words` ask 33, which has two algorithms, for the one that is none of its family."""
    return " --algorithm ppo" in " " + " ".join(words).replace("=", " ")


def time_ceiling(what: str, words: list[str], options: BenchOptions, device: str) -> float:
    """Return env steps/s of the environment alone, or samples/s of the update alone; `words` say which."""
    command = [sys.executable, str(ROOT / "bench" / "ceilings.py"), "--what", what]
    command += ["--agent", options.agent, "--game", options.game, *words]
    command += ["--device", device, "--seconds", str(min(5.0, options.seconds))]
    out = said_by(command, f"The {what}-only ceiling", options.seconds + options.patience)
    result = json.loads(out.splitlines()[-1])
    return result["env_steps_per_s" if what == "env" else "samples_per_s"]


UNKNOWN = {
    *("--noisy", "--dueling", "--distributional", "--prioritized", "--atoms"),
    *("--frame-skip", "--frame-stack", "--full-action-set"),
}
"""Options that change what games or updates cost, and that bench/ceilings.py does not have."""


def _bare(word: str) -> str:
    """Return an option's name without what turns it off."""
    return f"--{word.removeprefix('--no-')}" if word.startswith("--no-") else word


def ceilings_of(row: Row, trial: dict[str, Any], options: BenchOptions) -> dict[str, tuple[str, ...]]:
    """Return the words that ask for the two ceilings of a row: what its games and its update do alone.

    None for one with an algorithm, a network or frames that bench/ceilings.py cannot be asked for.
    """
    words = [part for word in (*options.extra, *row.extra) for part in word.split("=", 1)]
    if "--hidden" in words or _is_ppo_thread(words) or trial.get("crop") or UNKNOWN & {_bare(word) for word in words}:
        return {}

    def given(*names: str) -> list[str]:
        return [part for i, word in enumerate(words[:-1]) if word in names for part in words[i : i + 2]]

    games = ["--wrappers", row.rung.wrappers]
    if row.rung.family != "dqn":  # all games of all players, whose emulators have a thread each
        games += ["--num-envs", str(trial["games"])]
        games += ["--env-threads", str(trial["players"])] if trial["players"] > 1 else given("--env-threads")
    elif row.rung.wrappers == "vector":
        games += ["--num-envs", str(trial["games"]), *given("--env-threads", "--frame-size")]
    update = ["--form", row.rung.form, "--batch-size", str(trial["batch_size"])]
    update += given("--agent", "--variant", "--network", "--precision", "--frame-size", "--threads")
    update += [word for word in words if word in ("--double", "--no-double")]
    if row.rung.own_game is not None:
        game = row.rung.game_of(options.game)
        games, update = [*games, "--form", row.rung.form, "--game", game], [*update, "--game", game]
    update += [] if trial.get("bootstrap", True) else ["--no-bootstrap"]
    return {"env": tuple(games), "update": tuple(update)}


def summarise(
    rows: list[Row], trials: dict[str, list[dict[str, Any]]], ceilings: dict[Any, list[float]], options: BenchOptions
) -> list[Any]:
    """Return one dict a row: medians, gains and shares of the ceilings."""
    firsts: dict[str, list[float]] = {}  # of each family: other algorithms' speeds are no gain
    before, kind = [], ""
    lines: list[dict[str, Any]] = []
    for row in rows:
        speeds = [trial["env_steps_per_s"] for trial in trials[row.label]]
        first = firsts.setdefault(row.rung.family, speeds)
        if row.rung.family != kind:
            before, kind = speeds, row.rung.family
        first_trial = trials[row.label][0]
        median = {k: statistics.median(t[k] for t in trials[row.label]) for k in first_trial if k != "profile"}
        profile = {
            part: statistics.median(t["profile"][part] for t in trials[row.label]) for part in first_trial["profile"]
        }
        words = ceilings_of(row, first_trial, options)
        samples = [t["env_steps_per_s"] * t["samples_per_step"] for t in trials[row.label]]
        lines.append(
            {
                "row": row.label,
                "family": row.rung.family,
                **median,
                "env_steps_per_s_all": speeds,
                "gain_over_previous": median_ratio(speeds, before),
                "gain_over_first": median_ratio(speeds, first),
                "share_of_env_only": share_of(ceilings, "env", words, speeds),
                "share_of_update_only": share_of(ceilings, "update", words, samples),
                "profile": profile,
            }
        )
        before = before if row.busy else speeds  # the next script is compared with the quiet one
    return lines


def bench(options: BenchOptions) -> int:
    if options.repeats < 1 or options.seconds <= 0 or options.warmup < 0:
        raise UserError("--repeats must be at least 1, --seconds more than 0 and --warmup not negative.")
    if options.busy < 0:
        raise UserError("--busy is a number of processes, 0 or more.")
    rows = beside(rows_of(options), options.busy)
    run = RunOptions(cuda=options.cuda, device=options.device)
    run.check()
    device: torch.device = prepare_device(run.device, run.cuda, run.threads)
    stamp = environment(device)
    console = console_for_tables()
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"{datetime.now():%Y%m%d-%H%M%S}-{'sweep' if options.sweep else 'fps'}-{device.type}"
    trials: dict[str, list[dict[str, Any]]] = {row.label: [] for row in rows}
    ceilings: dict[Any, list[float]] = {}
    failed: dict[str, str] = {}
    with lines_in(stem.with_suffix(".jsonl"), options, stamp) as write:
        for repeat in range(options.repeats):
            asked: dict[tuple[str, tuple[str, ...]], None] = {}
            for row in rows if repeat % 2 == 0 else reversed(rows):  # none always follows the same one
                try:
                    trial = time_script(row, options, str(device))
                except RunError as error:  # the others are not lost
                    failed[row.label] = str(error)
                    console.print(f"repeat {repeat + 1}/{options.repeats}: {row.label} failed", soft_wrap=True)
                    continue
                trials[row.label].append(trial)
                if options.alone:
                    asked |= dict.fromkeys(ceilings_of(row, trials[row.label][0], options).items())
                write("trial", repeat=repeat, row=row.label, **trial)
                console.print(
                    f"repeat {repeat + 1}/{options.repeats}: {row.label} {trial['env_steps_per_s']:,.1f} env steps/s",
                    soft_wrap=True,
                )
            for what, words in asked:
                try:
                    value = time_ceiling(what, list(words), options, str(device))
                except RunError as error:
                    failed[f"{what} {words}"] = str(error)
                    console.print(f"repeat {repeat + 1}/{options.repeats}: a ceiling failed", soft_wrap=True)
                    continue
                ceilings.setdefault((what, words), []).append(value)
                unit = "env_steps_per_s" if what == "env" else "samples_per_s"
                write("ceiling", repeat=repeat, what=what, words=words, **{unit: value})
            rows = [row for row in rows if row.label not in failed]
        lines = summarise(rows, trials, ceilings, options) if rows else []
        for line in lines:
            write("row", **line)
    if not any(trials.values()):
        stem.with_suffix(".jsonl").unlink()
    if lines:
        draw(lines, stem.with_suffix(".png"), stamp)
        print_table(console, lines, ceilings, stamp)
        console.print(f"written: {stem}.jsonl and .png", soft_wrap=True)
    if failed:
        raise RunError("\n".join(failed.values()))
    return 0


def main() -> int:
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)

    def work() -> int:
        options = parsed(BenchOptions, words[:end], BenchOptions(), __doc__ or "")
        return bench(dataclasses.replace(options, extra=tuple(words[end + 1 :])))

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
