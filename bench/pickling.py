"""What an env step costs to send from the player to the trainer, and what 100,000 of them take in memory.

Plays Pong with random actions and sends each env step through pickle, as a multiprocessing queue does: as it is, and as
fastdqn/execution/wire.py sends it. `python bench/pickling.py` prints the table that LOG.md cites.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import gc
import pickle
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from fastdqn.cli.parser import parsed
from fastdqn.envs.build import Wrappers, build_env
from fastdqn.errors import UserError
from fastdqn.execution.wire import FrameDecoder, FrameEncoder, window_for
from fastdqn.options.game import GameOptions
from fastdqn.types import PlayedStep, Transition


@dataclasses.dataclass(frozen=True)
class PicklingOptions:
    env_steps: int = 10_000
    """Env steps to play and send."""
    wrappers: Wrappers = "classic"
    """Wrappers to play with."""


def play(options: PicklingOptions) -> list[PlayedStep]:
    env = build_env(GameOptions(), options.wrappers)
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    steps: list[PlayedStep] = []
    for _ in range(options.env_steps):
        action = int(rng.integers(6))
        next_obs, reward, terminated, truncated, _ = env.step(action)
        steps.append(PlayedStep((Transition(obs, action, float(reward), 0.99, next_obs),), ()))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return steps


def send(steps: list[PlayedStep], encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> tuple[float, ...]:
    """Return bytes, sender's us, receiver's us and the receiver's memory in bytes, each for one env step."""
    gc.collect()
    size, sending, receiving = 0, 0.0, 0.0
    for step in steps[:2000]:
        begin = time.perf_counter()
        message = pickle.dumps(encode(step))
        middle = time.perf_counter()
        decode(pickle.loads(message))
        receiving += time.perf_counter() - middle
        sending += middle - begin
    process = psutil.Process()
    before = process.memory_info().rss
    kept: list[Any] = []
    for step in steps[2000:]:
        message = pickle.dumps(encode(step))
        size += len(message)
        kept.append(decode(pickle.loads(message)))
        del message
    memory = (process.memory_info().rss - before) / len(kept)
    return size / len(kept), 1e6 * sending / 2000, 1e6 * receiving / 2000, memory


def _as_it_is(step: PlayedStep) -> PlayedStep:
    return step


def main() -> int:
    try:
        options = parsed(PicklingOptions, sys.argv[1:], PicklingOptions(), __doc__ or "")
        if options.env_steps < 4000:
            raise UserError("--env-steps must be at least 4000.")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    before = psutil.Process().memory_info().rss
    steps = play(options)
    played = (psutil.Process().memory_info().rss - before) / len(steps)
    window = window_for(4, 1)
    print(f"{options.wrappers} wrappers, {options.env_steps} env steps; for each env step:")
    print(f"in one process: {played:,.0f} bytes of memory, {played / 1e4:.2f} GB for 100,000")
    ways: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
        ("pickled as it is", _as_it_is, _as_it_is),
        ("frames once", FrameEncoder(window).encode, FrameDecoder(window).decode),
    ]
    for name, encode, decode in ways:
        size, sending, receiving, memory = send(steps, encode, decode)
        print(
            f"{name}: {size:,.0f} bytes sent, {sending:.0f} us to send, {receiving:.0f} us to receive, "
            f"{memory:,.0f} bytes of memory, {memory / 1e4:.2f} GB for 100,000"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
