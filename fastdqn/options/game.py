"""The game: which one, how it is presented, and how many are played at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from fastdqn.options.fields import MOST_THREADS, at_least, beside, between

ProtocolName = Literal["nature", "machado", "atari-100k"]
PRESENTATIONS: Mapping[ProtocolName, Mapping[str, Any]] = {
    # Mnih et al. 2015, Methods and extended data table 1: 5 minutes a game, lives in training alone.
    "nature": {"noop_max": 30, "sticky_actions": 0.0, "episodic_life": True, "max_frames": 18_000},
    # Machado et al. 2018, with games as long as Dopamine's.
    "machado": {
        "noop_max": 0,
        "sticky_actions": 0.25,
        "full_action_set": True,
        "episodic_life": False,
        "fire_reset": False,
        "max_frames": 108_000,
    },
    # Kaiser et al. 2020 and van Hasselt et al. 2019, as Dopamine's code for Atari-100k has it; it presses no FIRE.
    "atari-100k": {
        "noop_max": 30,
        "sticky_actions": 0.0,
        "episodic_life": True,
        "fire_reset": False,
        "max_frames": 108_000,
    },
}
"""What of `GameOptions` a protocol settles, in training and in evaluation."""


@dataclass(frozen=True)
class GameOptions:
    """Which game, and how it is presented to the agent. The defaults are the 2017 post's."""

    name: Annotated[str, tyro.conf.arg(name="game")] = "pong"
    """A preset (pong, breakout-small, breakout, invaders), any Atari game by name (seaquest, Seaquest,
    SeaquestNoFrameskip-v4, ALE/Seaquest-v5), or module:function for an environment of your own. Actor-critics also take
    an id that Gymnasium knows, of an environment that shows vectors (CartPole-v1); soft actor-critic takes those whose
    actions are continuous, and nothing else (Pendulum-v1)."""
    protocol: ProtocolName | None = None
    """How the game is presented, by paper: the defaults of the options of the game (docs/protocols.md)."""
    frame_skip: int = 4
    """Frames for which one action is repeated; one env step (Mnih et al. 2015)."""
    noop_max: int = 30
    """A game starts with 1 to this many no-op frames, among many games at once with 0 to one less, as ale-py plays
    them; 0 turns them off (Mnih et al. 2015)."""
    frame_stack: int = 4
    """Frames that make up one observation."""
    episodic_life: bool = True
    """A lost life ends the learning episode; the score stays the whole game's."""
    clip_rewards: bool = True
    """Train on the sign of the reward; scores stay raw."""
    fire_reset: bool = True
    """Press FIRE after a reset, in games that have it."""
    sticky_actions: float = 0.0
    """Probability that the emulator repeats the previous action (Machado et al. 2018 use 0.25)."""
    full_action_set: bool = False
    """All 18 joystick actions instead of those that the game uses (Machado et al. 2018)."""
    max_frames: int | None = 108_000
    """Frames of the emulator after which one game is truncated (108,000 = 30 minutes of play); None for no limit. The
    run's limit is --max-env-steps."""
    crop: bool = False
    """Show the playing area alone, as DQN did in 2013 and the classic wrappers always do: of the screen squeezed to
    84x110, rows 18 to 101, or as much of a frame of another size."""

    @property
    def frame_limit(self) -> int:
        """`max_frames`, or a number that no game reaches."""
        return self.max_frames or 2**31 - 1

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        between(self.frame_skip, 1, 1_000, "--frame-skip")
        between(self.noop_max, 0, 10_000, "--noop-max")
        between(self.frame_stack, 1, 100, "--frame-stack")
        between(self.sticky_actions, 0.0, 1.0, "--sticky-actions")
        between(self.max_frames, 1, 2**31 - 1, "--max-frames")


OWN_GAME: Mapping[str, Any] = {
    "frame_skip": 1,
    "noop_max": 0,
    "episodic_life": False,
    "clip_rewards": False,
    "fire_reset": False,
    "max_frames": None,
}
"""How an environment of one's own is presented by default: as it is."""


@dataclass(frozen=True)
class VectorOptions:
    """Many games at once."""

    num_envs: int | None = None
    """Games N played at once; None: 4 for each core, at least 8 and at most 128."""
    env_threads: int | None = beside(None)
    """Threads that the emulators play in; None: one for each core, and no more than games."""
    frame_size: int = 84
    """Side of the square frames that the agent observes; 84 is Nature DQN's."""
    profile: bool = beside(False)
    """Print at the end where the loop's time went; on a GPU this waits for the device after each part."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.num_envs, 1, "--num-envs")
        between(self.env_threads, 1, MOST_THREADS, "--env-threads")
        between(self.frame_size, 36, 210, "--frame-size")


@dataclass(frozen=True)
class PlayerOptions:
    """A player in a process of its own."""

    player_device: Literal["same", "cpu", "all"] = beside("same")
    """Where a player evaluates the network: on the trainer's device with the very same weights, or on
    the CPU with a copy that the trainer refreshes, and waits for, after each update (for systems without
    CUDA IPC, and always with --device mps), or, where there are several players, on all CUDA devices in turn,
    with a copy on each but the trainer's."""
    player_timeout: float = beside(60.0)
    """Seconds without a message after which a living player counts as hung."""

    def check(self) -> None:
        """Raise UserError for a value out of range."""
        at_least(self.player_timeout, 1.0, "--player-timeout")
