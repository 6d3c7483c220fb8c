"""Writes the tables of README.md and docs from the data in bench/results.

    python bench/tables.py            rewrites what stands between `<!-- table: NAME -->` and `<!-- end -->`
    python bench/tables.py --check    writes nothing; names the stale tables, and exits with 1 if there are any

After a new measurement, change the name of its data in bench/newest.py.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.dopamine import published
from bench.newest import NEWEST, Sources
from bench.pages import DataError, Page, grid, machine, processor, software, spread
from bench.records import means, run_of, runs_of
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import title_of
from fastdqn.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


VARIANTS = ("dqn", "one-step", "double", "noisy", "prioritized", "dueling", "distributional", "rainbow")
VARIANT_NAMES = {"dqn": "dqn (= n-step)", "one-step": "dqn, 1 step"}
IDEAS = {  # and env steps/s of 2017 on a GTX 1080Ti
    "01_baseline": ("play 1 step, train on 32", "154"),
    "02_play_steps": ("play 4 steps, train on 128", "227"),
    "03_parallel": ("play and train in two processes", "395"),
    "04_cuda_async": ("host-to-device copies that do not wait", "406"),
    "05_opencv_wrappers": ("faster wrappers", "484"),
    "06_vector_env": ("many games at once", ""),
    "07_device_replay": ("the replay on the training device, each frame once", ""),
    "08_overlap": ("the emulators play while the update runs", ""),
    "09_cuda_graph": ("a whole update in one launch; on a CPU its fastest plain form", ""),
}
READ_FIRST = ("01_baseline", "08_overlap", "09_cuda_graph")
SLOW = {
    "nothing": "its own",
    "python": "and {each} of Python",
    "outside": "and {each} outside Python",
    "sleep": "and {each} asleep",
}
STEPS_2017 = {"1": 154, "2": 200, "3": 212, "4": 227, "5": 228, "6": 232}
CEILINGS = {
    "--wrappers classic": ("one game, classic wrappers", "01 to 04", "env steps/s"),
    "--wrappers opencv": ("one game, OpenCV", "05", "env steps/s"),
    "--wrappers vector": ("eight games in C++ threads", "06 to 09", "env steps/s"),
    "--form plain --batch-size 32": ("plain update, batch 32", "01", "samples/s"),
    "--form plain --batch-size 128": ("plain update, batch 128", "02 to 08", "samples/s"),
    "--form fast --batch-size 128": ("fastest update, batch 128", "09", "samples/s"),
}


class Timing(NamedTuple):
    """A file of bench/fps.py."""

    stamp: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    ceilings: dict[str, list[float]]  # by the words that asked for them


def timing_of(page: Page, name: str) -> Timing:
    timing = Timing({}, {}, {})
    for line in page.read(f"{name}.jsonl"):
        if line["kind"] == "environment":
            timing.stamp.update(line)
        elif line["kind"] == "row":
            timing.rows[line["row"]] = line
        elif line["kind"] == "ceiling" and "words" in line:
            unit = "env_steps_per_s" if line["what"] == "env" else "samples_per_s"
            timing.ceilings.setdefault(" ".join(line["words"]), []).append(line[unit])
    return timing


def passed(scores: Sequence[float], level: float, games: int = 30) -> int | None:
    """Return the index of the first game at whose end the mean of the last `games` is above `level`."""
    ends = range(games - 1, len(scores))
    return next((end for end in ends if statistics.fmean(scores[end - games + 1 : end + 1]) > level), None)


def timed(page: Page, name: str, timing: Timing) -> str:
    stamp = timing.stamp
    repeats = f"median (range) of {stamp['options']['repeats']} interleaved repetitions"
    return f"Measured on {machine(stamp)}; {repeats}; {software([stamp])}; {page.data('data', f'{name}.jsonl')}."


def ladder(page: Page, sources: Sources) -> str:
    new, old = timing_of(page, sources.ladder), timing_of(page, sources.ladder_before)
    heads = ["script", "the idea", "env steps/s", "gain over 01", "share of the update alone"]
    heads += [f"gain on {processor(old.stamp)}", "2017, GTX 1080Ti"]
    rows: list[list[str]] = []
    for script, (idea, in_2017) in IDEAS.items():
        row, before = new.rows[script], old.rows[script]
        cells = [page.link(script, f"experiments/{script}.py"), idea, spread(row["env_steps_per_s_all"])]
        cells += [f"{row['gain_over_first']:.2f}", f"{row['share_of_update_only']:.0%}"]
        rows.append([*cells, f"{before['gain_over_first']:.2f}", in_2017])
    first = f"There 01 made {spread(old.rows['01_baseline']['env_steps_per_s_all'])} env steps/s."
    note = f"{timed(page, sources.ladder, new)}\n{timed(page, sources.ladder_before, old)} {first}"
    return f"{grid(heads, rows, note)}\n\n!{page.data('env steps/s of all scripts', f'{sources.ladder}.png')}"


def ladder_short(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.ladder)
    rows: list[list[str]] = []
    for script, (idea, in_2017) in IDEAS.items():
        gain = f"{timing.rows[script]['gain_over_first']:.2f}"
        read = page.link(script, f"experiments/{script}.py")
        rows.append([f"**{read}**" if script in READ_FIRST else read, idea, gain, in_2017])
    note = f"In bold: read these first. {machine(timing.stamp)}, {software([timing.stamp])}."
    return grid(("script", "the idea", "speed, 01 = 1", "2017, GTX 1080Ti, env steps/s"), rows, note)


def ladder_gpu(page: Page, sources: Sources) -> str:
    lines = [line for name in sources.ladder_gpu for line in page.read(f"{name}.jsonl")]
    stamps = [line for line in lines if line["kind"] == "environment"]
    trials = [line for line in lines if line["kind"] == "trial"]
    rows: list[list[str]] = []
    for line in trials:
        speed, samples = line["env_steps_per_s"], line["samples_per_step"]
        script, _, more = line["row"].partition(" ")
        told = [page.link(script, f"experiments/{script}.py"), f"`{more}`" if more else "", f"{line['games']}"]
        told += [f"{line['batch_size']}", f"{samples:.0f}", f"{speed:,.0f}", f"{speed * samples:,.0f}"]
        alike = round(samples) == round(trials[0]["samples_per_step"])
        rows.append([*told, f"{speed / trials[0]['env_steps_per_s']:.1f}" if alike else ""])
    heads = ["script", "options", "games at once", "batch", "samples for each env step"]
    heads += ["env steps/s", "samples/s", "x 01"]
    links = ", ".join(page.data(f"data {number}", f"{name}.jsonl") for number, name in enumerate(sources.ladder_gpu, 1))
    note = f"Measured once each, on {machine(stamps[0])}; {software(stamps)}; {links}."
    return grid(heads, rows, note)


def ceilings(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.ladder)
    rows = [[what, of, spread(timing.ceilings[asked], 0), unit] for asked, (what, of, unit) in CEILINGS.items()]
    return grid(("alone", "of", "speed", "unit"), rows, timed(page, sources.ladder, timing))


def steps(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.steps)
    speeds = {label.split("=")[1]: spread(row["env_steps_per_s_all"]) for label, row in timing.rows.items()}
    rows = [["env steps/s", *speeds.values()], ["2017, GTX 1080Ti", *(str(STEPS_2017.get(n, "")) for n in speeds)]]
    return grid(("N", *speeds), rows, timed(page, sources.steps, timing))


def parts(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.parts)
    alone = {words.split("--variant ")[-1]: values for words, values in timing.ceilings.items()}
    rows: list[list[str]] = []
    for label, row in timing.rows.items():
        variant, gain = label.split("=")[1], f"{row['gain_over_first']:.2f}"
        rows.append([variant, spread(row["env_steps_per_s_all"], 0), gain, spread(alone[variant], 0)])
    heads = ("variant", "env steps/s", "x dqn", "the update alone, samples/s")
    return grid(heads, rows, timed(page, sources.parts, timing))


def actor_critics(page: Page, sources: Sources) -> str:
    timing = timing_of(page, sources.actor_critics)
    rows: list[list[str]] = []
    for label, row in timing.rows.items():
        script, players, games = label.split()[0], int(row["players"]), int(row["games"])
        if not script.startswith("2"):  # 20 to 22 alone: PPO is another algorithm
            continue
        who = f"{players} player{'s' if players > 1 else ''}" if "--players" in label else "this process"
        cells = [page.link(script, f"experiments/{script}.py"), who, f"{games // players}"]
        cells += [spread(row["env_steps_per_s_all"], 0), f"{row['gain_over_first']:.2f}"]
        rows.append([*cells, f"{row['samples_per_step']:.1f}", f"{row['share_of_env_only']:.0%}"])
    heads = ("script", "who plays", "games of each", "env steps/s", "x 20", "samples for each env step")
    return grid((*heads, "of the games alone"), rows, timed(page, sources.actor_critics, timing))


def trainer_thread(page: Page, sources: Sources) -> str:
    stamp: dict[str, Any] = {}
    rows: list[list[str]] = []
    for line in page.read(f"{sources.trainer_thread}.jsonl"):
        if line["kind"] == "environment":
            stamp = line
        if line["kind"] == "row":
            speeds = [spread(of, 0) for of in line["speeds"].values()]
            every = line.get("steps_per_update")  # there was one pace alone before, of which the page speaks
            pace = f", {every:g} env step{'s' if every != 1 else ''} an update" if every else ""
            rows.append([SLOW[line["work"]], line["algorithm"].upper() + pace, *speeds, f"{line['gain']:.2f}"])
    each = f"{float(stamp['options']['milliseconds']):g} ms"
    rows = [[cell.format(each=each) for cell in row] for row in rows]
    heads = ("each step of the environment", "algorithm", "no thread", "no thread, PyTorch on all cores", "a thread")
    note = timed(page, sources.trainer_thread, Timing(stamp, {}, {}))
    return grid((*heads, "a thread, over the better without"), rows, f"Env steps/s. {note}")


def pong(page: Page, sources: Sources) -> str:
    heads = ["script", "network", "machine", "minutes, median", "every seed"]
    heads += ["last 100 games", "fresh games", "Nature's protocol", "date"]
    rows: list[list[str]] = []
    stamps: list[dict[str, Any]] = []
    for setting in sources.pong:
        runs = [run_of(page, name) for name in setting.runs]
        stamps += [run.stamp for run in runs]
        if not all(run.summary["solved"] for run in runs):
            raise DataError(f"A run of bench/results/{setting.prefix}* did not solve Pong: it has no time for a table.")
        if any(run.summary.get("confirmed") is False for run in runs):
            raise DataError(f"Fresh games refute a run of bench/results/{setting.prefix}*: it has no time for a table.")
        minutes = f"**{statistics.median(run.minutes for run in runs):.1f}**"
        dates = sorted({run.stamp["time"][:10] for run in runs})
        seeds = ", ".join(page.data(f"{run.minutes:.1f}", run.name) for run in runs)
        where = " / ".join(sorted({machine(run.stamp) for run in runs}))
        network = " / ".join(sorted({run.network for run in runs}))
        last = spread([run.summary["mean_100"] for run in runs], 2)
        after = [last, means(runs, "fresh"), means(runs, "nature"), " to ".join(dict.fromkeys((dates[0], dates[-1])))]
        rows.append([f"`{setting.command}`", network, where, minutes, seeds, *after])
    return grid(heads, rows, f"Each time links its data ({page.link('all runs', 'docs/pong.md')}); {software(stamps)}.")


def pong_runs(page: Page, sources: Sources) -> str:
    return runs_of(page, sources.pong)


def pong_runs_gpu(page: Page, sources: Sources) -> str:
    return runs_of(page, sources.pong_gpu)


def variants(page: Page, sources: Sources) -> str:
    heads = ("variant", "past 0", "past 10", "past 15", "last 30", "solved at", "env steps/s")
    rows: list[list[str]] = []
    stamps: list[dict[str, Any]] = []
    for name in VARIANTS:
        folder = f"{sources.variants}/{name}"
        run, games = run_of(page, folder), page.read(f"{folder}/episodes.jsonl")
        stamps.append(run.stamp)
        scores = [game["score"] for game in games]
        ends = [passed(scores, level) for level in (0, 10, 15)]
        past = ["-" if end is None else f"{games[end]['env_steps'] / 1000:.0f}k" for end in ends]
        solved = f"{run.summary['env_steps']:,}" if run.summary["solved"] else "-"
        last = [f"{statistics.fmean(scores[-30:]):.1f}", solved, f"{run.summary['median_env_steps_per_s']:.0f}"]
        rows.append([page.data(VARIANT_NAMES.get(name, name), folder), *past, *last])
    where = " / ".join(sorted({machine(stamp) for stamp in stamps}))
    return grid(heads, rows, f"Measured on {where}, one run a variant; {software(stamps)}; each name links its data.")


def curves(page: Page, sources: Sources) -> str:
    lines = page.read(f"{sources.curves}.jsonl")
    millions = range(min(3, max(len(line["means"]) for line in lines)))
    rows: list[list[str]] = []
    for line in lines:
        theirs = published()[line["game"]][line["agent"]]
        told = [title_of(line["game"]), f"`{line['agent']}`", str(line["seed"])]
        for million in millions:
            own = f"{line['means'][million]:,.1f}" if million < len(line["means"]) else "-"
            middle, low, high = (f"{of(theirs[million]):,.1f}" for of in (statistics.fmean, min, max))
            told.append(f"{own} / {middle} ({low}-{high})")
        rows.append([*told, f"{line['minutes']:.0f}"])
    heads = ["game", "agent", "seed", *(f"{million + 1} million frames" for million in millions), "minutes"]
    where = " / ".join(sorted({machine(line) for line in lines}))
    note = "Here / Dopamine's mean (range) of five seeds; minutes until the end of these millions"
    return grid(heads, rows, f"{note}. {where}, {software(lines)}; {page.data('data', f'{sources.curves}.jsonl')}.")


MAKERS = (
    ladder,
    ladder_short,
    ladder_gpu,
    ceilings,
    steps,
    parts,
    actor_critics,
    trainer_thread,
    pong,
    pong_runs,
    pong_runs_gpu,
    variants,
    curves,
)
TABLES = {make.__name__.replace("_", "-"): make for make in MAKERS}
BEGIN = "<!-- table: "
MARKED = re.compile(rf"{BEGIN}(?P<name>\S*) -->\n(?P<body>(?:(?!{BEGIN}).)*?)<!-- end -->", re.DOTALL)


def rewritten(text: str, page: Page) -> tuple[str, list[str]]:
    """Return the text of a page with its tables made anew, and the names of those that were stale.

    Raises:
        DataError: data are missing or say too little, or a marker is not closed or names no table.
    """
    stale: list[str] = []

    def renewed(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in TABLES:
            raise DataError(f"{page.name} asks for the table {name}; there are {', '.join(TABLES)}.")
        try:
            body = f"{TABLES[name](page, NEWEST)}\n"
        except KeyError as error:
            raise DataError(f"The data of the table {name} lack {error}.") from error
        if body != found["body"]:
            stale.append(name)
        return f"{BEGIN}{name} -->\n{body}<!-- end -->"

    if text.count(BEGIN) != len(MARKED.findall(text)):
        raise DataError(f"{page.name} has a table that is not closed by <!-- end -->.")
    return MARKED.sub(renewed, text), stale


def pages(root: Path = ROOT) -> list[Page]:
    names = ["README.md", *sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))]
    return [Page(root, name) for name in names]


@dataclasses.dataclass(frozen=True)
class TableOptions:
    check: bool = False
    """Write nothing; name the tables that are not what the data say."""


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    found = False
    try:
        options = parsed(TableOptions, sys.argv[1:] if words is None else words, TableOptions(), __doc__ or "")
        for page in pages(root):
            path = root / page.name
            text, stale = rewritten(path.read_text(encoding="utf-8"), page)
            for name in stale:
                said = "is not what bench/results says; run python bench/tables.py" if options.check else "is new"
                print(f"{page.name}: the table {name} {said}.")
            if stale and not options.check:
                path.write_text(text, encoding="utf-8")
            found = found or bool(stale)
    except (DataError, UserError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
