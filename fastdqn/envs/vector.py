"""Many games at once: ale_py's AtariVectorEnv behind a thin adapter, and the plain one it is tested against.

Both yield newest frames alone, not stacks: whoever learns keeps the frames anyway and puts stacks together itself
(frames before a game's first are zero, as in AtariVectorEnv). A game that is over is reset by the step after:
that row of the step is marked `reset`, its action is ignored, and it is no transition.
"""

from __future__ import annotations

from typing import Any, Protocol

import ale_py
import numpy as np
import psutil
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from fastdqn import config
from fastdqn.envs import games
from fastdqn.envs.make import PlayEnv, describe, make_env, spaces_of
from fastdqn.errors import RunError, UserError
from fastdqn.types import EpisodeEnd, Frame, VectorStep

ENV_BYTES = 1_500_000
"""Memory of one emulator with its buffers; measured 0.8 to 1.3 MB."""


class VectorEnv(Protocol):
    """N games that are played in step."""

    num_envs: int
    num_actions: int
    obs_shape: tuple[int, int, int]  # (C, H, W) of the stacks to make of the frames
    threads: int  # emulator threads; 0 if the games are played in the caller's

    def reset(self) -> Frame:
        """Start all games; return their first frames, (N, H, W) uint8."""
        ...

    def send(self, actions: NDArray[np.int64]) -> None:
        """Let every game play its action, (N,); returns at once where games have threads of their own."""
        ...

    def recv(self) -> VectorStep:
        """Return what came of the actions sent."""
        ...


class AtariVector:
    """N games of one ROM in the emulator's own threads.

    Args:
        rom: the game, as ale_py spells it.
        protocol: how the game is presented. Lives are told apart through `life_loss_info`: the emulator's
            `episodic_life` would reset the whole game at each lost life.
        num_envs: N.
        seed: every game gets a seed of its own that is drawn from this one.
        threads: emulator threads.
        side: of the square frames.
    """

    def __init__(
        self,
        rom: str,
        protocol: config.Protocol,
        num_envs: int,
        seed: np.random.SeedSequence,
        threads: int,
        side: int = 84,
    ) -> None:
        emulator: Any = ale_py
        emulator.ALEInterface.setLoggerMode(emulator.LoggerMode.Error)
        self.env: Any = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=min(threads, num_envs),
            max_num_frames_per_episode=protocol.max_frames,
            repeat_action_probability=protocol.sticky_actions,
            full_action_space=protocol.full_action_set,
            img_height=side,
            img_width=side,
            stack_num=1,
            frameskip=protocol.frame_skip,
            noop_max=protocol.noop_max,
            use_fire_reset=protocol.fire_reset,
            life_loss_info=protocol.episodic_life,
            reward_clipping=False,
        )
        self.num_envs = num_envs
        self.threads = min(threads, num_envs)
        self.obs_shape = (protocol.frame_stack, side, side)
        self.num_actions = int(self.env.single_action_space.n)
        self.seeds = distinct_seeds(seed, num_envs)
        self._clip = protocol.clip_rewards
        self._score = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)  # frames of the running game
        self._begin = np.zeros(num_envs, np.int64)  # frames that each emulator had played when its game began
        self._truncated = np.zeros(num_envs, bool)

    def reset(self) -> Frame:
        frames, info = self.env.reset(seed=self.seeds)
        self._score[:] = 0.0
        self._truncated[:] = False
        self._length = info["episode_frame_number"].astype(np.int64)
        self._begin = info["frame_number"] - self._length
        return frames[:, 0]

    def send(self, actions: NDArray[np.int64]) -> None:
        """Raises ValueError for an action that is out of range: the emulator would wait for ever."""
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"actions must be {self.num_envs} numbers in 0..{self.num_actions - 1}, not {actions}")
        self.env.send(actions)

    def recv(self) -> VectorStep:
        try:
            frames, reward, terminated, truncated, info = self.env.recv()
        except RuntimeError as error:
            raise RunError(f"An emulator failed: {error}.") from error
        length: NDArray[np.int64] = info["episode_frame_number"].astype(np.int64)
        begin: NDArray[np.int64] = info["frame_number"] - length
        reset: NDArray[np.bool_] = begin != self._begin  # exact, where "the number of lives is 0" depends on the game
        episodes: tuple[EpisodeEnd, ...] = ()
        if reset.any():
            over: list[int] = np.flatnonzero(reset).tolist()
            episodes = tuple(
                EpisodeEnd(float(self._score[i]), int(self._length[i]), bool(self._truncated[i])) for i in over
            )
            self._score[reset] = 0.0
        self._score += reward
        self._begin, self._length, self._truncated = begin, length, truncated
        raw = reward.astype(np.float32)
        return VectorStep(
            frames[:, 0], np.sign(raw) if self._clip else raw, terminated, truncated & ~terminated, reset, episodes
        )


class SerialVector:
    """N environments, one played after the other: for environments of one's own, and a plain reference.

    Args:
        envs: environments as `make_env` returns them.
        seed: every environment gets a seed of its own that is drawn from this one.
    """

    def __init__(self, envs: list[PlayEnv], seed: np.random.SeedSequence) -> None:
        self.envs = envs
        self.num_envs = len(envs)
        self.threads = 0
        self.obs_shape, self.num_actions = spaces_of(envs[0])
        self.seeds = distinct_seeds(seed, self.num_envs)
        self._over: NDArray[np.bool_] = np.zeros(self.num_envs, bool)
        self._actions = np.zeros(self.num_envs, np.int64)

    def reset(self) -> Frame:
        self._over[:] = False
        return np.stack([_newest(env.reset(seed=int(s))[0]) for env, s in zip(self.envs, self.seeds, strict=True)])

    def send(self, actions: NDArray[np.int64]) -> None:
        self._actions = actions

    def recv(self) -> VectorStep:
        count = self.num_envs
        reset = self._over
        reward = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        frames: list[Frame] = []
        episodes: tuple[EpisodeEnd, ...] = ()
        for i, env in enumerate(self.envs):
            if reset[i]:
                obs, _ = env.reset()
            else:
                obs, reward[i], terminated[i], truncated[i], _ = env.step(int(self._actions[i]))
            frames.append(_newest(obs))
            episodes += env.get_wrapper_attr("pop_finished")()
        self._over = terminated | truncated
        return VectorStep(np.stack(frames), reward, terminated, truncated & ~terminated, reset, episodes)


def make_vector_env(
    game: str, protocol: config.Protocol, num_envs: int, seed: np.random.SeedSequence, threads: int, side: int = 84
) -> VectorEnv:
    """Return `num_envs` games of `game`: Atari's in the emulator's threads, `module:function` one after the other.

    Raises:
        UserError: there is no such game, or not memory enough for so many.
    """
    check_num_envs(num_envs)
    if games.is_custom(game):
        return SerialVector([make_env(game, protocol, "opencv", side) for _ in range(num_envs)], seed)
    return AtariVector(games.rom_of(game), protocol, num_envs, seed, threads, side)


def describe_games(env: VectorEnv, game: str, protocol: config.Protocol) -> str:
    """Return one line that says how the games are presented."""
    side = env.obs_shape[-1]
    how = f"in {env.threads} emulator threads" if env.threads else "one after the other"
    return describe(game, protocol, f"{env.num_envs} games at once {how}, {side}x{side} frames")


def distinct_seeds(seed: np.random.SeedSequence, count: int) -> NDArray[np.int64]:
    """Return `count` different seeds below 2^31; neighbouring roots share none (seed + rank would)."""
    return np.random.default_rng(seed).choice(2**31 - 1, size=count, replace=False).astype(np.int64)


def check_num_envs(num_envs: int, available_bytes: int | None = None) -> None:
    """Refuse, before the run, more games than the memory holds.

    Raises:
        UserError: with the number that would fit.
    """
    available = psutil.virtual_memory().available if available_bytes is None else available_bytes
    if num_envs * ENV_BYTES > available:
        raise UserError(
            f"{num_envs} games at once need about {num_envs * ENV_BYTES / 1e9:.1f} GB, but {available / 1e9:.1f} GB of "
            f"memory are available; --num-envs {available // ENV_BYTES} would fit."
        )


def _newest(obs: Any) -> Frame:
    """Return the newest frame (H, W) of a stack."""
    frames: tuple[Frame, ...] | None = getattr(obs, "frames", None)
    return np.asarray(obs)[-1] if frames is None else frames[-1][0]
