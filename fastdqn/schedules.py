"""Schedules: pure functions of env steps, so that they mean the same in every script and after a resume."""

from __future__ import annotations


def linear_epsilon(env_step: int, start: float, final: float, decay_env_steps: int, delay_env_steps: int = 0) -> float:
    """Return epsilon at `env_step`: `max(final, start - env_step / decay_env_steps)`, counted after the delay.

    The rule of the 2017 post: from 1.0 it falls by 1/`decay_env_steps` each env step until it meets `final`.
    `decay_env_steps` = 0 means `final` at once, after the delay.
    """
    if decay_env_steps <= 0:
        return start if env_step < delay_env_steps else final
    return max(final, start - max(0, env_step - delay_env_steps) / decay_env_steps)


def linear(env_step: int, start: float, final: float, over_env_steps: int) -> float:
    """Return the value at `env_step` of a straight line from `start` to `final`, met at `over_env_steps` and kept; over
    0 env steps it is `final` at once.
    """
    share = min(1.0, env_step / over_env_steps) if over_env_steps > 0 else 1.0
    return start + share * (final - start)


def geometric(step: int, start: float, final: float, over: int) -> float:
    """Return the value at `step` of one that each step multiplies by the same factor from `start` to `final`,
    which is met at `over` and kept. Where one of the two, or `over`, is 0 it is `final` at once.
    """
    if start == final or min(start, final) <= 0.0 or over <= 0:
        return final
    return start * (final / start) ** min(1.0, step / over)


def target_sync_due(env_step: int, every: int, steps: int = 1) -> bool:
    """Tell whether one of the last `steps` env steps, `env_step` the newest, was a multiple of `every`.

    With `steps` = 1 this is `env_step % every == 0`; with N steps played at once, `env_step % every < N`.
    """
    return env_step % every < steps


def updates_due(since: int, until: int, every: int, initial: int) -> range:
    """Return the env steps in (since, until] at which an update is due: the multiples of `every` from `initial` on.

    However many env steps are played at once, each update keeps its own env step, and with it the ratio of updates to
    env steps and the period of the target network stay exactly those of one env step at a time.
    """
    first = max(since + 1, initial)
    return range(-(-first // every) * every, until + 1, every)
