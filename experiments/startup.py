"""What every script imports first: `fastdqn.process`, from this checkout where no fastdqn is installed.

A script that is the program takes over its signals; one that another program imports leaves them alone.
"""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("fastdqn") is None:
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import fastdqn.process

_importer = sys._getframe()  # pyright: ignore[reportPrivateUsage]
while _importer.f_back and (
    _importer.f_globals.get("__name__") == "startup" or _importer.f_code.co_filename.startswith("<frozen importlib")
):
    _importer = _importer.f_back
if _importer.f_globals.get("__name__") in ("__main__", "__mp_main__"):  # the latter in a process that it starts
    fastdqn.process.take_over()
