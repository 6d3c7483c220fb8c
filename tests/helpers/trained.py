"""Runs that have hardly been trained, for what looks at runs."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.scripts import AS_ATARI, TOY_CATCH, train

BRIEF = ("--replay-initial", "100", "--batch-size", "2", "--target-sync", "50", "--max-env-steps", "140")
_CATCH = (*BRIEF, "--game", TOY_CATCH, *AS_ATARI, "--frame-size", "42", "--replay-size", "1000", "--seed")
_RUNS = {
    "09": ("09_cuda_graph", (*BRIEF, "--num-envs", "4", "--max-frames", "240")),  # Pong
    "01": ("01_baseline", (*BRIEF, "--game", "breakout", "--max-frames", "240")),
    "catch0": ("09_cuda_graph", (*_CATCH, "0")),
    "catch1": ("09_cuda_graph", (*_CATCH, "1")),
}


class TrainedRuns:
    """Folders of runs by their names, each trained when it is first asked for: 09 on Pong, 01 on Breakout, and two of
    Catch that differ in their seed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Path] = {}

    def __getitem__(self, name: str) -> Path:
        if name not in self._found:
            script, words = _RUNS[name]
            self._found[name] = train(script, self._folder / name, *words)
        return self._found[name]
