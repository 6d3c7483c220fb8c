"""Runs a script of experiments with an environment that takes its time: the id `Paced-v0`.

    python bench/paced.py outside:40 Pendulum-v1 experiments/33_trainer_thread.py --game Paced-v0

What a step of it does besides the environment's own: `sleep:0.01` sleeps for so many seconds, `python:1000` makes so
many rounds of a loop in Python, `outside:40` hashes so many blocks, for which Python's lock is released; `nothing:0`.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import hashlib
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

_BLOCK = bytes(1 << 16)


def loop(rounds: int) -> None:
    """Compute in Python, whose lock is held."""
    total = 0
    for i in range(rounds):
        total += i & 3


def hashed(blocks: int) -> None:
    """Compute outside Python, whose lock is released."""
    for _ in range(blocks):
        hashlib.sha256(_BLOCK)


WORK: dict[str, Callable[[Any], None]] = {
    "nothing": lambda _: None,
    "sleep": time.sleep,
    "python": lambda amount: loop(int(amount)),
    "outside": lambda amount: hashed(int(amount)),
}


class Paced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment each of whose steps does some work before."""

    def __init__(self, env: gymnasium.Env[Any, Any], work: str, amount: float) -> None:
        super().__init__(env)
        self._work, self._amount = WORK[work], amount

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._work(self._amount)
        return self.env.step(action)


def amount_for(work: str, seconds: float) -> float:
    """Return how much of it takes so long on this machine now."""
    if work in ("nothing", "sleep"):
        return seconds if work == "sleep" else 0.0
    tried, took = 100, 0.0
    while took < 0.2:
        tried *= 2
        begin = time.perf_counter()
        WORK[work](tried)
        took = time.perf_counter() - begin
    return max(1.0, round(tried * seconds / took))


def main() -> None:
    if len(sys.argv) < 4:
        print((__doc__ or "").strip(), file=sys.stdout if "--help" in sys.argv else sys.stderr)
        raise SystemExit(0 if "--help" in sys.argv else 2)
    (work, amount), inner, script = sys.argv[1].split(":"), sys.argv[2], sys.argv[3]

    def make(**settings: Any) -> Paced:
        return Paced(gymnasium.make(inner, **settings), work, float(amount))

    gymnasium.register("Paced-v0", make)
    sys.argv = [script, *sys.argv[4:]]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
