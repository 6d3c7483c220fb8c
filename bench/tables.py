"""Writes the tables of README.md and docs from the data in bench/results.

    python bench/tables.py            rewrites what stands between `<!-- table: NAME -->` and `<!-- end -->`
    python bench/tables.py --check    writes nothing; names the stale tables, and exits with 1 if there are any

After a new measurement, change the name of its data in bench/newest.py.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where bench is, if this file is run

from bench.dopamine import published
from bench.newest import NEWEST, Sources
from bench.pages import DataError, Page, grid, machine, software, spread
from bench.records import means, run_of, runs_of, why_no_record
from bench.timings import actor_critics, ceilings, ladder, ladder_gpu, ladder_short, parts, steps, trainer_thread
from fastdqn.cli.parser import parsed
from fastdqn.envs.games import title_of
from fastdqn.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


VARIANTS = ("dqn", "one-step", "double", "noisy", "prioritized", "dueling", "distributional", "rainbow")
VARIANT_NAMES = {"dqn": "dqn (= n-step)", "one-step": "dqn, 1 step"}


def passed(scores: Sequence[float], level: float, games: int = 30) -> int | None:
    """Return the index of the first game at whose end the mean of the last `games` is above `level`."""
    ends = range(games - 1, len(scores))
    return next((end for end in ends if statistics.fmean(scores[end - games + 1 : end + 1]) > level), None)


def pong(page: Page, sources: Sources) -> str:
    heads = ["script", "network", "machine", "seeds", "minutes, median", "every seed"]
    heads += ["last 100 games", "fresh games", "Nature's protocol", "date"]
    rows: list[list[str]] = []
    stamps: list[dict[str, Any]] = []
    for setting in sources.pong:
        runs = [run_of(page, name) for name in setting.runs]
        stamps += [run.stamp for run in runs]
        for run in runs:
            if (why := why_no_record(run)) is not None:
                raise DataError(f"bench/results/{run.name} {why}: it has no time for a table.")
        minutes = f"**{statistics.median(run.minutes for run in runs):.1f}**"
        dates = sorted({run.stamp["time"][:10] for run in runs})
        seeds = ", ".join(page.data(f"{run.minutes:.1f}", run.name) for run in runs)
        where = " / ".join(sorted({machine(run.stamp) for run in runs}))
        network = " / ".join(sorted({run.network for run in runs}))
        last = spread([run.summary["mean_100"] for run in runs], 2)
        after = [last, means(runs, "fresh"), means(runs, "nature"), " to ".join(dict.fromkeys((dates[0], dates[-1])))]
        ran = f"{setting.seeds[0]} to {setting.seeds[-1]}"
        rows.append([f"`{setting.command}`", network, where, ran, minutes, seeds, *after])
    return grid(heads, rows, f"Each time links its data ({page.link('all runs', 'docs/pong.md')}); {software(stamps)}.")


def pong_runs(page: Page, sources: Sources) -> str:
    return runs_of(page, sources.pong)


def pong_unseen(page: Page, sources: Sources) -> str:
    runs = [run_of(page, name) for setting in sources.pong_unseen for name in setting.runs]
    times = [run.minutes if why_no_record(run) is None else math.inf for run in runs]
    solved, median = sum(math.isfinite(time) for time in times), statistics.median(times)
    said = f"{solved} of {len(runs)} solved and not refuted; {median:.1f} minutes at the median of all {len(runs)}"
    return f"{runs_of(page, sources.pong_unseen)} {said}, where a run that is not solved takes longer than any."


def pong_runs_gpu(page: Page, sources: Sources) -> str:
    return runs_of(page, sources.pong_gpu)


def variants(page: Page, sources: Sources) -> str:
    heads = (
        "variant",
        *(f"env steps until past {n}" for n in (0, 10, 15)),
        "last 30",
        "env steps until solved",
        "env steps/s",
    )
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
    pong_unseen,
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
