"""Stable-Baselines3's soft actor-critic as bench/beside_sb3.py runs it: one process, JSON lines on standard output.

python bench/sb3_sac.py '{"game": "Pendulum-v1", "env_steps": 2000, ...}'
"""

from __future__ import annotations

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import importlib
import json
import sys
import time
from typing import Any


def say(kind: str, **values: Any) -> None:
    print(json.dumps({"kind": kind, **values}), flush=True)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print((__doc__ or "").strip(), file=sys.stdout if len(sys.argv) == 2 else sys.stderr)
        return 0 if len(sys.argv) == 2 else 2
    asked: dict[str, Any] = json.loads(sys.argv[1])
    import gymnasium
    import torch

    sac: Any = importlib.import_module("stable_baselines3").SAC
    callback: Any = importlib.import_module("stable_baselines3.common.callbacks").BaseCallback
    monitor: Any = importlib.import_module("stable_baselines3.common.monitor").Monitor
    torch.set_num_threads(asked["threads"])
    env = monitor(gymnasium.make(asked["game"], disable_env_checker=True))
    settings = {name: asked[name] for name in ("learning_rate", "batch_size", "gamma")}
    model = sac(
        "MlpPolicy",
        env,
        seed=asked["seed"],
        device="cpu",
        buffer_size=asked["replay_size"],
        learning_starts=asked["replay_initial"],
        tau=asked["target_average"],
        ent_coef=f"auto_{asked['initial_temperature']}" if asked["temperature"] is None else asked["temperature"],
        target_entropy="auto" if asked["target_entropy"] is None else asked["target_entropy"],
        policy_kwargs={"net_arch": [asked["hidden"], asked["hidden"]]},
        **settings,
    )
    began = time.perf_counter()

    class Said(callback):
        """Says each finished game, and once a second how many updates there were."""

        def __init__(self) -> None:
            super().__init__()
            self.next = 0.0

        def _on_step(self) -> bool:
            now = time.perf_counter() - began
            count = {"env_steps": int(self.num_timesteps), "elapsed": now}
            for info in self.locals["infos"]:
                if "episode" in info:
                    say("episode", score=float(info["episode"]["r"]), **count)
            if now >= self.next:
                self.next = now + 1.0
                say("speed", updates=int(self.model._n_updates), **count)
            return True

    model.learn(asked["env_steps"], callback=Said())
    elapsed = time.perf_counter() - began
    say("speed", updates=int(model._n_updates), env_steps=int(model.num_timesteps), elapsed=elapsed)
    scores: list[float] = []
    for game in range(asked["evaluation_games"]):
        obs, _ = env.reset(seed=asked["evaluation_seed"] + game)
        over, score = False, 0.0
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            score, over = score + float(reward), bool(terminated or truncated)
        scores.append(score)
    say("evaluation", scores=scores)
    return 0


if __name__ == "__main__":
    sys.exit(main())
