"""Members for tests of engines, as they would run ranks of a script."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdqn import process  # first: it counts time


@dataclass(frozen=True)
class Sums:
    """Joins all ranks, adds their numbers up, and writes down what it has found.

    Args:
        folder: where each rank writes a file.
        fault: "code" for an exit code of 3 of rank 1; "killed" for a rank 1 that is; "waits" for a rank that waits to
            be asked to stop.
    """

    folder: Path
    fault: str = ""

    def __call__(self) -> int:
        import torch
        from torch import distributed

        dist: Any = distributed
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo")
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        local = f"{os.environ['LOCAL_RANK']}/{os.environ['LOCAL_WORLD_SIZE']}"
        (self.folder / f"rank{rank}").write_text(f"{int(total)} of {world} {local} {os.getpid()}", encoding="utf-8")
        print(f"rank {rank} is there")
        if self.fault == "killed" and rank == 1:
            os.kill(os.getpid(), 9)
        while self.fault == "waits" and not process.stop_signal():
            time.sleep(0.05)
        dist.destroy_process_group()
        if self.fault == "waits":
            (self.folder / f"stopped{rank}").touch()
            return process.exit_code()
        return 3 if self.fault == "code" and rank == 1 else 0


def main(engine: str, world: str, folder: str, fault: str) -> None:
    """Let an engine run `Sums`; leave with the run's exit code."""
    from fastdqn.errors import RunError, UserError
    from fastdqn.execution import engines
    from tests.helpers.ranks_of_engines import Sums as Importable

    process.take_over()
    member = Importable(Path(folder), fault)
    try:
        if engine == "ray":
            code = engines.on_ray(member, int(world))
        else:
            code = engines.on_spark(member, int(world), local=engine == "spark-local")
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    process.leave(process.exit_code() or code)


if __name__ == "__main__":
    main(*sys.argv[1:])
