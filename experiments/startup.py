"""What every script imports first: `fastdqn.process`, from this checkout where no fastdqn is installed."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("fastdqn") is None:
    sys.path.append(str(Path(__file__).resolve().parents[1]))

import fastdqn.process

fastdqn.process.take_over()
