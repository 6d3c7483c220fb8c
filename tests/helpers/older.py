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
    "script": "11_pong_in_seconds",
    "run": {
        "game": "pong-fast",
        "cuda": False,
        "device": "auto",
        "seed": 0,
        "max_env_steps": 3000000,
        "max_minutes": None,
        "train_seconds": None,
        "stop_score": 18.0,
        "threads": None,
        "runs_dir": "runs",
        "resume": None,
        "resume_previous": False,
        "checkpoints": False,
        "checkpoint_minutes": 10.0,
        "checkpoint_env_steps": None,
        "checkpoint_replay": True,
        "wandb": False,
        "trackio": False,
        "project": "fastdqn",
        "log_seconds": None,
    },
    "protocol": {
        "frame_skip": 4,
        "noop_max": 30,
        "frame_stack": 4,
        "episodic_life": True,
        "clip_rewards": True,
        "fire_reset": True,
        "sticky_actions": 0.0,
        "full_action_set": False,
        "max_frames": 108000,
    },
    "dqn": {
        "replay_size": 50000,
        "replay_initial": 5000,
        "batch_size": 4,
        "learning_rate": 0.0005,
        "gamma": 0.98,
        "n_step": 5,
        "target_sync": 3200,
        "epsilon_start": 1.0,
        "epsilon_final": 0.01,
        "epsilon_decay": 100000,
        "double": False,
        "adam_epsilon": 1e-08,
    },
    "steps": 16,
    "num_envs": 16,
    "env_threads": None,
    "frame_size": 84,
    "where": True,
    "precision": "auto",
    "center_frames": True,
    "frame_scale": 64.0,
    "pixel_floor": None,
    "final_learning_rate": 0.0001,
    "learning_rate_decay": 400000,
    "parts": {
        "dueling": False,
        "noisy": False,
        "noise": "factorised",
        "noisy_sigma": None,
        "prioritized": True,
        "priority_exponent": 0.6,
        "importance_exponent": 0.4,
        "importance_decay": 100000,
        "priority_floor": 1e-06,
        "distributional": False,
        "atoms": 51,
        "value_min": -10.0,
        "value_max": 10.0,
    },
    "network": "nature",
    "target_average": None,
    "act_with": "online",
    "end_at_reward": False,
    "gradient_threads": 1,
    "report_env_steps": 20000,
    "held_out": 1000,
    "small": False,
    "hold_share": 0.88,
    "hold_slack": 0.23,
    "hold_average": 0.002,
    "hold_epsilon": 0.001,
}


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
