"""What --help says of options where a script plays vectors and continuous actions alone: there is no emulator then."""

from __future__ import annotations

from collections.abc import Mapping

SAID: Mapping[str, str | None] = {
    "name": "An id that Gymnasium knows, of an environment that shows vectors and whose actions are continuous "
    "(Pendulum-v1, or HalfCheetah-v5 with the extra mujoco).",
    "protocol": None,
    "frame_skip": None,
    "noop_max": None,
    "frame_stack": None,
    "crop": None,
    "episodic_life": None,
    "clip_rewards": None,
    "fire_reset": None,
    "sticky_actions": None,
    "full_action_set": None,
    "max_frames": "A game is truncated after this many env steps; None for no limit but its own.",
    "frame_size": None,
    "env_threads": None,
    "num_envs": "Games N at once, stepped in turn; None for 4 for each core, at least 8 and at most 128.",
    "max_env_steps": "Stop after this many env steps.",
    "fresh_games": "Games that the final weights play with the mean action once the run is solved, off the clock; 0 "
    "for none.",
    "published": "Take the settings of the published runs over ranks, which scale with --processes W. On Pendulum-v1: "
    "a learning rate of 1e-3 W, a replay of 32768 // W, batches of 2048, the first after 2048 // W env steps, 10,000 "
    "env steps a process.",
}
"""By field; None for those that do not apply. Where they are given all the same, most are refused."""
