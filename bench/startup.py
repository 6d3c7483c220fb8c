"""What every script here imports first; the same as the scripts of the ladder do."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).resolve().parents[1] / "experiments" / "startup.py"))
