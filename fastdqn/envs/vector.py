"""Many games at once: ale_py's AtariVectorEnv behind a thin adapter.

It yields newest frames alone, not stacks: whoever learns keeps the frames anyway and puts stacks together itself
(frames before a game's first are zero, as in AtariVectorEnv). A game that is over is reset by the step after:
that row of the step is marked `reset`, its action is ignored, and it is no transition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import ale_py
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from fastdqn.cgroup import available_memory, what_fits
from fastdqn.envs.frames import shown_rows
from fastdqn.envs.rerun import LONGEST
from fastdqn.errors import RunError, UserError
from fastdqn.options.game import GameOptions
from fastdqn.seeds import game_seed
from fastdqn.states import NothingUnfinished, copied
from fastdqn.types import EpisodeEnd, Frame, VectorStep

ENV_BYTES = 1_500_000
"""Memory of one emulator with its buffers, generously."""
MOST_RESETS = 100_000
"""Games that have been played, all in all, after which running ones are not played again: as many resets come first,
and take minutes."""
SPARE_RESETS = 8
"""Resets that a game to be played again keeps for the moment in which it is its turn."""


class VectorEnv(Protocol):
    """N games that are played in step."""

    num_envs: int
    num_actions: int  # A, or how many numbers an action has where they are continuous
    numbered: bool  # whether an action is one of several, instead of a vector
    obs_shape: Any  # (C, H, W) of the stacks to make of the frames, or (D,)
    threads: int  # emulator threads; 0 if the games are played in the caller's

    @property
    def newest(self) -> NDArray[Any]:
        """What the games showed last, (N, H, W) uint8, or (N, D) float32 where vectors are shown."""
        ...

    def reset(self) -> NDArray[Any]:
        """Start all games; return their first frames, (N, H, W) uint8, or vectors, (N, D) float32."""
        ...

    def send(self, actions: NDArray[Any]) -> None:
        """Let every game play its action, (N,) int64, or where actions are continuous (N, A) float32 from -1 to 1;
        returns at once where games have threads of their own.
        """
        ...

    def recv(self) -> VectorStep:
        """Return what came of the actions sent."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the running games; between a `recv` and the next `send`."""
        ...

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running games again, and continue from there.

        Returns:
            the games (N,) that could not be played again; new ones are running there, whose first step is a `reset`.
        """
        ...

    def discard(self, envs: NDArray[np.bool_] | None) -> None: ...


class AtariVector(NothingUnfinished):
    """N games of one ROM in the emulator's own threads.

    Args:
        rom: the game, as ale_py spells it.
        game: how it is presented. Lives are told apart through `life_loss_info`: the emulator's
            `episodic_life` would reset the whole game at each lost life.
        num_envs: N.
        seed: every game gets a seed of its own that is drawn from this one.
        threads: emulator threads.
        side: of the square frames.

    Raises:
        ValueError: fewer than one game.
    """

    def __init__(
        self,
        rom: str,
        game: GameOptions,
        num_envs: int,
        seed: np.random.SeedSequence,
        threads: int,
        side: int = 84,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"at least one game can be played, not {num_envs}")
        height, self._rows = shown_rows(side, game.crop)
        emulator: Any = ale_py
        emulator.ALEInterface.setLoggerMode(emulator.LoggerMode.Error)
        self.env: Any = AtariVectorEnv(
            rom,
            num_envs,
            num_threads=min(threads, num_envs),
            max_num_frames_per_episode=game.frame_limit,
            repeat_action_probability=game.sticky_actions,
            full_action_space=game.full_action_set,
            img_height=height,
            img_width=side,
            stack_num=1,
            frameskip=game.frame_skip,
            noop_max=game.noop_max,
            use_fire_reset=game.fire_reset,
            life_loss_info=game.episodic_life,
            reward_clipping=False,
        )
        self.num_envs = num_envs
        self.threads = min(threads, num_envs)
        self.obs_shape = (game.frame_stack, side, side)
        self.num_actions = int(self.env.single_action_space.n)
        self.numbered = True
        self.seeds = distinct_seeds(seed, num_envs)
        self._clip = game.clip_rewards
        self._score = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)  # frames of the running game
        self._begin = np.zeros(num_envs, np.int64)  # frames that each emulator had played when its game began
        self._truncated = np.zeros(num_envs, bool)
        self._repeats = game.sticky_actions == 0.0
        self._sent: list[NDArray[np.uint8]] = []  # actions since the oldest running game began, if games repeat
        self._since = np.zeros(num_envs, np.int64)  # where in them each running game began
        self._resets = np.zeros(num_envs, np.int64)  # of each game since it was seeded
        self.newest: NDArray[Any] = np.zeros((num_envs, side, side), np.uint8)
        self._anew = np.zeros(num_envs, bool)  # games that have replaced others, which nobody has been told yet
        self._too_long = np.zeros(num_envs, bool)  # games of which not all actions are remembered
        self._playing = False  # actions are in flight

    def reset(self) -> Frame:
        if self._playing:  # else the next step would be theirs
            self.env.recv()
            self._playing = False
        frames, info = self.env.reset(seed=self.seeds)
        self._score[:] = 0.0
        self._truncated[:] = self._anew[:] = self._too_long[:] = False
        self._resets[:] = self._since[:] = 0
        self._sent.clear()
        self._note(info)
        self.newest = frames[:, 0, self._rows]
        return self.newest

    def _note(self, info: Mapping[str, Any]) -> None:
        """Take down where each game stands."""
        self._length = info["episode_frame_number"].astype(np.int64)
        self._begin = info["frame_number"] - self._length

    def send(self, actions: NDArray[np.int64]) -> None:
        """Raises ValueError for an action that is out of range: the emulator would wait for ever."""
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= self.num_actions:
            raise ValueError(f"actions must be {self.num_envs} numbers in 0..{self.num_actions - 1}, not {actions}")
        self.env.send(actions)
        self._playing = True
        if self._repeats:
            self._sent.append(actions.astype(np.uint8))
            if len(self._sent) > LONGEST:
                self._give_up()

    def recv(self) -> VectorStep:
        """Raises ValueError if no actions are in flight (it would wait for ever), RunError if an emulator fails."""
        if not self._playing:
            raise ValueError("no actions have been sent")
        self._playing = False
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
                EpisodeEnd(float(self._score[i]), int(self._length[i]), bool(self._truncated[i]), i) for i in over
            )
            self._score[reset] = 0.0
            self._resets[reset] += 1
            self._since[reset] = len(self._sent)
            self._too_long[reset] = False
            self._forget()
        self._score += reward
        self._begin, self._length, self._truncated = begin, length, truncated
        self.newest = frames[:, 0, self._rows]
        raw = reward.astype(np.float32)
        if self._anew.any():
            reset = reset | self._anew
            raw[self._anew] = 0.0
            self._anew = np.zeros(self.num_envs, bool)
        # Where a game is cut off, the emulator shows the maximum of the screens before the last one.
        return VectorStep(
            self.newest, np.sign(raw) if self._clip else raw, terminated, truncated & ~terminated, reset, episodes
        )

    def _give_up(self) -> None:
        """Forget what the longest games were sent: they begin anew when a run is resumed."""
        longest = len(self._sent) - self._since > LONGEST
        self._too_long |= longest
        self._since[longest] = len(self._sent)
        self._forget()

    def _forget(self) -> None:
        """Drop the actions that no running game needs, once there are many."""
        unneeded = int(self._since.min())
        if unneeded > len(self._sent) // 2:
            del self._sent[:unneeded]
            self._since -= unneeded

    def state(self) -> dict[str, Any]:
        """Return what each running game has been sent, and how often it had been reset before.

        The emulator's own state cannot be had. But games repeat: without sticky actions, chance decides about no-ops
        alone, one number at each reset, so that as many resets and then the same actions lead to the same place.
        """
        lengths = len(self._sent) - self._since
        actions = np.zeros((max(lengths.tolist()), self.num_envs), np.uint8)  # all running games end in the last row
        if len(actions):
            actions[:] = self._sent[-len(actions) :]
        return {
            "actions": copied(actions),
            "lengths": copied(lengths),
            "resets": copied(self._resets),
            "scores": copied(self._score),
            "truncated": copied(self._truncated),
            "frames": copied(self.newest),
            "anew": copied(self._anew | self._too_long),
        }

    def load(self, state: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Play the running games again; those that then show another frame, or have sticky actions, are new games, and
        so are all if the state is of another number of groups, or too many have been played. Return which are new,
        (N,).
        """
        if "groups" in state:
            self._anew[:] = True  # they have just been started
            return np.ones(self.num_envs, bool)
        actions: NDArray[np.uint8] = state["actions"].numpy()
        lengths: NDArray[np.int64] = state["lengths"].numpy()
        resets: NDArray[np.int64] = state["resets"].numpy()
        if self._repeats and int(resets.sum()) <= MOST_RESETS:
            frames = self._play_again(actions, lengths, resets)
            differs = (frames != state["frames"].numpy()).any(axis=(1, 2)) | state["anew"].numpy()
        else:
            later = np.array([game_seed(int(seed), int(resets.sum()) + 1) for seed in self.seeds])
            self.env.reset(seed=later)
            differs = np.ones(self.num_envs, bool)
        self._resets[:] = resets
        self._sent = list(actions)
        self._since[:] = len(actions) - lengths
        self._score[:] = state["scores"].numpy()
        self._truncated = state["truncated"].numpy().copy()
        frames, info = self._reset_some(differs)
        self._note(info)
        self.newest = frames
        self._anew = differs
        self._too_long[:] = False
        self._score[differs] = 0.0
        self._truncated[differs] = False
        self._since[differs] = len(self._sent)
        self._resets[differs] += 1
        return differs

    def _play_again(
        self, actions: NDArray[np.uint8], lengths: NDArray[np.int64], resets: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Play what was played; return the newest frames.

        All games must be where they were at the same time, but have begun at different times. Until it is its turn, a
        game is played with no-ops; it may end, and so be reset, by that, and so some resets are kept for later.
        """
        shown, info = self.env.reset(seed=self.seeds)
        frames: Frame = shown[:, 0, self._rows]
        begin = info["frame_number"] - info["episode_frame_number"]
        done = np.zeros(self.num_envs, np.int64)
        starts = len(actions) - lengths
        while (few := done < np.where(starts == 0, resets, resets - SPARE_RESETS)).any():
            frames, info = self._reset_some(few)
            done += few
        begin = info["frame_number"] - info["episode_frame_number"]
        for row in range(len(actions) + 1):
            late = starts == row
            late &= row > 0
            over = late & (done >= resets)  # too often already, or the right number but not just now
            for i in np.flatnonzero(over).tolist():
                only = np.arange(self.num_envs) == i
                self.env.reset(seed=self.seeds[only], options={"reset_mask": only})
                done[i] = 0
            while (few := late & (done < resets)).any():
                self._reset_some(few)
                done += few
            if late.any():
                frames, info = self._reset_some(np.zeros(self.num_envs, bool))
                begin = info["frame_number"] - info["episode_frame_number"]
            if row == len(actions):
                break
            sent = np.where(starts <= row, actions[row], 0).astype(np.int64)
            self.env.send(sent)
            shown, _, _, _, info = self.env.recv()
            frames = shown[:, 0, self._rows]
            now = info["frame_number"] - info["episode_frame_number"]
            done += now != begin
            begin = now
        return frames

    def _reset_some(self, games: NDArray[np.bool_]) -> tuple[Frame, Mapping[str, Any]]:
        """Reset these games, (N,), and return the newest frames of all, (N, H, W), and what the emulators say."""
        frames, info = self.env.reset(options={"reset_mask": games})
        return frames[:, 0, self._rows], info


def distinct_seeds(seed: np.random.SeedSequence, count: int) -> NDArray[np.int64]:
    """Return `count` different seeds below 2^31; neighbouring roots share none (seed + rank would)."""
    return np.random.default_rng(seed).choice(2**31 - 1, size=count, replace=False).astype(np.int64)


def check_num_envs(
    num_envs: int, available_bytes: int | None = None, option: str = "--num-envs", among: int = 1
) -> None:
    """Refuse, before the run, more games than the memory holds; they are played by `among` processes, for each of which
    the option counts.

    Raises:
        UserError: with the number that would fit.
    """
    available = available_memory() if available_bytes is None else available_bytes
    if num_envs * ENV_BYTES > available:
        raise UserError(
            f"{num_envs} games at once need about {num_envs * ENV_BYTES / 1e9:.1f} GB, but {available / 1e9:.1f} GB of "
            f"memory are available; {what_fits(option, available // (among * ENV_BYTES))}."
        )
