"""One way in for all launchers: this process, its children, torchrun, or an engine such as Ray or Spark.

The contract with engines (`fastdqn.execution.engines`), which are imported only where --engine asks for one:

    on_ray(member: Callable[[], int], world: int, address: str | None) -> int
    on_spark(member: Callable[[], int], world: int, local: bool, address: str | None) -> int

call `member` in `world` processes, each of which has torchrun's variables in its environment (`RANK`, `WORLD_SIZE`,
`LOCAL_RANK`, `LOCAL_WORLD_SIZE` where it is known, `MASTER_ADDR`, `MASTER_PORT`), and return the exit code of the run:
that of rank 0, or the first that is not 0. A `member` takes no arguments and can be pickled: it has the script's path
and the options, resolved. Called once in a process, it runs that process's rank to its end and returns its exit code:
0, 130 after Ctrl-C, 2 for a mistake in the options, 3 for a checkpoint that cannot be resumed, 1 for a run that failed.
It says so in a sentence on standard error, and raises nothing for a user's mistake. Nobody listens at `MASTER_PORT`
before: rank 0 does, unless the environment says as torchrun does, by `TORCHELASTIC_USE_AGENT_STORE`, that somebody else
does.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdqn import process
from fastdqn.errors import RunError, UserError
from fastdqn.execution.child import Outbox
from fastdqn.execution.presence import EMBEDDED, lookouts
from fastdqn.execution.processes import LEAVE_SECONDS, ChildProcess, end_all
from fastdqn.execution.starting import environment
from fastdqn.execution.stop_line import loopback
from fastdqn.options.fields import plain
from fastdqn.options.groups import options_from
from fastdqn.options.ranks import RanksOptions
from fastdqn.terminal import complain


@dataclass(frozen=True)
class Member:
    """One rank of a run, in whatever process it is called.

    Args:
        script: its path.
        kind: what the script calls the dataclass of its options.
        options: as a run's config.json says them.
        finish: what follows a run; returns the exit code. Importable.
    """

    script: str
    kind: str
    options: Mapping[str, Any]
    finish: Callable[[Any], int]

    def __call__(self) -> int:
        """Run this rank to its end; return its exit code."""
        try:
            code = self._run()
        except (UserError, RunError) as error:
            code = error.exit_code
            if EMBEDDED not in os.environ:
                complain(f"error: {error}")
        return code or process.exit_code()

    def _run(self) -> int:
        folder = str(Path(self.script).parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)  # where its first import is
        found = runpy.run_path(self.script, run_name="fastdqn_rank")
        return self.finish(found["train"](options_from(found[self.kind], self.options)))


def launch(train: Callable[[Any], Any], options: Any, script: Path, finish: Callable[[Any], int]) -> int:
    """Run a script's `train` in as many processes as `options` ask for; return the exit code.

    Args:
        train: of the script; returns its run, or an exit code.
        options: its options, with the group `ranks`.
        script: its path.
        finish: what follows a run; returns the exit code. Importable.

    Raises:
        UserError: an engine is not installed, or another mistake.
        RunError: a rank failed.
    """
    ranks: RanksOptions = options.ranks
    member = Member(str(script), type(options).__name__, plain(options), finish)
    if ranks.engine is not None:
        from fastdqn.execution import engines

        if ranks.engine == "ray":
            return engines.on_ray(member, ranks.processes, ranks.engine_address)
        return engines.on_spark(member, ranks.processes, ranks.engine == "spark-local", ranks.engine_address)
    if ranks.processes == 1 or joins() is not None:
        return finish(train(options))
    with Children(member, ranks.processes, ranks.rank_timeout):
        trained = train(options)
    return finish(trained)


def joins() -> int | None:
    """Return the number of processes that somebody, say torchrun, has started together with this one; None for a
    process that was started alone.

    Raises:
        UserError: the environment is not that of one of several processes, but neither of a process alone.
    """
    world, rank = os.environ.get("WORLD_SIZE"), os.environ.get("RANK")
    if rank is None and world is not None and world != "1":
        raise UserError(
            f"WORLD_SIZE {world} is in the environment, but not RANK, which of these this process is; unset it, or "
            "start with torchrun."
        )
    if world is None or rank is None:
        return None
    if not world.isdecimal() or not rank.isdecimal() or int(rank) >= int(world):
        raise UserError(
            f"RANK {rank} and WORLD_SIZE {world} in the environment are not those of a process group; unset both, or "
            "start with torchrun."
        )
    return int(world)


def words_of_environment(words: Sequence[str], asked: str | None) -> list[str]:
    """Return `words` of a command line with the number of processes that the environment says, if it says one.

    Args:
        words: of the command line.
        asked: the value of --processes in them.

    Raises:
        UserError: they ask for another number.
    """
    world = joins()
    if world is None:
        return list(words)
    if asked is not None and asked != str(world):
        raise UserError(f"--processes {asked} contradicts the {world} processes that were started together.")
    return [*words, "--processes", str(world)]


def refuse_others() -> None:
    """Refuse to be one of several processes, for a script that learns in one.

    Raises:
        UserError: several were started together.
    """
    world = joins()
    if world is not None and world > 1:
        raise UserError(
            f"This script learns in one process, and WORLD_SIZE in the environment says that {world} learn together; "
            "scripts with --processes learn in several."
        )


class Children:
    """The other ranks of this process's run, as a context manager: its children, on this machine.

    Args:
        member: what each runs.
        world: ranks, this process's among them.
        timeout: seconds in which a child has to be there.
    """

    def __init__(self, member: Member, world: int, timeout: float) -> None:
        self._member = member
        self._world = world
        self._timeout = timeout
        self._children: list[ChildProcess] = []
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Children:
        from fastdqn.execution.exchange import LOOPBACK, loopback_store

        self._store = loopback_store()
        common = {
            "WORLD_SIZE": str(self._world),
            "LOCAL_WORLD_SIZE": str(self._world),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # rank 0 is served, too
            "TORCHELASTIC_RESTART_COUNT": "0",  # which PyTorch below 2.5 asks for then
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", loopback()),
        }
        with contextlib.ExitStack() as half_started:
            half_started.callback(end_all, self._children, 1.0)  # together: they wait for one that does not come
            for rank in range(1, self._world):
                there = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank), EMBEDDED: "1"}
                child = ChildProcess(_be_member, (self._member, there), f"rank {rank}", 1, self._timeout)
                self._children.append(child.__enter__())
            half_started.pop_all()
        lookouts.append(self._look)
        self._left.callback(lookouts.remove, self._look)
        self._left.enter_context(environment({**common, "RANK": "0", "LOCAL_RANK": "0"}))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._left.close()
        end_all(self._children, LEAVE_SECONDS if error is None else 1.0)  # one that failed may have stopped for ever

    def _look(self) -> None:
        """Look after the children until they can be heard of.

        Raises:
            RunError: one has died.
        """
        for child in self._children:
            child.look(time.monotonic())


def _be_member(member: Member, variables: Mapping[str, str], outbox: Outbox) -> None:  # noqa: ARG001
    """What a child does; it has no messages for its parent."""
    os.environ.update(variables)
    code = member()
    if code:
        os._exit(code)
