"""Draws the learning curves of runs: the score of every game, and the mean of the last 100, over minutes and env steps.

python bench/learning_curve.py runs/20261121-...-pong-09_cuda_graph --out bench/results/pong.png
"""

import fastdqn.startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from fastdqn.cli import parsed
from fastdqn.errors import UserError


@dataclasses.dataclass(frozen=True)
class CurveOptions:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of runs."""
    out: Path = Path("learning_curve.png")
    """The picture: PNG, SVG or PDF, by its ending."""


def episodes_of(run: Path) -> list[dict[str, Any]]:
    """Return what a run's episodes.jsonl says.

    Raises:
        UserError: there is no such run, or no game has finished in it.
    """
    try:
        text = (run / "episodes.jsonl").read_text(encoding="utf-8")
        (run / "config.json").read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{run} is not the folder of a run: {error.strerror}.") from error
    episodes = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    if not episodes:
        raise UserError(f"No game has finished in {run}.")
    return episodes


def draw(options: CurveOptions) -> None:
    if not options.runs:
        raise UserError("Name the folder of at least one run.")
    curves = {run: episodes_of(run) for run in options.runs}
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for run, episodes in curves.items():
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        label = f"{config['script']}, {config['run']['game']}, seed {config['run']['seed']}"
        for side, key, scale in zip(axes, ("elapsed", "env_steps"), (60.0, 1000.0), strict=True):
            x = [episode[key] / scale for episode in episodes]
            (line,) = side.plot(x, [episode["mean_100"] for episode in episodes], label=label)
            side.plot(
                x, [episode["score"] for episode in episodes], ".", markersize=3, alpha=0.4, color=line.get_color()
            )
    axes[0].set_xlabel("minutes since the process began")
    axes[1].set_xlabel("thousand env steps")
    axes[0].set_ylabel("score; line: mean of the last 100 games")
    axes[0].legend(loc="upper left", fontsize=8)
    for side in axes:
        side.spines[["top", "right"]].set_visible(False)
        side.grid(alpha=0.3)
    try:
        figure.savefig(options.out, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"The picture {options.out} cannot be written: {error}.") from error
    pyplot.close(figure)


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
