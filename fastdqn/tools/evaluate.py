"""Evaluation: what an agent that has stopped learning scores, under a named protocol.

Whole games are counted, by their raw scores. Of many games played at once the first to begin are counted, and each of
them is played to its end: counting the first to end would favour short games.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from fastdqn import build_actor_critic, build_sac
from fastdqn.algorithms.a2c import A2CLearner
from fastdqn.algorithms.dqn import DQNLearner
from fastdqn.algorithms.form import PLAIN
from fastdqn.algorithms.sac import SACLearner
from fastdqn.build import build_learner
from fastdqn.envs import games
from fastdqn.envs.build import Wrappers, build_env, is_numbered, spaces_of
from fastdqn.envs.scores import human_normalised
from fastdqn.envs.vector import check_num_envs
from fastdqn.errors import UserError
from fastdqn.execution.devices import one_thread
from fastdqn.options.dqn import DQNOptions
from fastdqn.options.fields import at_least
from fastdqn.options.game import PRESENTATIONS, GameOptions
from fastdqn.options.groups import Groups, options_from
from fastdqn.runs.best import read_best
from fastdqn.runs.folder import read_config
from fastdqn.runs.weights import read_weights
from fastdqn.seeds import seeds_of
from fastdqn.tools.seats import Seats, VectorSeats, WrappedSeats
from fastdqn.types import EpisodeEnd


class EvaluationProtocol(NamedTuple):
    """How an agent is examined."""

    about: str
    epsilon: float | None  # None for the run's own final one
    changes: Mapping[str, Any]  # to how the run's game was presented; lives and clipping never count in an evaluation
    episodes: int | None
    env_steps: int | None
    noise: bool = True  # of noisy layers


LOOK_SECONDS = 0.5  # between two looks whether to stop

PROTOCOLS = {
    "training": EvaluationProtocol(
        "as the run was trained: its own no-ops, sticky actions and final epsilon, 100 games (2017 post)",
        None,
        {},
        100,
        None,
    ),
    "nature": EvaluationProtocol(
        "up to 30 no-ops, epsilon 0.05, games of at most 5 minutes, 30 games (Mnih et al. 2015)",
        0.05,
        PRESENTATIONS["nature"],
        30,
        None,
    ),
    "nature-steps": EvaluationProtocol(
        "as nature, but the games that begin within 125,000 env steps (Mnih et al. 2015, training curves)",
        0.05,
        PRESENTATIONS["nature"],
        None,
        125_000,
    ),
    "machado": EvaluationProtocol(
        "sticky actions 0.25, all 18 actions, no no-ops, games of at most 30 minutes, epsilon 0.01, 100 games "
        "(Machado et al. 2018; the length is Dopamine's)",
        0.01,
        PRESENTATIONS["machado"],
        100,
        None,
    ),
    "atari-100k": EvaluationProtocol(
        "up to 30 no-ops, epsilon 0.001, noisy layers without noise, games of at most 30 minutes, 100 games (van "
        "Hasselt et al. 2019)",
        0.001,
        PRESENTATIONS["atari-100k"],
        100,
        None,
        noise=False,
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

    options: Groups
    epsilon: float  # the run's own, at its end; 0 for one that draws its actions anyway
    wrappers: Wrappers | None  # that the run played its game through; None for many games at once
    learner: DQNLearner | A2CLearner | SACLearner
    num_actions: int  # A, or how many numbers an action has where they are continuous


def load_agent(
    run: Path, device: torch.device, own_game: str | None = None, untrained: bool = False, best: bool = False
) -> Agent:
    """Return the agent whose weights the folder of a run holds.

    Args:
        run: the folder.
        device: where the network is to be.
        own_game: the environment of one's own, module:function, that may be loaded; its name in the run's files is no
            reason to.
        untrained: whether the agent is to have initial weights, those of the run's seed, instead.
        best: whether it is to have those of when the mean of 100 games was highest, instead of the newest.

    Raises:
        UserError: it is not the folder of a run, another version wrote it, its agent is none of these that can be
            evaluated, it plays another environment of one's own, it has no weights, or they do not fit what it says of
            itself.
        RunError: an environment of one's own fails.
    """
    config = read_config(run)
    weights = None if untrained else read_best(run) if best else read_weights(run)
    options = options_from(Groups, config)
    if options.dqn is None and not options.actor_critic:
        raise UserError(f"The run {run} has trained no agent known here: {config['script']} is not evaluated.")
    games.refuse_code(run, options.game.name, own_game)
    if own_game not in (None, options.game.name) and not games.is_custom(own_game or ""):
        raise UserError(
            f"The run {run} plays {options.game.name}, not {own_game}: --game repeats the name of an environment of "
            "one's own, and is left out otherwise."
        )
    wrappers = next((known for known in get_args(Wrappers) if known == config["wrappers"]), None)
    env = build_env(options.game, wrappers or "opencv", side_of(options), options.continuous)
    shape, num_actions = spaces_of(env)
    learner = _learner_of(options, shape, num_actions, device, is_numbered(env))
    networks = [learner.network, *([learner.target] if isinstance(learner, DQNLearner) else [])]
    try:
        for network in networks:  # a run keeps the weights of the one that plays
            if weights is not None:
                network.load_state_dict(weights)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise UserError(f"The weights in {run} do not fit the network that its config.json describes: {why}") from error
    epsilon = 0.0 if options.dqn is None else options.dqn.epsilon_final
    return Agent(options, epsilon, wrappers, learner, num_actions)


@one_thread()
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
    noise: bool | None = None,
) -> Score:
    """Play whole games with a trained network; returns when they are over, which a frame limit ensures: the
    protocol's, else the run's, or where it has none that of Atari.

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
        noise: of noisy layers, instead of the protocol's.

    Raises:
        UserError: no such protocol, the agent cannot play under it, or there is nothing to play.
        RunError: an environment of one's own fails.
    """
    for what, count in (("num_envs", num_envs), ("episodes", episodes), ("env_steps", env_steps)):
        at_least(count, 1, what)
    if name not in PROTOCOLS:
        raise UserError(f"There is no protocol called {name!r}; there are {', '.join(PROTOCOLS)}.")
    chosen = PROTOCOLS[name]
    if episodes is None and env_steps is None:
        episodes, env_steps = chosen.episodes, chosen.env_steps
    epsilon = epsilon_of(agent, name, epsilon)
    limit = {"max_frames": agent.options.game.max_frames or GameOptions().max_frames}
    whole = {**limit, **chosen.changes, "episodic_life": False, "clip_rewards": False}
    game = dataclasses.replace(agent.options.game, **whole)
    custom = not games.is_atari(game.name)
    if custom and chosen.changes:
        raise UserError(f"The protocol {name} is for Atari's games; {game.name} has rules of its own.")
    wrappers = agent.wrappers or "opencv"
    wanted = spaces_of(build_env(game, wrappers, continuous=agent.options.continuous))[1]
    if wanted != agent.num_actions:
        raise UserError(
            f"The protocol {name} has {wanted} actions, but this agent was trained with {agent.num_actions}; train one "
            "with --full-action-set for it."
        )
    count = num_envs if episodes is None else min(num_envs, episodes)
    check_num_envs(count)
    if agent.wrappers is None and not custom:
        device = next(agent.learner.network.parameters()).device
        seats = VectorSeats(game, side_of(agent.options), count, seed, threads, device)
    else:
        seats = WrappedSeats(
            dataclasses.replace(game, episodic_life=agent.options.game.episodic_life),
            agent.wrappers,
            side_of(agent.options),
            count,
            seed,
            agent.options.continuous,
        )
    agent.learner.noise.manual_seed(seed)
    noise = chosen.noise if noise is None else noise
    return _play(seats, agent, count, seed, episodes, env_steps, epsilon, stop, watch, noise)


def epsilon_of(agent: Agent, name: str, epsilon: float | None) -> float:
    """Return with which epsilon `agent` is evaluated: this one, or the protocol's, or else the run's own final one."""
    epsilon = PROTOCOLS[name].epsilon if epsilon is None else epsilon
    return agent.epsilon if epsilon is None else epsilon


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
    noise: bool = True,
) -> Score:
    rng = np.random.default_rng([seed, 1])
    device = next(agent.learner.network.parameters()).device
    began = time.perf_counter()
    ended: dict[int, EpisodeEnd] = {}  # by the order in which the games began
    started = count  # games that have begun and will be counted
    number = np.arange(count)  # of the game in a seat
    counts = np.ones(count, bool)  # whether it will be counted
    steps, stopped, looked = 0, None, began
    obs = seats.reset()
    while counts.any():
        actions = explored(best_actions(agent.learner, obs.to(device), noise), agent.num_actions, epsilon, rng)
        obs, ends, made = seats.step(actions)
        steps += int((made & counts).sum())
        for seat, end in enumerate(ends):
            if end is None or not counts[seat]:
                continue
            ended[int(number[seat])] = end
            more = started < episodes if episodes is not None else steps < (env_steps or 0)
            counts[seat], number[seat] = more, started
            started += int(more)
        now = time.perf_counter()
        if now - looked >= LOOK_SECONDS:
            looked = now
            watch(len(ended), steps)
            if stopped := stop():
                break
    whole = min(number[counts].tolist(), default=started)  # stopped early: those that began before the first unfinished
    return Score([ended[i] for i in range(whole)], steps, time.perf_counter() - began, stopped)


def best_actions(learner: DQNLearner | A2CLearner | SACLearner, obs: torch.Tensor, noise: bool = True) -> NDArray[Any]:
    """Return actions for observations (N, ...), (N,) int64 or (N, A) float32: those of largest value, with the noise of
    noisy layers or without, such as an actor-critic draws, or the mean ones of soft actor-critic, as Stable-Baselines3
    evaluates it.
    """
    if isinstance(learner, SACLearner) or (isinstance(learner, DQNLearner) and not noise):
        return learner.best(obs).cpu().numpy()
    return learner.act(obs).cpu().numpy()


def explored(actions: NDArray[Any], num_actions: int, epsilon: float, rng: np.random.Generator) -> NDArray[Any]:
    """Return `actions`, (N,) or continuous ones (N, A), with a share `epsilon` of random ones instead."""
    count = len(actions)
    if actions.ndim == 2:
        random = rng.uniform(-1.0, 1.0, size=actions.shape).astype(np.float32)
        return np.where(rng.random((count, 1)) < epsilon, random, actions)
    random = rng.integers(num_actions, size=count)
    return np.where(rng.random(count) < epsilon, random, actions)


def _learner_of(
    options: Groups, shape: tuple[int, ...], num_actions: int, device: torch.device, numbered: bool
) -> DQNLearner | A2CLearner | SACLearner:
    seeds, groups = seeds_of(options.run.seed), (options.update, options.agent, options.parts, options.returns)
    if options.sac is not None:
        return build_sac.build_learner(seeds, options.sac, shape[0], num_actions, device)
    if options.ppo is not None:
        exact = dataclasses.replace(options.ppo, precision="fp32")
        return build_actor_critic.build_ppo(seeds, exact, shape, num_actions, device, numbered=numbered)
    if options.a2c is not None:
        return build_actor_critic.build_learner(seeds, options.a2c, shape, num_actions, device)
    channels, height, width = shape
    dqn = options.dqn or DQNOptions()
    return build_learner(seeds, dqn, (channels, height, width), num_actions, device, PLAIN, *groups)


def side_of(options: Groups) -> int:
    """Return the side of the square frames that a run observes."""
    return 84 if options.vector is None else options.vector.frame_size
