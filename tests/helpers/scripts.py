"""Running the scripts of the ladder as a user does, and reading what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import psutil
import safetensors.numpy

from fastdqn.cli import scripts
from fastdqn.cli.main import main
from tests.helpers import forks

ROOT = forks.ROOT
PARALLEL = ("03_parallel", "04_cuda_async", "05_opencv_wrappers")
CREWS = ("21_a3c_data", "22_a3c_grad")
"""Scripts with several players."""
SESSIONS = "32_sac_hogwild"
"""The script with several sessions."""
VECTOR = ("06_vector_env", "07_device_replay", "08_overlap", "09_cuda_graph")
SHORT = ("--replay-initial", "100", "--batch-size", "4", "--target-sync", "50", "--max-env-steps", "200")
TOY_CATCH = "tests.helpers.toys:Catch"
AS_ATARI = ("--frame-skip", "4", "--noop-max", "30", "--episodic-life", "--clip-rewards", "--fire-reset")
"""Atari's defaults, for a toy."""
CATCH = (
    *("--game", TOY_CATCH, *AS_ATARI, "--agent", "post2017", "--batch-size", "8", "--learning-rate", "1e-3"),
    *("--replay-initial", "200"),
    *("--replay-size", "5000", "--epsilon-decay", "800", "--target-sync", "100", "--max-env-steps", "1800"),
)
"""Catch for 01 to 09."""
RAINBOW_CATCH = (
    *(*CATCH, "--max-env-steps", "2400", "--network", "narrow", "--frame-size", "60", "--frame-scale", "64"),
    *("--center-frames", "--value-min", "-1.5", "--value-max", "1.5", "--importance-decay", "2000"),
    *("--report-env-steps", "500"),
)
"""Catch for 10 and 11."""


class Script(NamedTuple):
    """What a script hands over to its command line."""

    train: Callable[[Any], Any]
    options_type: type[Any]
    description: str
    defaults: dict[str, Any]  # of its command line: game, device


@functools.cache
def loaded(script: str) -> Script:
    """Return what a script of the ladder is made of; it is run up to its command line."""
    with mock.patch.object(scripts, "start") as start:
        runpy.run_path(str(ROOT / "experiments" / f"{script}.py"), run_name="__main__")
    (train, options_type, description), defaults = start.call_args
    return Script(train, options_type, description, defaults)


def parse(script: str, *words: str) -> Any:
    """Return the options of a script for these words."""
    found = loaded(script)
    return scripts.parse(found.options_type, "", words, script=script, **found.defaults)


def command(script: str, folder: Path, *words: str) -> list[str]:
    """Return what Python is called with to run a script of the ladder, by its name, or another one, by its path."""
    path = script if script.endswith(".py") else str(ROOT / "experiments" / f"{script}.py")
    return [path, "--runs-dir", str(folder), *words]


def here(script: str, *words: str) -> str:
    """Run a script in this process, which saves the time of its imports; return what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = loaded(script).train(parse(script, *words))
    assert not isinstance(code, int) or code == 0
    return out.getvalue()


def train(script: str, folder: Path, *words: str, timeout: float = 240.0) -> Path:
    """Run a script to its end and return its run folder; in this process if it can."""
    if not {"--cuda", "--max-minutes"} & set(words):
        here(script, "--runs-dir", str(folder), *words)
        return only_run(folder)
    done = forks.run(command(script, folder, *words), timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return only_run(folder)


def with_root() -> dict[str, str]:
    """Return the environment of a process that finds `tests`, and what this one finds."""
    paths = (str(ROOT), os.environ.get("PYTHONPATH"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def fastdqn(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command `fastdqn`."""
    return forks.run(["-m", "fastdqn.cli.main", *words], cwd, with_root())


def answer(begin: Callable[[], Any], *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Call what a command line begins with, in this process, which saves the time of its imports."""
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(cwd)
    try:
        named = mock.patch.object(sys, "argv", ["fastdqn", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), named:
            code = begin()
    except SystemExit as left:
        code = left.code or 0
    finally:
        os.chdir(before)
    assert isinstance(code, int)
    return subprocess.CompletedProcess(list(words), code, out.getvalue(), err.getvalue())


def script_says(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Return what a script says to these words, and how it leaves."""
    found = loaded(script)
    return answer(partial(scripts.start, found.train, found.options_type, found.description, **found.defaults), *words)


def fastdqn_says(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Return what the command `fastdqn` says to these words, and how it leaves."""
    return answer(main, *words, cwd=cwd)


def only_run(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


def records(run: Path, name: str) -> list[dict[str, Any]]:
    """Return the whole lines of a .jsonl file that may still be written to."""
    text = (run / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def fingerprint(run: Path) -> tuple[Any, ...]:
    """Everything about a run that must repeat: final weights, games, counters, the last loss."""
    weights = safetensors.numpy.load_file(run / "weights.safetensors")
    episodes = [{k: v for k, v in e.items() if k != "elapsed"} for e in records(run, "episodes.jsonl")]
    last = records(run, "speed.jsonl")[-1]
    counters = {name: last[name] for name in ("env_steps", "updates", "samples", "epsilon", "loss", "mean_q")}
    return {name: array.tobytes() for name, array in weights.items()}, episodes, counters


def hear_hangups() -> None:
    """Let a child be ended by SIGHUP although the tests run under nohup, which children inherit."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Started:
    """A script that is running in a session of its own, as in a terminal of its own.

    Args:
        fresh: it is a process from the beginning, which has to import everything; else forked from one that has.
    """

    def __init__(
        self, script: str, folder: Path, *words: str, env: dict[str, str] | None = None, fresh: bool = False
    ) -> None:
        self.folder = folder
        self.seen: set[int] = set()  # ids of processes that it has had
        program, env = command(script, folder, *words), {**os.environ, **(env or {})}
        self.process = _popen(program, env) if fresh else forks.Program(program, ROOT, env, session=True)

    def ctrl_c(self) -> None:
        """What a terminal does: SIGINT to every process of the group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def session(self) -> list[psutil.Process]:
        """Every living process of the script, orphans included."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        self.seen |= {process.pid for process in found}
        return found

    def fork_servers(self) -> list[psutil.Process]:
        """Its fork server, which there is from its first child on."""
        found = []
        for process in self.session():
            with contextlib.suppress(psutil.Error):
                if process.ppid() == self.process.pid and any("forkserver" in word for word in process.cmdline()):
                    found.append(process)
        return found

    def players(self) -> list[psutil.Process]:
        """Its children that play: what its fork server has forked."""
        found = []
        for process in self.session():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                parent = process.parent()
                if parent is not None and any("forkserver" in word for word in parent.cmdline()):
                    found.append(process)
        return found

    def wait_until(self, true: Callable[[], bool], timeout: float = 60.0) -> None:
        end = time.monotonic() + timeout
        while not _quietly(true):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "it took too long"
            time.sleep(0.02)

    def env_steps(self) -> int:
        return records(only_run(self.folder), "speed.jsonl")[-1]["env_steps"]

    def updates(self) -> int:
        return records(only_run(self.folder), "speed.jsonl")[-1]["updates"]

    def finish(self, timeout: float = 10.0) -> tuple[int, str, str]:
        """Wait for the end; return exit code, stdout, stderr. Nothing may be left running."""
        out, err = self.process.communicate(timeout=timeout)
        end = time.monotonic() + 5.0
        while self.session() and time.monotonic() < end:
            time.sleep(0.05)
        assert self.session() == []
        if isinstance(self.process, forks.Program):
            out, err = self.process.communicate()  # with what its children have said since
        return self.process.wait(), out, err


def _popen(words: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=hear_hangups if os.name == "posix" else None,
        env=env,
    )


def _quietly(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except (OSError, ValueError, IndexError):
        return False


@contextlib.contextmanager
def started(
    script: str, folder: Path, *words: str, env: dict[str, str] | None = None, fresh: bool = False
) -> Iterator[Started]:
    """Start a script; whatever the test does, nothing of it survives."""
    running = Started(script, folder, *words, env=env, fresh=fresh)
    try:
        yield running
    finally:
        for process in running.session():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        running.process.wait()
