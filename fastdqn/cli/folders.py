"""Folders of runs on the command line: runs, folders of runs, and "latest"."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from fastdqn.errors import UserError
from fastdqn.terminal import complain

if TYPE_CHECKING:
    from fastdqn.tools.reading import RunData

AnyT = TypeVar("AnyT")
OtherT = TypeVar("OtherT")
RunFolder = Annotated[Path, tyro.conf.Positional]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional]
RUNS = Path("runs")
"""Where scripts leave their runs unless told otherwise."""
DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"
"""The network that comes with the package, a run's folder without its logs."""


def folder_of(run: Path, runs_dir: Path) -> Path:
    """Return the folder that `run` means; "latest" is the newest run in `runs_dir`, or in a sweep in it, and "demo"
    the network that comes with the package.

    Raises:
        UserError: there is no run at all, or no such folder.
    """
    if str(run) == "demo":
        if not (DEMO / "config.json").exists():
            raise UserError("This fastdqn comes without its demo network; train one (make pong), and name its folder.")
        return DEMO
    if str(run) != "latest":
        if not run.exists():
            raise UserError(f"{run} is not the folder of a run: there is no such folder.")
        return run
    from fastdqn.runs.folder import written_at

    found = sorted(_inside(runs_dir), key=lambda folder: written_at(folder / "config.json"))
    if not found:
        raise UserError(f"There is no run in the folder {runs_dir}; name the folder of one, or give --runs-dir.")
    return found[-1]


def folders_of(runs: Sequence[Path], runs_dir: Path) -> list[Path]:
    """Return the folders that `runs` mean, each once: of a sweep, or of another folder of runs, all runs in it.

    Raises:
        UserError: none is named, there is no such folder, or no run for "latest".
    """
    if not runs:
        raise UserError("Name the folder of at least one run.")
    found: dict[Path, Path] = {}
    for named in [folder_of(run, runs_dir) for run in runs]:
        inside: list[Path] = []
        with contextlib.suppress(OSError):  # whoever reads it is told why
            inside = [] if (named / "config.json").exists() else _inside(named)
        for folder in inside or [named]:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def runs_of(runs: Sequence[Path], runs_dir: Path, games: bool = True) -> list[RunData]:
    """Return the runs in the folders that `runs` mean; what cannot be read is named on stderr and left out.

    Args:
        runs: as the command line says them.
        runs_dir: where "latest" looks.
        games: leave out those without a finished game, too.

    Raises:
        UserError: nothing is left, or as for `folders_of`.
    """
    from fastdqn.tools.reading import read_run

    def read(folder: Path) -> RunData:
        try:
            run = read_run(folder)
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror or error}.") from error
        if games and not run.episodes:
            raise UserError(f"No game has finished in {folder}.")
        return run

    return of_those_that_can(read, folders_of(runs, runs_dir))


def of_those_that_can(work: Callable[[AnyT], OtherT], ones: Sequence[AnyT]) -> list[OtherT]:
    """Return what `work` returns for each of `ones`, at least one; those that it raises UserError for are named on
    stderr and left out.

    Raises:
        UserError: as for the first, where nothing is left.
    """
    found: list[OtherT] = []
    why: list[UserError] = []
    for one in ones:
        try:
            found.append(work(one))
        except UserError as error:
            why.append(error)
    if not found:
        raise why[0]
    for error in why:
        leave_out(error)
    return found


def leave_out(why: object) -> None:
    """Say on stderr what is left out."""
    complain(f"left out: {why}")


def _inside(folder: Path) -> list[Path]:
    """Return the runs in a folder: of a sweep, or of several sweeps and runs."""
    return sorted(path.parent for depth in range(1, 5) for path in folder.glob(f"{'*/' * depth}config.json"))
