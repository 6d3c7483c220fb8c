"""The folder of a run as fastdqn 0.1.0 left it: its config.json is flat and names neither format nor version."""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

SCRIPT = "11_pong_in_seconds"
CONFIG: dict[str, Any] = {
    "script": SCRIPT,
    "run": {"game": "pong-fast", "seed": 0},
    "protocol": {"frame_skip": 4},
    "steps": 16,
    "small": False,
}
"""What it said, shortened: its groups were others, and options stood beside them."""


def older_run(folder: Path) -> Path:
    """Make and return such a run in `folder`, with weights, a summary and a checkpoint in the format of that time."""
    run = folder / f"20261122-181625-pong-fast-{SCRIPT}"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    packages = {"torch": "2.13.0+cpu", "fastdqn": "0.1.0"}
    (run / "environment.json").write_text(json.dumps({"python": "3.11.7", "packages": packages}, indent=2) + "\n")
    (run / "summary.json").write_text(json.dumps({"script": SCRIPT, "env_steps": 500}) + "\n")
    (run / "episodes.jsonl").write_text("")
    safetensors.torch.save_file({"0.weight": torch.ones(2)}, run / "weights.safetensors")
    about = {"script": SCRIPT, "game": CONFIG["run"]["game"], "config": CONFIG, "env_steps": 500}
    body = io.BytesIO()
    torch.save({"run": {"env_steps": 500}, "parts": {}, "about": json.dumps(about)}, body)
    data = body.getvalue()
    header = {"what": "fastdqn checkpoint", "format": 2, "version": "0.1.0", "size": len(data)}
    line = json.dumps({**header, "crc32": zlib.crc32(data), **about}).encode()
    (run / "checkpoints" / "000000000500.checkpoint").write_bytes(line + b"\n" + data)
    return run
