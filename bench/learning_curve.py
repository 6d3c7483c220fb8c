"""Draws the learning curves of runs: the mean of the last 100 games over minutes and env steps.

Runs that differ in their seed alone become one curve with a band; a run on its own shows every game as a dot, too.

python bench/learning_curve.py runs/20261121-...-pong-09_cuda_graph --out bench/results/pong.png
"""

import fastdqn.startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from fastdqn.errors import UserError
from fastdqn.parsing import parsed
from fastdqn.plot import draw_curves, grouped, read_run


@dataclasses.dataclass(frozen=True)
class CurveOptions:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of runs."""
    out: Path = Path("learning_curve.png")
    """The picture: PNG, SVG or PDF, by its ending."""
    each: bool = False
    """A curve for each run, also where only the seeds differ."""


def draw(options: CurveOptions) -> None:
    if not options.runs:
        raise UserError("Name the folder of at least one run.")
    runs = [read_run(folder) for folder in options.runs]
    groups = grouped(runs)
    if options.each:
        groups = {f"{label}, seed {run.config['run']['seed']}": [run] for label in groups for run in groups[label]}
    draw_curves(groups, options.out)


def main() -> int:
    try:
        options = parsed(CurveOptions, sys.argv[1:], CurveOptions(), __doc__ or "")
        draw(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
