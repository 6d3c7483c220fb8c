"""Fingerprints: a hash of what each of the scripts 01 to 11 learns in a short run on the CPU, float32, fixed seed.

    python bench/fingerprints.py                        this tree
    python bench/fingerprints.py --against ../before    and another one, say a worktree of an older commit
    python bench/fingerprints.py --only 09,10

A refactoring must keep them. They depend on the processor and on PyTorch's build, so both trees are run here and now,
and none is stored. A fingerprint is taken of the final weights, of every game, and of the counters. The player of 03 to
05 chooses at random (epsilon 1): how far it is ahead of the trainer then changes nothing.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import safetensors.numpy
from rich.console import Console
from rich.table import Table

from fastdqn.cli.parser import parsed
from fastdqn.errors import RunError, UserError
from fastdqn.options.fields import at_least

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class FingerprintOptions:
    against: Path | None = None
    """Root of another tree, whose fingerprints must be the same."""
    only: str = ""
    """Of 01 to 11, scripts by their numbers, separated by commas; by default all."""
    jobs: int = 2
    """Runs at a time, each in one thread."""


class Case(NamedTuple):
    """A short run."""

    name: str
    script: str
    words: tuple[str, ...]
    resume: tuple[str, ...] | None = None  # what the run that resumes it is told
    graphs: bool = False  # with what stands for CUDA graphs in the tests


SHORT = (
    *("--replay-initial", "100", "--batch-size", "4", "--target-sync", "50", "--max-env-steps", "260"),
    *("--epsilon-decay", "300", "--threads", "1", "--agent", "post2017"),
)
PONG_FAST = ("--agent", "pong-fast")
BLOCKS = ("--block-steps", "5", "--refresh-env-steps", "60")
RANDOM = ("--epsilon-start", "1", "--epsilon-final", "1")
BREAKOUT = ("--game", "breakout", "--n-step", "3")
TOYS = "tests.helpers.toys:Catch"
AS_ATARI = ("--frame-skip", "4", "--noop-max", "30", "--episodic-life", "--clip-rewards", "--fire-reset")
CATCH = ("--game", TOYS, "--learning-rate", "1e-3", *AS_ATARI)
MANY = ("--num-envs", "5", "--steps", "4", "--env-threads", "1")
FAST = (*MANY, "--precision", "fp32")
FALLING = ("--final-learning-rate", "1e-5", "--learning-rate-decay", "200")
ALL = ("--variant", "rainbow", "--importance-decay", "200", "--report-env-steps", "50", "--held-out", "40")
FROZEN = ("--device", "cpu", "--freeze-share", "0.5", "--freeze-slack", "0.5", "--prioritized")
LATER = ("--max-env-steps", "460", "--threads", "1")
VARIANTS = ("dqn", "n-step", "double", "noisy", "prioritized", "dueling", "distributional", "rainbow")
CASES = (
    Case("pong", "01_baseline", SHORT),
    Case("catch", "01_baseline", (*SHORT, *CATCH)),
    Case("breakout, 3 steps, double", "01_baseline", (*SHORT, *BREAKOUT, "--double")),
    Case("breakout, resumed", "01_baseline", (*SHORT, *BREAKOUT), LATER),
    Case("breakout", "02_play_steps", (*SHORT, *BREAKOUT)),
    Case("catch, resumed", "02_play_steps", (*SHORT, *CATCH, "--steps", "3"), LATER),
    Case("pong at random", "03_parallel", (*SHORT, *RANDOM)),
    Case("pong at random", "04_cuda_async", (*SHORT, *RANDOM)),
    Case("breakout at random", "05_opencv_wrappers", (*SHORT, *RANDOM, *BREAKOUT)),
    Case("breakout", "06_vector_env", (*SHORT, *BREAKOUT, *MANY)),
    Case("breakout, resumed", "06_vector_env", (*SHORT, *BREAKOUT, *MANY), LATER),
    Case("breakout", "07_device_replay", (*SHORT, *BREAKOUT, *MANY)),
    Case("breakout, resumed", "07_device_replay", (*SHORT, *BREAKOUT, *MANY), LATER),
    Case(
        "pong, resumed without replay",
        "07_device_replay",
        (*SHORT, *MANY, "--no-checkpoint-replay"),
        (*LATER, "--no-checkpoint-replay"),
    ),
    Case("catch, resumed", "08_overlap", (*SHORT, *CATCH, *MANY), LATER),
    Case("breakout", "08_overlap", (*SHORT, *BREAKOUT, *MANY)),
    Case("breakout", "09_cuda_graph", (*SHORT, *BREAKOUT, *FAST)),
    Case("pong-fast", "09_cuda_graph", (*SHORT, *PONG_FAST, *FAST, *FALLING)),
    Case("seaquest, resumed", "09_cuda_graph", (*SHORT, "--game", "seaquest", *FAST, "--center-frames"), LATER),
    Case("pong-fast, graphs", "09_cuda_graph", (*SHORT, *PONG_FAST, *FAST, *FALLING), graphs=True),
    *(Case(f"catch, {v}", "10_rainbow", (*SHORT, *CATCH, *FAST, "--variant", v)) for v in VARIANTS),
    Case("pong-fast, rainbow", "10_rainbow", (*SHORT, *PONG_FAST, *FAST, *FALLING, *ALL)),
    Case("breakout, rainbow, resumed", "10_rainbow", (*SHORT, *BREAKOUT, *FAST, *ALL), LATER),
    Case("breakout, rainbow, graphs", "10_rainbow", (*SHORT, *BREAKOUT, *FAST, *ALL), graphs=True),
    Case(
        "breakout, independent noise, averaged target that plays",
        "10_rainbow",
        (
            *(*SHORT, *BREAKOUT, *FAST, "--noisy", "--noise", "independent"),
            *("--target-average", "0.05", "--act-with", "target"),
        ),
    ),
    Case("catch, frozen, resumed", "11_pong_in_seconds", (*SHORT, *CATCH, *FAST, *FROZEN), LATER),
    Case(
        "catch, frozen, graphs",
        "11_pong_in_seconds",
        (*SHORT, *CATCH, *FAST, *FROZEN, "--max-env-steps", "600"),
        graphs=True,
    ),
    Case(
        "pong, narrow",
        "11_pong_in_seconds",
        (*SHORT, *PONG_FAST, "--network", "narrow", "--device", "cpu", *FAST, *BLOCKS),
    ),
)
GRAPHS = """
import os, runpy, sys
sys.path.insert(0, os.path.dirname(sys.argv[0]))
import pytest
from tests.helpers.graphs import graphs_without_cuda
with pytest.MonkeyPatch.context() as patch:
    graphs_without_cuda(patch)
    patch.setattr("fastdqn.execution.graphs.graphs_on", lambda _: True)
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fingerprint(case: Case, tree: Path) -> str:
    """Run `case` in `tree` and return the hash of what it leaves behind.

    Raises:
        RunError: the run failed.
    """
    script = str(tree / "experiments" / f"{case.script}.py")
    head = [sys.executable, script]
    if case.graphs:
        head = [sys.executable, "-c", f"import sys\nsys.argv.pop(0)\nimport fastdqn\n{GRAPHS}", script]
    with tempfile.TemporaryDirectory() as folder:
        _run([*head, "--runs-dir", folder, *case.words], tree, case)
        (run,) = Path(folder).iterdir()
        if case.resume is not None:
            trusted = ("--game", TOYS) if TOYS in case.words else ()  # its code is loaded if it is named once more
            _run([*head, "--resume", str(run), *trusted, *case.resume], tree, case)
        return hash_of(run)


def hash_of(run: Path) -> str:
    """Return the hash of a run's final weights, games and counters; the clock is left out."""
    found = hashlib.sha256()
    for name, weights in sorted(safetensors.numpy.load_file(run / "weights.safetensors").items()):
        found.update(name.encode() + weights.tobytes())
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]
    last = json.loads((run / "speed.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    for episode in episodes:
        episode.pop("elapsed")
        found.update(json.dumps(episode, sort_keys=True).encode())
    for part, names in (
        (last, ("env_steps", "updates", "samples", "epsilon", "loss", "mean_q")),
        (summary, ("env_steps", "updates", "samples", "episodes", "mean_100", "reason")),
    ):
        found.update(json.dumps([part[name] for name in names]).encode())
    return f"{found.hexdigest()[:16]} ({summary['updates']} updates, {summary['episodes']} games)"


def _run(command: list[str], tree: Path, case: Case) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree, env=environment)
    if done.returncode:
        raise RunError(f"{case.script}, {case.name}, in {tree} left with {done.returncode}:\n{done.stderr.strip()}")


def chosen(only: str) -> Sequence[Case]:
    """Return the cases of the scripts that `only` names.

    Raises:
        UserError: there is none.
    """
    words = tuple(word.strip() for word in only.split(",") if word.strip())
    cases = [case for case in CASES if not words or case.script.startswith(words)]
    if not cases:
        raise UserError(f"--only {only}: there is no such script.")
    return cases


def main() -> int:
    try:
        options = parsed(FingerprintOptions, sys.argv[1:], FingerprintOptions(), __doc__ or "")
        at_least(options.jobs, 1, "--jobs")
        trees = [ROOT] if options.against is None else [ROOT, options.against.resolve()]
        if not all((tree / "experiments").is_dir() for tree in trees):
            raise UserError(f"--against {options.against} is not the root of a tree: it has no experiments.")
        cases = chosen(options.only)
        with ThreadPoolExecutor(options.jobs) as pool:
            futures = [[pool.submit(fingerprint, case, tree) for tree in trees] for case in cases]
            found = [[future.result() for future in row] for row in futures]
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    table = Table(title="fingerprints", title_justify="left")
    for heading in ("script", "case", *map(str, trees)):
        table.add_column(heading, overflow="fold")
    for case, row in zip(cases, found, strict=True):
        table.add_row(case.script, case.name, *row)
    Console(width=150, highlight=False).print(table)
    differ = [f"{case.script}, {case.name}" for case, row in zip(cases, found, strict=True) if len(set(row)) > 1]
    if len(trees) > 1:
        print(f"different: {'; '.join(differ)}" if differ else f"all {len(cases)} are the same")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
