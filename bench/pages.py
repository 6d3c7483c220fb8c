"""Pages with tables: where their data are, and how machines, spreads and tables are written."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class DataError(Exception):
    """Data or markers that no table can be made from: one sentence, exit code 2."""


class Page(NamedTuple):
    """A page of a checkout: reads the data, and links to them as seen from the page."""

    root: Path
    name: str  # README.md or docs/...

    def link(self, words: str, target: str) -> str:
        return f"[{words}]({os.path.relpath(target, Path(self.name).parent).replace(os.sep, '/')})"

    def data(self, words: str, name: str) -> str:
        return self.link(words, f"bench/results/{name}")

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return what a .json (one) or .jsonl file in bench/results says; DataError if it is missing or damaged."""
        try:
            text = (self.root / "bench" / "results" / name).read_text(encoding="utf-8")
            return [json.loads(part) for part in (text.splitlines() if name.endswith(".jsonl") else [text])]
        except OSError as error:
            raise DataError(f"bench/results/{name} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise DataError(f"bench/results/{name} is damaged: {error}.") from error


def processor(stamp: dict[str, Any]) -> str:
    """Return the processor by the name of its design, where that is known."""
    cpu = re.fullmatch(r"(.*) family (\d+) model (\d+) (\[.*\])", stamp["cpu"])
    if cpu is None:
        return str(stamp["cpu"])
    name, family, model, flags = cpu[1], int(cpu[2]), int(cpu[3]), cpu[4]
    zen = {25: "Zen 4" if model >= 16 else "Zen 3", 26: "Zen 5"} if "EPYC" in name else {}
    said = zen.get(family, f"family {family} model {model}")
    arithmetic = "AMX with bf16" if "amx_bf16" in flags else "bf16" if "bf16" in flags else "no bf16"
    return f"{name.replace('(R)', '').removesuffix(' Processor')} ({said}, {arithmetic})"


def machine(stamp: dict[str, Any]) -> str:
    cores = f"{stamp['cores']} core{'s' if stamp['cores'] > 1 else ''} of {processor(stamp)}"
    return f"{cores}, {stamp['gpu'] or 'no GPU'}"


def software(stamps: Sequence[dict[str, Any]], commits: bool = True) -> str:
    """Return dates, versions of torch and, if asked for, commits."""
    days = sorted(stamp["time"][:10] for stamp in stamps)
    versions = sorted({stamp["packages"]["torch"] for stamp in stamps})
    said = f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, torch {', '.join(versions)}"
    return f"{said}, commit {', '.join(sorted({str(stamp['commit']) for stamp in stamps}))}" if commits else said


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return median and range, or the one value that there is."""
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low}-{high})"


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))
    return f"{table}\n\n{note}"
