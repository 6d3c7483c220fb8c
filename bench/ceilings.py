"""The two ceilings of the ladder: the environment alone and the update alone.

`python bench/ceilings.py --what env --wrappers opencv` plays random actions and trains nothing;
`python bench/ceilings.py --what update --batch-size 128` trains on one batch again and again and plays nothing.
Each prints one JSON line. bench/fps.py calls both between the scripts that it times.
"""

import startup  # noqa: F401 - first: Ctrl-C during the imports below

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from fastdqn.algorithms.form import PLAIN
from fastdqn.algorithms.ppo import PolicySamples
from fastdqn.build import build_learner
from fastdqn.build_actor_critic import build_learner as build_a2c
from fastdqn.build_actor_critic import build_ppo
from fastdqn.build_sac import build_learner as build_sac
from fastdqn.cli.parser import parsed
from fastdqn.envs.build import build_env, spaces_of
from fastdqn.envs.games import control_id, is_custom, registered_id, rom_of
from fastdqn.envs.many import build_games
from fastdqn.errors import UserError
from fastdqn.execution.devices import prepare_device, prepare_memory
from fastdqn.execution.graphs import Graphed, graphs_on
from fastdqn.forms import fastest_form
from fastdqn.options.actor_critic import A2COptions, PPOOptions
from fastdqn.options.dqn import AgentName, AgentOptions, DQNOptions, NetworkName, PaceOptions, UpdateOptions
from fastdqn.options.game import OWN_GAME, GameOptions, VectorOptions
from fastdqn.options.groups import check, defaults_of
from fastdqn.options.parts import PartOptions, ReturnOptions, Variant
from fastdqn.options.presets import changed, with_names
from fastdqn.options.run import RunOptions
from fastdqn.options.sac import SACOptions, sac_changes
from fastdqn.runs.machine import wait_for
from fastdqn.seeds import seeds_of
from fastdqn.types import Batch, Samples


@dataclasses.dataclass(frozen=True)
class Options:
    """What a script of the ladder has, all together."""

    run: RunOptions
    game: GameOptions
    dqn: DQNOptions
    pace: PaceOptions
    vector: VectorOptions
    update: UpdateOptions
    agent: AgentOptions
    parts: PartOptions


@dataclasses.dataclass(frozen=True)
class Ceiling:
    what: Literal["env", "update"] = "env"
    """Time the environment alone, or the update alone."""
    wrappers: Literal["classic", "opencv", "vector"] = "classic"
    """How the game is presented (env)."""
    num_envs: int | None = None
    """Games played at once, with the vector wrappers (env); by default the agent's."""
    env_threads: int | None = None
    """Threads that the emulators play in, with the vector wrappers (env)."""
    form: Literal["plain", "fast", "a2c", "ppo", "sac"] = "plain"
    """The update of 01 to 08, of 09, of 20 to 22, of 41 or of 31 (update); sac plays with continuous actions (env)."""
    double: bool = False
    """With Double Q-learning (update); without --no-double, too, as the agent and the variant say."""
    no_double: bool = False
    """Without Double Q-learning (update)."""
    agent: AgentName | None = None
    """Hyper-parameters by paper; by default those of 10."""
    variant: Variant | None = None
    """Which of Rainbow's parts are on, in the fast form (update); by default the agent's."""
    network: NetworkName | None = None
    """Which network, in the fast form (update); by default the agent's."""
    frame_size: int = 84
    """Side of the frames (update, and env with the vector wrappers)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the fast form (update)."""
    threads: int | None = None
    """CPU threads that PyTorch trains with."""
    batch_size: int = 32
    """Transitions in an update (update)."""
    bootstrap: bool = True
    """Whether an update asks a target network, or batches bring whole returns (update)."""
    game: str = "pong"
    """Which game."""
    device: str = "cpu"
    """Where the update runs: cpu, cuda, cuda:N, mps or auto."""
    seconds: float = 5.0
    """How long to measure, after a short warm-up."""


def options_of(ceiling: Ceiling) -> Options:
    """Return the options that a script would have.

    Raises:
        UserError: there is no such game, or they contradict each other.
    """
    registered = control_id(ceiling.game) if ceiling.form == "sac" else registered_id(ceiling.game)
    name, own = registered or ceiling.game, registered is not None or is_custom(ceiling.game)
    options = with_names(defaults_of(Options), name, name if own else rom_of(name), ceiling.agent, ceiling.variant)
    options = changed(options, {"game": OWN_GAME if own else {}})
    options = changed(
        options,
        {
            "run": {"device": ceiling.device, "threads": ceiling.threads},
            "dqn": {"double": ceiling.double} if ceiling.double or ceiling.no_double else {},
            "vector": {
                **({} if ceiling.num_envs is None else {"num_envs": ceiling.num_envs}),
                "env_threads": ceiling.env_threads,
                "frame_size": ceiling.frame_size,
            },
            "update": {"precision": ceiling.precision},
            "agent": {} if ceiling.network is None else {"network": ceiling.network},
        },
    )
    check(options)
    return options


def env_only(ceiling: Ceiling, options: Options) -> dict[str, float]:
    """Return env steps/s of one environment under random actions, resets included."""
    if ceiling.wrappers == "vector":
        return vector_only(ceiling, options)
    env = build_env(options.game, ceiling.wrappers)
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


def vector_only(ceiling: Ceiling, options: Options) -> dict[str, float]:
    """Return env steps/s of many games at once under random actions, resets included."""
    continuous = ceiling.form == "sac"
    games, _ = build_games(options.game, options.vector, seeds_of(options.run.seed).env, continuous)
    rng = np.random.default_rng(0)
    games.reset()
    actions = rng.integers(games.num_actions, size=(256, games.num_envs))
    if continuous:
        actions = rng.uniform(-1.0, 1.0, (256, games.num_envs, games.num_actions)).astype(np.float32)

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


def update_only(ceiling: Ceiling, options: Options) -> dict[str, float]:
    """Return the learner's samples/s on one random batch; the device is synchronised around each timed piece."""
    if ceiling.form in ("a2c", "ppo"):
        return actor_critic_only(ceiling, options)
    if ceiling.form == "sac":
        return control_only(ceiling, options)
    device, fast = prepare_device(options.run.device, options.run.cuda, options.run.threads), ceiling.form == "fast"
    shape, num_actions = spaces_of(build_env(options.game, "opencv", ceiling.frame_size))
    form = PLAIN
    if fast:
        prepare_memory()
        form = fastest_form(options.update.precision, device)
    returns = None if ceiling.bootstrap else ReturnOptions(trace_decay=0.0)
    groups = (options.update, options.agent, options.parts, returns)
    seeds = seeds_of(options.run.seed)
    learner = build_learner(seeds, options.dqn, shape, num_actions, device, form, *groups)
    size = ceiling.batch_size
    batch = Batch(
        torch.randint(0, 256, (size, *shape), dtype=torch.uint8).to(device),
        torch.randint(0, num_actions, (size,)).to(device),
        torch.randn(size).to(device),
        torch.full((size,), 0.99).to(device),
        torch.randint(0, 256, (size, *shape), dtype=torch.uint8).to(device),
    )

    if fast and device.type == "cpu":  # as the replay of 09 lays them out
        obs, next_obs = (x.contiguous(memory_format=torch.channels_last) for x in (batch.obs, batch.next_obs))
        batch = batch._replace(obs=obs, next_obs=next_obs)

    def update() -> object:
        return learner.update(batch)

    if fast and graphs_on(device):
        update = Graphed(update, learner.noise)

    return update_rate(update, size, device, ceiling.seconds)


def actor_critic_only(ceiling: Ceiling, options: Options) -> dict[str, float]:
    """Return an actor-critic's samples/s on one random batch, with the settings of Pong."""
    device, seeds = (
        prepare_device(options.run.device, options.run.cuda, options.run.threads),
        seeds_of(options.run.seed),
    )
    shape, num_actions = spaces_of(build_env(options.game, "opencv", ceiling.frame_size))
    size = ceiling.batch_size
    seen = torch.randn(size, *shape) if len(shape) == 1 else torch.randint(0, 256, (size, *shape), dtype=torch.uint8)
    obs = seen.to(device)
    action = torch.randint(0, num_actions, (size,)).to(device)
    target = torch.randn(size).to(device)
    if ceiling.form == "ppo":
        prepare_memory()
        learner = build_ppo(seeds, PPOOptions(), shape, num_actions, device)
        batch = PolicySamples(obs, action, torch.full_like(target, -1.8), target, target)
    else:
        learner = build_a2c(seeds, A2COptions(), shape, num_actions, device)
        batch = Samples(obs, action, target)
    return update_rate(lambda: learner.update(batch), size, device, ceiling.seconds)


def control_only(ceiling: Ceiling, options: Options) -> dict[str, float]:
    """Return the samples/s of soft actor-critic on one random batch, with the settings of its environment."""
    device = prepare_device(options.run.device, options.run.cuda, options.run.threads)
    prepare_memory()
    (obs_size,), num_actions = spaces_of(build_env(options.game, continuous=True))
    learner = build_sac(seeds_of(options.run.seed), sac_of(options.game.name), obs_size, num_actions, device)
    size = ceiling.batch_size
    batch = Batch(
        torch.randn(size, obs_size).to(device),
        (2.0 * torch.rand(size, num_actions) - 1.0).to(device),
        torch.randn(size).to(device),
        torch.full((size,), 0.99).to(device),
        torch.randn(size, obs_size).to(device),
    )
    return update_rate(lambda: learner.update(batch), size, device, ceiling.seconds)


def sac_of(game: str) -> SACOptions:
    """Return the settings that 31 has for this environment."""
    sac = SACOptions()
    for changes in sac_changes(game):
        sac = dataclasses.replace(sac, **changes.get("sac", {}))
    return sac


def update_rate(update: Callable[[], object], samples: int, device: torch.device, seconds: float) -> dict[str, float]:
    """Return updates/s and samples/s where each call of `update` makes one from so many samples."""

    def timed(count: int) -> float:
        wait_for(device)
        begin = time.perf_counter()
        for _ in range(count):
            update()
        wait_for(device)
        return (time.perf_counter() - begin) / count

    timed(5)
    per_piece = max(1, int(0.1 / timed(3)))
    pieces: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not pieces:
        pieces.append(timed(per_piece))
    each = statistics.median(pieces)
    return {"updates_per_s": 1.0 / each, "samples_per_s": samples / each}


def main() -> int:
    try:
        ceiling = parsed(Ceiling, sys.argv[1:], Ceiling(), __doc__ or "")
        if ceiling.batch_size < 1 or ceiling.seconds <= 0:
            raise UserError("--batch-size must be at least 1 and --seconds more than 0.")
        if ceiling.double and ceiling.no_double:
            raise UserError("--double and --no-double contradict each other; give one of them.")
        options = options_of(ceiling)
        result = env_only(ceiling, options) if ceiling.what == "env" else update_only(ceiling, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({**dataclasses.asdict(ceiling), **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
