"""Running the scripts of the ladder as a user does, and reading what they leave behind."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from fastdqn import cli
from fastdqn.config import SCRIPT_OPTIONS

ROOT = Path(__file__).resolve().parent.parent


def command(script: str, folder: Path, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "experiments" / f"{script}.py"), "--runs-dir", str(folder), *words]


PARALLEL = ("03_parallel", "04_cuda_async", "05_opencv_wrappers")


def here(script: str, *words: str) -> str:
    """Run a script in this process, which saves the time of its imports; return what it printed."""
    spec = importlib.util.spec_from_file_location(f"script_{script}", ROOT / "experiments" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert module.train(cli.parse(SCRIPT_OPTIONS[script], "", words)) == 0
    return out.getvalue()


def train(script: str, folder: Path, *words: str, timeout: float = 240.0) -> Path:
    """Run a script to its end and return its run folder; in this process if it has no other."""
    if script not in PARALLEL and not {"--cuda", "--max-minutes", "--seeds", "all"} & set(words):
        here(script, "--runs-dir", str(folder), *words)
        return only_run(folder)
    done = subprocess.run(
        command(script, folder, *words), capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return only_run(folder)


def only_run(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


def records(run: Path, name: str) -> list[dict[str, Any]]:
    """Return the whole lines of a .jsonl file that may still be written to."""
    text = (run / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


class Started:
    """A script that is running in a session of its own, as in a terminal of its own."""

    def __init__(self, script: str, folder: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command(script, folder, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )

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
        return found

    def players(self) -> list[psutil.Process]:
        return [p for p in self.session() if any("spawn_main" in word for word in p.cmdline())]

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
        return self.process.returncode, out, err


def _quietly(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except (OSError, ValueError, IndexError):
        return False


@contextlib.contextmanager
def started(script: str, folder: Path, *words: str, env: dict[str, str] | None = None) -> Iterator[Started]:
    """Start a script; whatever the test does, nothing of it survives."""
    running = Started(script, folder, *words, env=env)
    try:
        yield running
    finally:
        for process in running.session():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        running.process.wait()
