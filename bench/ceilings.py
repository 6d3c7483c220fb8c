"""The two ceilings of the ladder: the environment alone and the update alone.

`python bench/ceilings.py --what env --wrappers opencv` plays random actions and trains nothing;
`python bench/ceilings.py --what update --batch-size 128` trains on one batch again and again and plays nothing.
Each prints one JSON line. bench/fps.py calls both between the scripts that it times.
"""

import fastdqn.startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from fastdqn.cli import with_preset
from fastdqn.config import NetworkName, RainbowOptions, Variant, VectorOptions, check, with_variant
from fastdqn.device import keep_freed_memory, prepare_device
from fastdqn.envs.make import make_env, spaces_of
from fastdqn.errors import UserError
from fastdqn.learner import PLAIN, Graphed
from fastdqn.parsing import parsed
from fastdqn.threads import flush_denormals
from fastdqn.types import Batch
from fastdqn.variants import fastest_form, make_games, make_learner


@dataclasses.dataclass(frozen=True)
class Ceiling:
    what: Literal["env", "update"] = "env"
    """Time the environment alone, or the update alone."""
    wrappers: Literal["classic", "opencv", "vector"] = "classic"
    """How the game is presented (env)."""
    num_envs: int | None = None
    """Games played at once, with the vector wrappers (env)."""
    env_threads: int | None = None
    """Threads that the emulators play in, with the vector wrappers (env)."""
    form: Literal["plain", "fast"] = "plain"
    """The update of 01 to 08, or that of 09 (update)."""
    double: bool | None = None
    """With Double Q-learning or without (update); by default as the game's preset and the variant say."""
    variant: Variant = "dqn"
    """Which of Rainbow's parts are on, in the fast form (update)."""
    network: NetworkName = "nature"
    """Which network, in the fast form (update)."""
    frame_size: int = 84
    """Side of the frames (update, and env with the vector wrappers)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the fast form (update)."""
    threads: int | None = None
    """CPU threads that PyTorch learns with."""
    gradient_threads: int = 1
    """Gradients computed side by side, in the fast form (update)."""
    batch_size: int = 32
    """Transitions in an update (update)."""
    game: str = "pong"
    """Which game."""
    device: str = "cpu"
    """Where the update runs: cpu, cuda, cuda:N or auto."""
    seconds: float = 5.0
    """How long to measure, after a short warm-up."""


def env_only(ceiling: Ceiling, options: VectorOptions) -> dict[str, float]:
    """Return env steps/s of one environment under random actions, resets included."""
    if ceiling.wrappers == "vector":
        return vector_only(ceiling, options)
    env = make_env(options.run.game, options.protocol, ceiling.wrappers)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    actions: list[int] = rng.integers(spaces_of(env)[1], size=4096).tolist()

    def play() -> int:
        nonlocal actions
        for action in actions[:100]:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        actions = actions[100:] + actions[:100]
        return 100

    return {"env_steps_per_s": rate_of(play, ceiling.seconds)}


def vector_only(ceiling: Ceiling, options: VectorOptions) -> dict[str, float]:
    """Return env steps/s of many games at once under random actions, resets included."""
    games = make_games(options)
    rng = np.random.default_rng(0)
    games.reset()
    actions = rng.integers(games.num_actions, size=(256, games.num_envs))

    def play() -> int:
        env_steps = 0
        for row in actions:
            games.send(row)
            env_steps += games.num_envs - int(games.recv().reset.sum())
        return env_steps

    return {"env_steps_per_s": rate_of(play, ceiling.seconds)}


def rate_of(play: Callable[[], int], seconds: float) -> float:
    """Return env steps/s over `seconds` after a short warm-up; each call of `play` returns the env steps it played."""
    env_steps, begin, warm = 0, time.perf_counter(), False
    while True:
        env_steps += play()
        now = time.perf_counter()
        if not warm and now - begin > min(1.0, seconds / 4):
            env_steps, begin, warm = 0, now, True
        elif warm and now - begin > seconds:
            return env_steps / (now - begin)


def update_only(ceiling: Ceiling, options: RainbowOptions) -> dict[str, float]:
    """Return the learner's samples/s on one random batch; the device is synchronised around each timed piece."""
    device = prepare_device(options.run)
    shape, num_actions = spaces_of(make_env(options.run.game, options.protocol, "opencv", options.frame_size))
    form = PLAIN
    if ceiling.form == "fast":
        keep_freed_memory()
        flush_denormals()
        form = fastest_form(options, device)
    learner = make_learner(options, shape, num_actions, device, form)
    size = ceiling.batch_size
    batch = Batch(
        torch.randint(0, 256, (size, *shape), dtype=torch.uint8).to(device),
        torch.randint(0, num_actions, (size,)).to(device),
        torch.randn(size).to(device),
        torch.full((size,), 0.99).to(device),
        torch.randint(0, 256, (size, *shape), dtype=torch.uint8).to(device),
    )

    if ceiling.form == "fast" and device.type == "cpu":  # as the replay of 09 lays them out
        obs, next_obs = (x.contiguous(memory_format=torch.channels_last) for x in (batch.obs, batch.next_obs))
        batch = batch._replace(obs=obs, next_obs=next_obs)
    together = learner.at_once

    def update() -> object:
        return learner.update_all([(batch, None)] * together)

    if form.graphed:
        update = Graphed(update, learner.noise)

    def timed(count: int) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        for _ in range(count):
            update()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / count

    timed(5)
    per_piece = max(1, int(0.1 / timed(3)))
    pieces: list[float] = []
    end = time.perf_counter() + ceiling.seconds
    while time.perf_counter() < end or not pieces:
        pieces.append(timed(per_piece))
    seconds = statistics.median(pieces)
    return {"updates_per_s": together / seconds, "samples_per_s": together * size / seconds}


def main() -> int:
    try:
        ceiling = parsed(Ceiling, sys.argv[1:], Ceiling(), __doc__ or "")
        options = with_variant(with_preset(RainbowOptions(), ceiling.game), ceiling.variant)
        options = dataclasses.replace(
            options,
            run=dataclasses.replace(options.run, device=ceiling.device, threads=ceiling.threads),
            dqn=options.dqn if ceiling.double is None else dataclasses.replace(options.dqn, double=ceiling.double),
            precision=ceiling.precision,
            network=ceiling.network,
            frame_size=ceiling.frame_size,
            gradient_threads=ceiling.gradient_threads,
            num_envs=ceiling.num_envs,
            env_threads=ceiling.env_threads,
        )
        check(options)
        result = env_only(ceiling, options) if ceiling.what == "env" else update_only(ceiling, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({**dataclasses.asdict(ceiling), **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
