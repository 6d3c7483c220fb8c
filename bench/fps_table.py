"""What bench/fps.py shows of what it has timed: a table, and a plot."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.pages import spread
from fastdqn.runs.stopwatch import percentages
from fastdqn.tools.pictures import drawing, save_picture

FAMILIES = {"dqn": "DQN and its kin", "actor-critic": "actor-critics", "sac": "soft actor-critic"}


def print_table(console: Console, lines: list[dict[str, Any]], ceilings: dict[Any, list[float]], stamp: Any) -> None:
    """Print a line for each row, then the ceilings, where the time of loops went if asked for, and the machine."""
    table = Table(title="Steady state, median of the repeats (range)", title_justify="left")
    for heading in ("script", "env steps/s", "x previous", "x first", "updates/s", "samples/env step"):
        table.add_column(heading, justify="left" if heading == "script" else "right")
    for heading in ("of env-only", "of update-only", "RSS GB", "device GB"):
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(
            line["row"],
            spread(line["env_steps_per_s_all"]),
            f"{line['gain_over_previous']:.2f}",
            f"{line['gain_over_first']:.2f}",
            f"{line['updates_per_s']:,.1f}",
            f"{line['samples_per_step']:.2f}",
            _share(line["share_of_env_only"], 1),
            _share(line["share_of_update_only"], 0),
            f"{line['peak_rss_bytes'] / 1e9:.2f}",
            f"{line['peak_device_bytes'] / 1e9:.2f}",
        )
    console.print(table)
    for (what, which), values in ceilings.items():
        unit = "env steps/s of the games alone" if what == "env" else "samples/s of the update alone"
        said = " ".join(which).replace("--", "").replace("num-envs", "num envs")
        console.print(f"ceiling: {spread(values)} {unit} ({said})", soft_wrap=True)
    for line in lines:
        if line["profile"]:
            console.print(f"where the time of {line['row']} goes: {percentages(line['profile'])}", soft_wrap=True)
    gpu = f", {stamp['gpu']}" if stamp["gpu"] else ", no GPU"
    versions = ", ".join(f"{name} {stamp['packages'][name]}" for name in ("torch", "ale-py", "gymnasium"))
    console.print(f"machine: {stamp['cpu']}, {stamp['cores']} cores{gpu}; {versions}; commit {stamp['commit']}")


def _share(part: float | None, digits: int) -> str:
    """Return a share as a percentage, and a dash where there is none."""
    return "-" if part is None else f"{100 * part:.{digits}f}%"


@drawing()
def draw(lines: list[dict[str, Any]], path: Path, stamp: dict[str, Any]) -> None:
    """Draw each row's median as a bar, with its range: a panel for each family, whose speeds can be compared."""
    from matplotlib.figure import Figure

    families = {family: [line for line in lines if line["family"] == family] for family in _families(lines)}
    sizes = [sum(1 + 0.5 * _label(line).count("\n") for line in rows) + 0.9 for rows in families.values()]
    figure: Any = Figure(figsize=(8, 0.8 + 0.38 * sum(sizes)), layout="constrained")
    panels = figure.subplots(len(families), squeeze=False, height_ratios=sizes)
    for axes, (family, rows) in zip(panels[:, 0], families.items(), strict=True):
        medians = [line["env_steps_per_s"] for line in rows]
        highest = [max(line["env_steps_per_s_all"]) for line in rows]
        lower = [m - min(line["env_steps_per_s_all"]) for m, line in zip(medians, rows, strict=True)]
        upper = [h - m for h, m in zip(highest, medians, strict=True)]
        axes.barh([_label(line) for line in rows], medians, xerr=[lower, upper], color="#4477aa", capsize=3)
        for y, (line, median, high) in enumerate(zip(rows, medians, highest, strict=True)):
            axes.text(high, y, f"  {median:,.1f} ({_gain(line, rows[0])})", va="center", fontsize=9)
        axes.set_xlim(0, 1.25 * max(highest))
        axes.invert_yaxis()
        axes.set_title(FAMILIES.get(family, family), fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("env steps/s, median and range; x: the panel's first row, at equal samples per env step")
    figure.suptitle(f"{stamp['gpu'] or stamp['cpu'].split(' family')[0]}, {stamp['cores']} cores", fontsize=10)
    save_picture(figure, path, dpi=120, bbox_inches="tight")


def _label(line: dict[str, Any]) -> str:
    return fill(line["row"], 36, break_on_hyphens=False)


def _gain(line: dict[str, Any], first: dict[str, Any]) -> str:
    """Return the gain over `first`, or how many samples an env step has where they are others."""
    samples = line["samples_per_step"]
    if abs(samples - first["samples_per_step"]) > 0.05 * samples:
        return f"{samples:.3g} samples per env step"
    return f"x{line['gain_over_first']:.2f}"


def _families(lines: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(line["family"] for line in lines))
