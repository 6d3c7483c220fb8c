"""Programs that a bench runs end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

from bench.programs import ROOT

CODE = """
import startup
import sys, time
from bench.programs import busy_processes, said_by
if sys.argv[1] == "busy":
    with busy_processes(1):
        print("begun", flush=True)
        time.sleep(60)
print("begun", flush=True)
said_by([sys.executable, "-c", "import time; time.sleep(60)"], "It")
"""


def test_a_signal_ends_them_too() -> None:
    for kind in ("busy", "timed"):
        words = [sys.executable, "-c", CODE, kind]
        with subprocess.Popen(words, cwd=ROOT / "bench", stdout=subprocess.PIPE, text=True) as bench:
            assert bench.stdout is not None
            assert bench.stdout.readline() == "begun\n"
            end = time.monotonic() + 20.0
            while not (children := psutil.Process(bench.pid).children()) and time.monotonic() < end:
                time.sleep(0.05)
            assert children
            bench.send_signal(signal.SIGTERM)
            assert bench.wait(20.0) == 128 + signal.SIGTERM
            gone, left = psutil.wait_procs(children, 10.0)
            for child in left:
                child.kill()
            assert (len(gone), left) == (len(children), [])
