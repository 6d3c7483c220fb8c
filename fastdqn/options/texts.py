"""What --help says of options in other words than their own: where a script plays vectors and continuous actions alone,
so that there is no emulator, and where it lacks an option that these name.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastdqn.options.groups import Groups

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
    "max_frames": "Env steps after which one game is truncated; None for no limit but its own. The run's limit is "
    "--max-env-steps.",
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
_NO_REPLAY = {"checkpoint_replay": "Changes nothing here: there is no replay that checkpoints could keep."}
_NO_PACE = {"batch_size": "Transitions drawn from the replay for the update that follows each env step."}
_NO_PARTS = {
    "loss": "The squared TD error, or half of it with its derivative clipped to -1..1 (Mnih et al. 2015; the Huber "
    "loss)."
}
_NO_LAMBDA_RETURNS = {
    "target_average": "Move the target network by this share towards the online one at each update, instead of copying "
    "it every --target-sync env steps (Lillicrap et al. 2016; Schwarzer et al. 2023 take 0.005).",
    "prioritized": "Draw transitions in proportion to their TD error, or to what --priority-measure says with "
    "--distributional (Schaul et al. 2016).",
    "distributional": "Learn the distribution of returns instead of their mean (C51, Bellemare et al. 2017).",
    "atoms": "Atoms of the distribution (Bellemare et al. 2017).",
}


def said_of(groups: Groups) -> Mapping[str, str | None]:
    """Return, by field, what --help says instead of a field's own words in a script with these groups."""
    found: dict[str, str | None] = {}
    if groups.continuous:
        found |= SAID
    elif groups.dqn is not None:
        found["published"] = None
    if groups.dqn is None and groups.sac is None:
        found |= _NO_REPLAY
    if groups.dqn is not None:
        found |= {**({} if groups.pace else _NO_PACE), **({} if groups.parts else _NO_PARTS)}
        found |= _NO_LAMBDA_RETURNS if groups.parts and not groups.returns else {}
    return found
