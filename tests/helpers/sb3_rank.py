"""One rank that learns with Stable-Baselines3, and writes down what it has learnt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

ALGORITHMS = ("PPO", "A2C", "DQN", "SAC", "TD3", "DDPG")


def model_of(name: str, seed: int) -> Any:
    """Return a small model whose gradients are clipped, where it clips any."""
    import stable_baselines3

    torch.set_num_threads(1)
    common = {"seed": seed, "device": "cpu"}
    make = getattr(stable_baselines3, name)
    if name == "PPO":
        return make("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, max_grad_norm=0.1, **common)
    if name == "A2C":
        return make("MlpPolicy", "CartPole-v1", max_grad_norm=0.1, **common)
    if name == "DQN":
        return make("MlpPolicy", "CartPole-v1", learning_starts=50, train_freq=4, max_grad_norm=0.1, **common)
    often = {"train_freq": 1, "gradient_steps": 1}  # before 2.3 TD3 and DDPG learnt at the end of a game
    return make("MlpPolicy", "Pendulum-v1", learning_starts=50, batch_size=32, **often, **common)


def learnt(model: Any) -> dict[str, torch.Tensor]:
    """Let it learn; return its weights, and its temperature."""
    model.learn(150)
    temperature = {"log_ent_coef": model.log_ent_coef.detach()} if hasattr(model, "log_ent_coef") else {}
    return {**model.policy.state_dict(), **temperature}


def main(name: str, folder: str, alone: str = "") -> None:
    from fastdqn.sb3 import average

    rank = int(os.environ["RANK"])
    model = model_of(name, rank)
    if not alone:
        average(model)
    torch.save(learnt(model), Path(folder) / f"rank{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
