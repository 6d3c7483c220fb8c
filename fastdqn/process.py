"""What has to happen before the slow imports; every script imports this module first.

It notes when the process began (time to solve counts imports too). Scripts and commands call `take_over`; other
programs, which import this module with others, keep their own signals, and their runs count from their own beginnings.
It takes over SIGINT, SIGTERM and, unless the process was started to ignore it (nohup), SIGHUP, which a terminal sends
when it is closed:

* before a run has begun, a signal ends the process at once and quietly;
* during a run, the first signal asks the loop to stop (`stop_signal`), the second kills the child
  processes and leaves at once.

The exit code is 128 + the signal's number: 130 after Ctrl-C. Child processes ignore SIGINT and SIGHUP, so
that the parent alone decides how a run ends; programs that they start do not. Those of a run ignore SIGTERM, too, those
that an environment starts do not.

Where Python has not got the packages that the imports of a script need, it ends with one sentence that says so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from fastdqn import cgroup

NEEDED = (
    *("torch", "numpy", "gymnasium", "ale_py", "cv2", "tyro", "rich"),
    *("psutil", "filelock", "safetensors", "tensorboard", "zstandard"),
)
"""The modules of other packages that every script imports."""
FORCED_EXIT_AFTER = 2  # signals
CLOSE_SECONDS = 4.0
"""For what is closed at the end of a process that does not wait for its threads."""


_taken = _running = _ran = False
_received = 0
_first = 0
_failed = _abandoned = _first_only = False
_held: list[int] | None = None  # signals that came while they were held back
_open: list[weakref.finalize[..., Any]] = []
programs: list[Any] = []
"""Programs (`subprocess.Popen`) that this process has started and that are to end with it."""


def elapsed() -> float:
    """Return the seconds since this process began (imports included) plus those of `add_elapsed`; a monotonic clock."""
    return time.monotonic() - _began


def add_elapsed(seconds: float) -> None:
    """Let `elapsed` count `seconds` more: those of the processes whose run this one resumes."""
    global _began
    _began -= seconds


def begin_run() -> None:
    """Let `elapsed` begin anew, but for the first run of a script or command, which counts from its beginning.

    Raises:
        KeyboardInterrupt: a signal has stopped the run before this one; once this is raised, it is forgotten.
    """
    global _began, _ran, _first, _received
    if _ran and _first:
        _first = _received = 0
        raise KeyboardInterrupt("a signal has stopped the run before this one")
    if _ran or not _taken:
        _began, _ran = time.monotonic(), False


def cores() -> int:
    """Return how many CPU cores this process may use: those that it may run on, or fewer in a container that has not
    the time of all of them.
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota()
    return there if quota is None else min(there, math.ceil(quota))


def stop_signal() -> int:
    """Return the number of the first signal that asked the run to stop, or 0."""
    return _first


def stop_with(number: int) -> None:
    """Let the run stop as if this process had received a signal that another one of the run has; 0 for none."""
    global _first
    _first = _first or number


def exit_code() -> int:
    """Return 128 + the signal that stopped the run, or 0 if none did."""
    return 128 + _first if _first and not _failed else 0


def fail() -> None:
    """Note that it is another process that ends the run: whatever signal follows from that is not the reason."""
    global _failed
    _failed = True


def abandon() -> None:
    """Note that threads are left that may wait for ever: `leave` does not wait for them."""
    global _abandoned
    _abandoned = True


def close_at_end(what: weakref.finalize[..., Any]) -> None:
    """See to it that something is closed that may have programs of its own, also where `leave` does not wait."""
    _open.append(what)


def _close_all() -> None:
    for one in _open:
        one()


def leave(code: int) -> NoReturn:
    """End the process with this exit code."""
    if _abandoned:
        closing = threading.Thread(target=_close_all, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        kill_children()
        os._exit(code)
    sys.exit(code)


@contextlib.contextmanager
def running() -> Generator[None]:
    """Mark the time in which the first signal asks for a clean stop instead of ending the process."""
    global _running, _ran
    _running = True
    try:
        yield
    finally:
        _running, _ran = False, True


@contextlib.contextmanager
def signals_held() -> Generator[None]:
    """Put off what the first signal does while a child process starts, so that none is left behind half started."""
    global _held
    _held = []
    try:
        yield
    finally:
        came, _held = _held, None
        for number in came:
            _on_signal(number, None)


@contextlib.contextmanager
def signals_blocked() -> Generator[None]:
    """Block the signals for what starts now, which inherits that: it never gets what is sent to all processes of a run.

    Other threads may take a signal all the same, which Python then handles in this one.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _asking())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """Let signals through again, in a child that does nothing at them: what it starts itself need not be deaf."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _asking())


def _asking() -> set[signal.Signals]:
    """Return the signals that ask a run to stop."""
    return {signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])}


def kill_children() -> None:
    """Kill the processes that multiprocessing started, but for its resource tracker, which then cleans up, and those
    that are named in `programs`.
    """
    for child in (*multiprocessing.active_children(), *programs):
        child.kill()


def heed_first_signal_only() -> None:
    """Let every signal after the first be nothing, in a process that is killed anyway if it does not end in time."""
    global _first_only
    _first_only = True


def _on_signal(number: int, _frame: FrameType | None) -> None:
    global _received, _first
    if _first_only and (_first or _held):
        return
    if (_first or _held) and number == getattr(signal, "SIGHUP", None):
        return  # a closed terminal: its shell sends it, and the system
    if _held is not None and _received + len(_held) + 1 < FORCED_EXIT_AFTER:
        _held.append(number)
        return
    if number != getattr(signal, "SIGHUP", None):  # Python may handle it before a Ctrl-C that came first
        _received += 1
    if _failed and _received < FORCED_EXIT_AFTER:  # it is leaving, and has yet to say why
        return
    _first = _first or (_held or [number])[0]
    if not _running or _held or _received >= FORCED_EXIT_AFTER:
        kill_children()
        tell(b"\nInterrupted.\n")
        show_cursor()
        os._exit(128 + _first)
    tell(b"\nStopping; press Ctrl-C again to leave at once, without saving.\n")


def show_cursor() -> None:
    """Show the cursor again, which a progress display hides, before the process ends at once."""
    with contextlib.suppress(OSError, ValueError):
        if os.isatty(1) and takes(1):
            os.write(1, b"\x1b[?25h")


def tell(words: bytes) -> None:
    """Write `words` to stderr, if there is still somebody to read it: whoever stands still would keep this process."""
    with contextlib.suppress(OSError, ValueError):
        if takes(2):
            os.write(2, words)


def takes(number: int, seconds: float = 0.0) -> bool:
    """Tell whether something can be written to this file within so many seconds."""
    return os.name == "nt" or bool(select.select([], [number], [], seconds)[1])


def take_over() -> None:
    """Take over the signals of a script or command, but for those of a test's process, where pytest keeps its own; and
    see to it that it has standard streams, and the packages that it is going to need.
    """
    global _taken
    _taken = True
    refuse_a_folder_that_is_gone()
    refuse_without(NEEDED)
    if "pytest" not in sys.modules:
        _open_streams()
        install()


def _open_streams() -> None:
    """Open standard streams that were closed before the process began: files that are opened next, shared memory among
    them, would have their numbers, and get what is written to these.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - no path, and open to the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def install(of_run: bool = False) -> None:
    """Take over SIGINT, SIGTERM and SIGHUP in a main process; make a child process deaf to what a terminal sends.

    A child imports the script, and so calls this, before multiprocessing lets it know its parent.

    Args:
        of_run: this is a child process of a run, which ends with it: it is to be deaf to SIGTERM, too.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    spawning = getattr(multiprocessing.current_process(), "_inheriting", False)
    is_child = of_run or spawning or multiprocessing.parent_process() is not None
    for number in _asking() if of_run or not is_child else _asking() - {signal.SIGTERM}:
        if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, be_deaf if is_child else _on_signal)
            if is_child and hasattr(signal, "siginterrupt"):  # Windows has none
                signal.siginterrupt(number, False)


def _leave_signals() -> None:
    """In a process that was forked, say by an environment: let it be ended, but not by what a terminal sends."""
    for number in _asking():
        if signal.getsignal(number) in (_on_signal, be_deaf):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else be_deaf)


def be_deaf(_number: int, _frame: FrameType | None) -> None:
    """Do nothing at a signal. Other than `signal.SIG_IGN`, programs that this process starts do not inherit that."""


def _age() -> float:
    """Return how long ago this process began, in seconds."""
    with contextlib.suppress(OSError, AttributeError, ValueError, IndexError):  # Linux, to a hundredth of a second
        after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks = float(after_name[19])  # field 22, starttime
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        return time.time() - psutil.Process().create_time()
    return 0.0  # where nobody says


def refuse_a_folder_that_is_gone() -> None:
    """End the process, with one sentence and exit code 2, where the current folder has been removed: neither paths nor
    libraries are found from there.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        sys.stderr.write("error: The current folder is not there any more; change to another one, or to it anew.\n")
        sys.exit(2)
    except OSError:  # it is there, and may not be looked at
        return


def refuse_without(modules: Sequence[str]) -> None:
    """End the process, with one sentence and exit code 2, if it cannot import one of these modules."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if (Path(__file__).resolve().parents[1] / "Makefile").exists():  # a checkout
        advice = "activate the environment (. .venv/bin/activate), or let `make pong` make it and train in it"
    else:
        advice = "install fastdqn again, together with what it depends on"
    more = f" and {len(missing) - 3} more package{'s' if len(missing) > 4 else ''}" if len(missing) > 3 else ""
    sys.stderr.write(f"error: {sys.executable or 'this Python'} has no {', '.join(missing[:3])}{more}; {advice}.\n")
    sys.exit(2)


_began = time.monotonic() - _age()
if hasattr(os, "register_at_fork"):  # Windows has none
    os.register_at_fork(after_in_child=_leave_signals)
