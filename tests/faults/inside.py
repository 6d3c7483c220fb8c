"""Faults that begin inside a run: what a process of it does once it imports this, its children too.

`where(folder)` is what the environment must say for that; environment variables then name the faults:

    TOY_SLOW_DISK  seconds that each checkpoint takes on its way to the disk
    TOY_CLOCK      seconds by which the wall clock is set, four seconds after a process has begun
    TOY_BREAKS     learner or game: which of them breaks, in its 60th call
    TOY_WHO        the process in which it breaks: main, session 2, rank 1
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BREAKS_AT = 60
PLACES = {
    ("learner", "fastdqn.algorithms.sac"): ("SACLearner", "update"),
    ("learner", "fastdqn.algorithms.ppo"): ("PPOLearner", "update"),
    ("learner", "fastdqn.algorithms.dqn"): ("DQNLearner", "update"),
    ("game", "gymnasium.envs.classic_control.pendulum"): ("PendulumEnv", "step"),
    ("game", "gymnasium.envs.classic_control.cartpole"): ("CartPoleEnv", "step"),
}
"""What breaks, by module: a class and its method."""


def where(folder: Path) -> dict[str, str]:
    """Return what the environment of a run says so that its processes import this."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import tests.faults.inside\ntests.faults.inside.begin()\n")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def begin() -> None:
    """Begin the faults that the environment names."""
    slow, by, what = (os.environ.get(name) for name in ("TOY_SLOW_DISK", "TOY_CLOCK", "TOY_BREAKS"))
    if slow:
        _slow_down(float(slow))
    if by:
        real, began = time.time, time.monotonic()
        time.time = lambda: real() + (float(by) if time.monotonic() - began > 4.0 else 0.0)
    if what:
        sys.meta_path.insert(0, _Breaking(what))


def _slow_down(seconds: float) -> None:
    sync = os.fsync

    def synced(handle: int) -> None:
        if ".checkpoint" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            time.sleep(seconds)
        sync(handle)

    os.fsync = synced  # type: ignore[assignment]


class _Breaking(importlib.abc.MetaPathFinder):
    """Lets a method of a module break once the module is imported."""

    def __init__(self, what: str) -> None:
        self._what = what

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        place = PLACES.get((self._what, fullname))
        if place is None:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def executed(module: Any) -> None:
            execute(module)
            kind = getattr(module, place[0])
            setattr(kind, place[1], _broken(getattr(kind, place[1])))

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _broken(method: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def call(*words: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        name = multiprocessing.current_process().name.removeprefix("fastdqn-")
        if calls >= BREAKS_AT and os.environ.get("TOY_WHO", "main") == ("main" if name == "MainProcess" else name):
            raise ValueError("it broke as it was told to")
        return method(*words, **more)

    return call
