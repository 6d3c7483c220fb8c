"""What bench/fps.py shows of what it has timed: a table, and a plot."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastdqn.runs.stopwatch import percentages


def spread(values: list[float]) -> str:
    """Return median and range."""
    if len(values) == 1:
        return f"{values[0]:,.1f}"
    return f"{statistics.median(values):,.1f} ({min(values):,.1f}-{max(values):,.1f})"


def print_table(console: Console, lines: list[dict[str, Any]], ceilings: dict[Any, list[float]], stamp: Any) -> None:
    """Print a line for each row, then the ceilings, where the time of loops went if asked for, and the machine."""
    table = Table(title="Steady state, median of the repeats (range)", title_justify="left")
    for heading in ("script", "env steps/s", "x previous", f"x {lines[0]['row'][:2]}", "updates/s", "samples/step"):
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
            f"{100 * line['share_of_env_only']:.1f}%",
            f"{100 * line['share_of_update_only']:.0f}%",
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


def draw(lines: list[dict[str, Any]], path: Path, stamp: dict[str, Any]) -> None:
    """Draw each row's median as a bar, with its range."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = [line["row"] for line in lines]
    medians = [line["env_steps_per_s"] for line in lines]
    lower = [m - min(line["env_steps_per_s_all"]) for m, line in zip(medians, lines, strict=True)]
    upper = [max(line["env_steps_per_s_all"]) - m for m, line in zip(medians, lines, strict=True)]
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.5 * len(lines)), layout="constrained")
    axes.barh(labels, medians, xerr=[lower, upper], color="#4477aa", ecolor="#222222", capsize=3)
    for y, (line, median) in enumerate(zip(lines, medians, strict=True)):
        axes.text(median * 0.02, y, f"{median:,.1f}  (x{line['gain_over_first']:.2f})", va="center", color="white")
    axes.invert_yaxis()
    axes.set_xlabel("env steps/s, median and range")
    axes.set_title(f"{stamp['gpu'] or stamp['cpu'].split(' family')[0]}, {stamp['cores']} cores", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
