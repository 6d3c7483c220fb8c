"""41 whose ranks exchange by Gloo, as those of several machines do, although they are on one."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "experiments"), str(ROOT)]

import startup  # noqa: E402, F401 - first: the clock, and Ctrl-C during the imports below

from fastdqn.execution import exchange  # noqa: E402

exchange.network_here = lambda: 0  # one rank that can have no lines is enough

if __name__ == "__main__":
    runpy.run_path(str(ROOT / "experiments" / "41_ppo_ranks.py"), run_name="__main__")
