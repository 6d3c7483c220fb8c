"""What every script here imports first; the same as the scripts of the ladder do."""

import importlib.util
from pathlib import Path

_path = Path(__file__).resolve().parents[1] / "experiments" / "startup.py"
_spec = importlib.util.spec_from_file_location("startup", _path)
assert _spec is not None
assert _spec.loader is not None
_spec.loader.exec_module(importlib.util.module_from_spec(_spec))
