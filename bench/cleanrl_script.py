"""One of CleanRL's scripts as bench/beside_cleanrl.py runs it, with the packages that are installed here.

python bench/cleanrl_script.py CHECKOUT FOLDER dqn_atari --env-id PongNoFrameskip-v4 ...

It is as it is, but for what newer packages no longer take: two wrappers by their old names, and arrays of one number
that are stored as that number. What it would write into `runs` goes into FOLDER. Whenever it reports its speed there,
standard output gets a JSON line with its env steps, its optimiser's steps and the seconds.
"""

from __future__ import annotations

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import importlib
import json
import os
import re
import runpy
import sys
import time
from pathlib import Path
from typing import Any

RENAMED = {"GrayScaleObservation": "GrayscaleObservation", "FrameStack": "FrameStackObservation"}
"""Wrappers by the names that they had before Gymnasium 1.0, which CleanRL uses, and by those that they have."""
NUMBERS = re.compile(r"(?<=self\.buffer_)(actions|rewards|dones)\[idx\](?= = )")
"""Where its Rainbow stores arrays of one number each, which NumPy takes for a number no longer."""
SPEED = "charts/SPS"
"""What CleanRL calls the env steps/s that it reports, which it counts from its start."""


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
        print((__doc__ or "").strip(), file=sys.stdout if len(sys.argv) == 2 else sys.stderr)
        return 0 if len(sys.argv) == 2 else 2
    checkout, folder, script, *words = sys.argv[1:]
    path = Path(checkout).resolve() / "cleanrl" / f"{script}.py"
    import ale_py
    import gymnasium
    from torch.optim.optimizer import register_optimizer_step_post_hook

    board: Any = importlib.import_module("torch.utils.tensorboard")
    gymnasium.register_envs(ale_py)
    wrappers: Any = gymnasium.wrappers
    for old, new in RENAMED.items():
        if not hasattr(wrappers, old):
            setattr(wrappers, old, getattr(wrappers, new))
    began, updates = time.perf_counter(), 0

    def count(*_: Any) -> None:
        nonlocal updates
        updates += 1

    register_optimizer_step_post_hook(count)

    class Writer(board.SummaryWriter):
        """Writes what it is told, and says speeds."""

        def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, *rest: Any, **named: Any) -> None:
            super().add_scalar(tag, scalar_value, global_step, *rest, **named)
            if tag == SPEED:
                elapsed = time.perf_counter() - began
                line = {"kind": "speed", "env_steps": int(global_step), "updates": updates, "elapsed": elapsed}
                print(json.dumps(line), flush=True)

    board.SummaryWriter = Writer
    os.chdir(folder)
    copy = Path(path.name)
    copy.write_text(NUMBERS.sub(r"\1[idx : idx + 1]", path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.path.insert(0, str(path.parents[1]))  # of cleanrl_utils
    sys.argv = [str(copy), *words]
    runpy.run_path(str(copy), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
