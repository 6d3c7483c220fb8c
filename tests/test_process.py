"""What a Python without fastdqn, or without what it needs, says of a command; and what a bare make prints."""

from __future__ import annotations

from fastdqn.process import NEEDED

import ast
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.helpers.marks import posix_signals
from tests.helpers.scripts import ROOT, SHORT, only_run


def bare(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python without its installed packages."""
    command = [sys.executable, "-S", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={"PATH": ""}, check=False)


def is_run(path: Path) -> bool:
    """Tell whether a file is a script."""
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [path for folder in ("experiments", "bench") for path in sorted((ROOT / folder).glob("*.py")) if is_run(path)],
    ids=lambda path: path.name,
)
def test_without_the_environment_a_script_says_how_to_get_it(path: Path, tmp_path: Path) -> None:
    done = bare(str(path), "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {sys.executable} has no torch, numpy, gymnasium and 9 more packages; ")
    assert ". .venv/bin/activate" in done.stderr
    assert "`make pong`" in done.stderr


def test_without_the_environment_the_command_says_so() -> None:
    for module in ("fastdqn", "fastdqn.cli.main"):
        done = bare("-m", module, "games")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert ". .venv/bin/activate" in done.stderr


def test_an_installed_fastdqn_without_its_dependencies(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fastdqn", tmp_path / "fastdqn", ignore=shutil.ignore_patterns("__pycache__"))
    done = bare("-m", "fastdqn", "games", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("; install fastdqn again, together with what it depends on.\n")


def test_a_script_finds_the_checkout_where_no_fastdqn_is_installed(tmp_path: Path) -> None:
    """All packages but fastdqn: the path of the environment's without what its .pth files add."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import runpy, sys; sys.path = [sys.argv[1], *{packages}, *sys.path]; sys.argv = sys.argv[2:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [
        str(ROOT / "experiments"),
        str(ROOT / "experiments" / "01_baseline.py"),
        *SHORT,
        "--runs-dir",
        str(tmp_path),
    ]
    done = bare("-c", code, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert only_run(tmp_path).name.endswith("-pong-01_baseline")


HELD = """
import os, signal, threading, time
from fastdqn import process
process.install()
threading.Thread(target=time.sleep, args=(2,), daemon=True).start()  # which takes signals that this one has blocked
with process.signals_held():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    print("whole", flush=True)
print("too late", flush=True)
"""
"""Gets Ctrl-C in the middle of what is not to be interrupted."""


@posix_signals
def test_no_child_is_left_half_started() -> None:
    """Whichever thread the system gives a signal to, it counts once the child is there."""
    words = [sys.executable, "-c", HELD]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (130, "whole\n")
    assert done.stderr == "\nInterrupted.\n"


OWN_SIGNALS = """
import atexit, os, signal, time
{imports}
atexit.register(print, "at exit")
try:
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.1)  # not signal.pause(): a thread of a library may have received it
except KeyboardInterrupt:
    print("caught")
finally:
    print("finally")
"""


@posix_signals
def test_a_program_that_imports_the_library_keeps_its_own_signals() -> None:
    imports = "from fastdqn.envs.build import build_env\nfrom fastdqn.tools.evaluate import load_agent"
    words = [sys.executable, "-c", OWN_SIGNALS.format(imports=imports)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\nfinally\nat exit\n", "")
    words[-1] = OWN_SIGNALS.format(imports="import fastdqn.cli.begin")  # the control
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


@posix_signals
@pytest.mark.parametrize(("folder", "script"), [("experiments", "01_baseline"), ("bench", "ceilings")])
def test_a_script_that_is_imported_leaves_signals_alone(folder: str, script: str) -> None:
    code = f"import importlib, signal, sys; sys.path.insert(0, {str(ROOT / folder)!r})\n"
    code += "def own(*_): print('own')\nsignal.signal(signal.SIGTERM, own)\n"
    code += f"importlib.import_module({script!r}); signal.raise_signal(signal.SIGTERM)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "own\n", "")


@posix_signals
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_an_environment_starts_can_be_ended(method: str) -> None:
    """What a terminal sends leaves them alone, since it is the run that decides how it ends."""
    words = [sys.executable, str(ROOT / "tests" / "helpers" / "simulators.py"), method]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.stdout == "alive, ended by -15\n", done.stderr


BUSY = """
import hashlib, os, signal
import fastdqn.cli.begin
from fastdqn import process
with process.running():
    child = os.fork()
    if child == 0:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1)
        parent = os.getppid()
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(parent, number)
        os._exit(0)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # both come before Python handles one
    print(process.stop_signal() in (signal.SIGINT, signal.SIGHUP), flush=True)
"""


@posix_signals
def test_a_hangup_beside_ctrl_c_is_no_second_signal() -> None:
    """Python handles those that have come by their number, not in their order."""
    words = [sys.executable, "-c", BUSY]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@posix_signals
@pytest.mark.parametrize("words", [("compare", "."), ("train", "01")])
def test_a_folder_that_is_gone_is_one_sentence(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    code = 'cd gone && rmdir ../gone && exec "$0" -m fastdqn "$@"'
    command = ["sh", "-c", code, sys.executable, *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: The current folder is not there any more; change to another one, or to it anew.\n"


def test_what_is_needed_are_dependencies() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    said = ast.literal_eval(text.split("\ndependencies = ")[1].split("\n]")[0] + "]")
    dependencies = {one.split(">")[0] for one in said}
    packages = importlib.metadata.packages_distributions()
    found = {
        name: {one.lower().replace("_", "-") for one in packages.get(name, [name])} & dependencies for name in NEEDED
    }
    assert all(found.values()), found
    assert dependencies - set().union(*found.values()) == {"matplotlib", "pillow"}  # pictures alone need these


def test_a_bare_make_lists_every_target() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("there is no make")
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = text.split(".PHONY: ")[1].splitlines()[0].split()
    above = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}  # `make test` would have this one say which folder it is in
    alone = {name: value for name, value in os.environ.items() if name not in above}
    done = subprocess.run([make], capture_output=True, text=True, cwd=ROOT, check=True, env=alone)
    lines = done.stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == targets
    assert {len(line) - len(line[2:].lstrip("abcdefghijklmnopqrstuvwxyz-").lstrip()) for line in lines} == {15}


@posix_signals
def test_closed_streams_are_no_files_of_the_run(tmp_path: Path) -> None:
    """What is opened next, weights in shared memory for one, would be written to by whoever tells something."""
    code = "from fastdqn import process; process.take_over(); a = open('weights', 'w'); process.tell(b'Stopping'); "
    code += "import subprocess, sys; assert sys.stdout and sys.stderr; print('said', file=sys.stderr); "
    code += "subprocess.run(['sh', '-c', 'echo told; echo told >&2'], check=True); a.write(str(a.fileno()))"
    words = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(words, cwd=tmp_path, env=environment, check=False).returncode == 0
    assert int((tmp_path / "weights").read_text()) > 2


FULL = """
import os, signal, sys
from fastdqn import process
process.take_over()
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 512)
except BlockingIOError:
    os.set_blocking(2, True)
with process.running():
    os.kill(os.getpid(), signal.SIGINT)
    print(process.stop_signal(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
print("still here")
"""


@posix_signals
def test_a_reader_that_stands_still_keeps_no_process_that_is_to_leave() -> None:
    """Its pipe is full, and nobody reads from it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", FULL]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        try:
            code = child.wait(60)
        finally:
            child.kill()
        assert child.stdout is not None
        assert (code, child.stdout.read()) == (130, b"2\n")


LEAVES = """
import subprocess, sys
from fastdqn import process
from fastdqn.envs.own import OwnEnv

class Program(__import__("tests.helpers.own", fromlist=["Dots"]).Dots):
    def __init__(self):
        super().__init__()
        self.program = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
        print(self.program.pid, flush=True)
    def close(self):
        self.program.kill()
        self.program.wait()

import tests.helpers.own
tests.helpers.own.Program = Program
env = OwnEnv("tests.helpers.own:Program", 100)
if sys.argv[1] == "abandons":
    process.abandon()
process.leave(1)
"""


@posix_signals
@pytest.mark.parametrize("how", ["abandons", "waits"])
def test_programs_of_environments_end_with_a_process_that_does_not_wait_for_its_threads(how: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", LEAVES, how]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    left = psutil.pid_exists(int(done.stdout))
    if left:
        psutil.Process(int(done.stdout)).kill()
    assert not left
