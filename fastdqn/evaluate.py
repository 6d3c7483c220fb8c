"""Evaluation: what an agent that has stopped learning scores, under a named protocol.

Whole games are counted, by their raw scores. Of many games played at once the first to begin are counted, and each of
them is played to its end: counting the first to end would favour short games.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastdqn import config
from fastdqn.config import AgentOptions, Options, VectorOptions, options_from
from fastdqn.envs import games
from fastdqn.envs.make import PlayEnv, Wrappers, make_env, spaces_of
from fastdqn.envs.scores import human_normalised
from fastdqn.envs.vector import AtariVector, check_num_envs, distinct_seeds
from fastdqn.errors import UserError
from fastdqn.learner import DQNLearner
from fastdqn.replay.frames import FrameReplay
from fastdqn.types import EpisodeEnd, Frame
from fastdqn.variants import make_learner


class EvaluationProtocol(NamedTuple):
    """How an agent is examined."""

    about: str
    epsilon: float | None  # None for the run's own final one
    changes: dict[str, Any]  # to the run's own protocol; lives and clipping never count in an evaluation
    episodes: int | None
    env_steps: int | None


PROTOCOLS = {
    "training": EvaluationProtocol(
        "as the run was trained: its own no-ops, sticky actions and final epsilon, 100 games (2017 post)",
        None,
        {},
        100,
        None,
    ),
    "nature": EvaluationProtocol(
        "30 no-ops, epsilon 0.05, games of at most 5 minutes, 30 games (Mnih et al. 2015)",
        0.05,
        {"noop_max": 30, "sticky_actions": 0.0, "max_frames": 18_000},
        30,
        None,
    ),
    "nature-steps": EvaluationProtocol(
        "the same for 125,000 env steps instead of 30 games (Mnih et al. 2015, training curves)",
        0.05,
        {"noop_max": 30, "sticky_actions": 0.0, "max_frames": 18_000},
        None,
        125_000,
    ),
    "machado": EvaluationProtocol(
        "sticky actions 0.25, all 18 actions, no no-ops, games of at most 30 minutes, epsilon 0.01, 100 games "
        "(Machado et al. 2018)",
        0.01,
        {"noop_max": 0, "sticky_actions": 0.25, "full_action_set": True, "max_frames": 108_000, "fire_reset": False},
        100,
        None,
    ),
}
"""The named protocols."""


class Score(NamedTuple):
    """What an evaluation found; without a finished game there is no score."""

    games: list[EpisodeEnd]
    env_steps: int
    seconds: float
    stopped: str | None  # why it ended before its time

    def as_dict(self, game: str) -> dict[str, Any]:
        """Return raw scores, mean, its standard error, median, and the human-normalised score where there is one."""
        scores = [end.score for end in self.games]
        found: dict[str, Any] = {
            "games": len(scores),
            "env_steps": self.env_steps,
            "seconds": round(self.seconds, 2),
            "stopped": self.stopped,
            "mean": None,
            "median": None,
            "standard_error": None,
            "human_normalised": None,
            "scores": scores,
            "frames": [end.frames for end in self.games],
            "truncated": sum(end.truncated for end in self.games),
        }
        if scores:
            found["mean"], found["median"] = statistics.fmean(scores), statistics.median(scores)
            found["human_normalised"] = human_normalised(game, found["mean"])
        if len(scores) > 1:
            found["standard_error"] = statistics.stdev(scores) / math.sqrt(len(scores))
        return found


class Agent(NamedTuple):
    """A trained network and how its run was set up."""

    options: Options
    script: str
    learner: DQNLearner
    num_actions: int

    @property
    def wrappers(self) -> Wrappers | None:
        """The wrappers that the run saw its game through; None for many games at once (06 and later)."""
        return wrappers_of(self.script)


def wrappers_of(script: str) -> Wrappers | None:
    """Return the wrappers that a script of the ladder sees its game through; None for 06 and later."""
    number = int(script[:2])
    return "classic" if number <= 4 else "opencv" if number == 5 else None


def load_agent(run: Path, device: torch.device) -> Agent:
    """Return the agent whose weights the folder of a run holds.

    Raises:
        UserError: it is not the folder of a run, has no weights, or they do not fit what it says of itself.
    """
    try:
        said = json.loads((run / "config.json").read_text(encoding="utf-8"))
        weights = safetensors.torch.load_file(run / "weights.safetensors", device="cpu")
    except FileNotFoundError as error:
        missing = Path(str(error.filename or run / "weights.safetensors")).name
        raise UserError(f"{run} is not the folder of a run that has been saved: it has no {missing}.") from error
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise UserError(f"A file of the run {run} is damaged: {error}.") from error
    options = options_from(said)
    wrappers = wrappers_of(said["script"]) or "opencv"
    shape, num_actions = spaces_of(make_env(options.run.game, options.protocol, wrappers, side_of(options)))
    plays = dataclasses.replace(options, gradient_threads=1) if isinstance(options, AgentOptions) else options
    learner = make_learner(plays, shape, num_actions, device)  # it only plays
    try:
        for network in (learner.network, learner.target):  # a run keeps the weights of the one that plays
            network.load_state_dict(weights)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise UserError(f"The weights in {run} do not fit the network that its config.json describes: {why}") from error
    return Agent(options, said["script"], learner, num_actions)


class Seats(Protocol):
    """N games that show stacks."""

    def reset(self) -> Tensor:
        """Start all games; return observations (N, C, H, W) uint8."""
        ...

    def step(self, actions: NDArray[np.int64]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        """Play; return observations, the game that ended in each seat, and which seats made an env step."""
        ...


class VectorSeats:
    """Games of the emulator's own threads, their stacks put together as a run's replay does."""

    def __init__(self, options: Options, protocol: config.Protocol, count: int, seed: int, threads: int) -> None:
        side = side_of(options)
        seeds = np.random.SeedSequence(seed)
        self._games = AtariVector(games.rom_of(options.run.game), protocol, count, seeds, threads, side)
        rows = protocol.frame_stack + 4
        self._frames = FrameReplay(
            rows * count, count, (side, side), protocol.frame_stack, 1, 1.0, torch.device("cpu"), seed
        )

    def reset(self) -> Tensor:
        self._frames.reset(self._games.reset())
        return self._frames.stacks()

    def step(self, actions: NDArray[np.int64]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        self._games.send(actions)
        step = self._games.recv()
        self._frames.add(actions, step)
        ended = iter(step.episodes)
        return self._frames.stacks(), [next(ended) if over else None for over in step.reset], ~step.reset


class WrappedSeats:
    """Games behind the wrappers of 01 to 05, or environments of one's own, one after the other.

    A lost life resets the wrappers as it did in the run (FIRE may have to be pressed); scores are whole games' all the
    same.
    """

    def __init__(self, agent: Agent, protocol: config.Protocol, count: int, seed: int) -> None:
        game, wrappers = agent.options.run.game, agent.wrappers or "opencv"
        protocol = dataclasses.replace(protocol, episodic_life=agent.options.protocol.episodic_life)
        self._envs: list[PlayEnv] = [make_env(game, protocol, wrappers, side_of(agent.options)) for _ in range(count)]
        self._seeds = distinct_seeds(np.random.SeedSequence(seed), count)
        self._views = [View(agent.wrappers is None) for _ in self._envs]

    def reset(self) -> Tensor:
        seen: list[Frame] = []
        for env, seed, view in zip(self._envs, self._seeds, self._views, strict=True):
            seen.append(view.first(env.reset(seed=int(seed))[0]))
            env.get_wrapper_attr("pop_finished")()
        return torch.from_numpy(np.stack(seen))

    def step(self, actions: NDArray[np.int64]) -> tuple[Tensor, list[EpisodeEnd | None], NDArray[np.bool_]]:
        seen: list[Frame] = []
        ends: list[EpisodeEnd | None] = []
        for env, action, view in zip(self._envs, actions, self._views, strict=True):
            obs, _, terminated, truncated, _ = env.step(int(action))
            over = terminated or truncated
            seen.append(view.first(env.reset()[0]) if over else view.next(obs))
            finished = env.get_wrapper_attr("pop_finished")()
            ends.append(finished[0] if finished else None)
        return torch.from_numpy(np.stack(seen)), ends, np.ones(len(self._envs), bool)


class View:
    """What a run showed its agent of the stacks that wrappers make.

    The wrappers fill the stack of a first observation with copies of its frame, the replay of 06 and later with zeros.

    Args:
        blank: whether frames before the first are zeros.
    """

    def __init__(self, blank: bool) -> None:
        self._blank = blank
        self._known = 0

    def first(self, obs: Any) -> Frame:
        """Return the stack (C, H, W) to see of a first observation."""
        self._known = 0
        return self.next(obs)

    def next(self, obs: Any) -> Frame:
        """Return the stack (C, H, W) to see of the next observation."""
        stack: Frame = np.array(obs)
        self._known += 1
        if self._blank:
            stack[: max(0, len(stack) - self._known)] = 0
        return stack


def evaluate(
    agent: Agent,
    name: str,
    num_envs: int,
    seed: int,
    episodes: int | None = None,
    env_steps: int | None = None,
    epsilon: float | None = None,
    stop: Callable[[], str | None] = lambda: None,
    watch: Callable[[int, int], None] = lambda done, steps: None,  # noqa: ARG005
    threads: int = 1,
) -> Score:
    """Play whole games with a learnt network; returns when they are over, which the frame limit sees to.

    Args:
        agent: from `load_agent`.
        name: of the protocol.
        num_envs: games played at once.
        seed: of games and exploration.
        episodes: games to count, instead of the protocol's.
        env_steps: instead, count the games that begin within so many env steps.
        epsilon: instead of the protocol's.
        stop: called now and then; a reason to stop early, or None. Then the games that began before the first
            unfinished one are counted.
        watch: called now and then with games counted and env steps made.
        threads: of the emulators.

    Raises:
        UserError: no such protocol, or the agent cannot play under it.
    """
    if name not in PROTOCOLS:
        raise UserError(f"There is no protocol called {name!r}; there are {', '.join(PROTOCOLS)}.")
    chosen = PROTOCOLS[name]
    if episodes is None and env_steps is None:
        episodes, env_steps = chosen.episodes, chosen.env_steps
    epsilon = epsilon if epsilon is not None else chosen.epsilon
    epsilon = agent.options.dqn.epsilon_final if epsilon is None else epsilon
    protocol = dataclasses.replace(agent.options.protocol, **chosen.changes, episodic_life=False, clip_rewards=False)
    custom = games.is_custom(agent.options.run.game)
    if custom and chosen.changes:
        raise UserError(f"The protocol {name} is for Atari's games; {agent.options.run.game} has rules of its own.")
    wrappers = agent.wrappers or "opencv"
    wanted = spaces_of(make_env(agent.options.run.game, protocol, wrappers))[1]
    if wanted != agent.num_actions:
        raise UserError(
            f"The protocol {name} has {wanted} actions, but this agent has learnt {agent.num_actions}; train one with "
            "--full-action-set for it."
        )
    count = num_envs if episodes is None else min(num_envs, episodes)
    check_num_envs(count)
    seats: Seats
    if agent.wrappers is None and not custom:
        seats = VectorSeats(agent.options, protocol, count, seed, threads)
    else:
        seats = WrappedSeats(agent, protocol, count, seed)
    agent.learner.noise.manual_seed(seed)
    return _play(seats, agent, count, seed, episodes, env_steps, epsilon, stop, watch)


def _play(
    seats: Seats,
    agent: Agent,
    count: int,
    seed: int,
    episodes: int | None,
    env_steps: int | None,
    epsilon: float,
    stop: Callable[[], str | None],
    watch: Callable[[int, int], None],
) -> Score:
    rng = np.random.default_rng([seed, 1])
    device = next(agent.learner.network.parameters()).device
    began = time.perf_counter()
    ended: dict[int, EpisodeEnd] = {}  # by the order in which the games began
    started = count  # games that have begun and will be counted
    number = np.arange(count)  # of the game in a seat
    counts = np.ones(count, bool)  # whether it will be counted
    steps, stopped, rounds = 0, None, 0
    obs = seats.reset()
    while counts.any():
        greedy = agent.learner.greedy(obs.to(device)).cpu().numpy()
        random = rng.integers(agent.num_actions, size=count)
        actions = np.where(rng.random(count) < epsilon, random, greedy)
        obs, ends, made = seats.step(actions)
        steps += int((made & counts).sum())
        for seat, end in enumerate(ends):
            if end is None or not counts[seat]:
                continue
            ended[int(number[seat])] = end
            more = started < episodes if episodes is not None else steps < (env_steps or 0)
            counts[seat], number[seat] = more, started
            started += int(more)
        rounds += 1
        if rounds % 50 == 0:
            watch(len(ended), steps)
            stopped = stop()
            if stopped:
                break
    whole = min(number[counts].tolist(), default=started)  # stopped early: those that began before the first unfinished
    return Score([ended[i] for i in range(whole)], steps, time.perf_counter() - began, stopped)


def side_of(options: Options) -> int:
    """Return the side of the square frames that a run sees."""
    return options.frame_size if isinstance(options, VectorOptions) else 84
