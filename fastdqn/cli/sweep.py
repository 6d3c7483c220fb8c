"""`fastdqn sweep`: a script over games, agents, seeds and any of its options, as one thing that can be resumed."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from fastdqn import process
from fastdqn.cli.rehearsal import mistake
from fastdqn.cli.train import run_as_main, script_called
from fastdqn.errors import UserError
from fastdqn.options.fields import at_least
from fastdqn.terminal import complain

if TYPE_CHECKING:
    from fastdqn.tools.sweep.control import Engine
    from fastdqn.tools.sweep.plan import Task


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run a script over games, agents, seeds and any of its options; the same command continues a sweep that was
    stopped or killed. Options of the script that all runs have follow --."""

    script: Annotated[str, tyro.conf.Positional]
    """Number or name of the script, or the path of one of your own (x.py)."""
    into: Path
    """Folder of the sweep: its plan, its runs, and the results, from which alone it continues on any machine."""
    games: str | None = None
    """Games between commas, or atari-26 for those of Atari-100k; by default the script's own."""
    agents: str | None = None
    """Agents between commas; by default the script's own."""
    seeds: str = "1"
    """How many seeds, from 0 on; or which: 4..6, or 0,7."""
    vary: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Another option of the script and its values, as in learning-rate=1e-4,2e-4 (a flag: double=on,off); may be given
    several times."""
    jobs: int | None = None
    """Runs at once; by default as many as there are cores for. A cluster of --address decides for itself."""
    cores: int = 1
    """Cores of each run, to which it is bound."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of runs that have ended; their weights are kept anyway."""
    engine: Literal["local", "ray"] = "local"
    """Where runs are done: on this machine, or by Ray."""
    address: str | None = None
    """Of a Ray cluster; by default one is started on this machine."""


def sweep(options: Sweep, fixed: Sequence[str] = ()) -> int:
    """Run the sweep; return the exit code.

    Args:
        options: of the command line.
        fixed: what follows -- in it; --help among it prints the script's options, and nothing is run.

    Raises:
        UserError: a mistake in the options, or in those of a run; none has begun then.
        RunError: the folder cannot be written to.
    """
    at_least(options.jobs, 1, "--jobs")
    at_least(options.cores, 1, "--cores")
    if options.address is not None and options.engine != "ray":
        raise UserError("--address is that of a Ray cluster; give --engine ray, too.")
    if options.engine == "local" and options.cores > process.cores():
        raise UserError(f"--cores {options.cores} is more than the {process.cores()} that there are.")
    path = Path(options.script)
    path = path.resolve() if path.suffix == ".py" and path.is_file() else script_called(options.script)
    if {"-h", "--help"} & set(fixed):
        run_as_main(path, fixed, f"fastdqn sweep {path.stem} ... --")
        return 0
    from fastdqn.tools.sweep.control import run_sweep
    from fastdqn.tools.sweep.plan import axes_of, tasks_of

    tasks = tasks_of(axes_of(options.games, options.agents, options.seeds, options.vary), fixed)

    def check(left: Sequence[Task]) -> None:
        kinds = {tuple(sorted({**task.asked, "seed": ""}.items())): task.words for task in left}
        try:
            wrong = mistake(path, list(kinds.values()))
        except subprocess.TimeoutExpired:
            complain("Not all options could be checked beforehand within two minutes; the sweep begins all the same.")
            return
        if wrong is not None:
            raise UserError(f"{wrong} No run has begun.")

    return run_sweep(options.into, path, tasks, lambda: _engine(options), check, options.keep_checkpoints)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before -- and those after it."""
    words = list(words)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def _engine(options: Sweep) -> Engine:
    if options.engine == "ray":
        from fastdqn.tools.sweep.cluster import RayWorkers

        return RayWorkers(options.address, options.jobs, options.cores)
    from fastdqn.tools.sweep.local import LocalWorkers, slots_of

    return LocalWorkers(slots_of(options.jobs, options.cores))
