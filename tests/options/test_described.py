"""What a run says at its start."""

from __future__ import annotations

from typing import Any

from fastdqn.options.described import describe_end, describe_learning, describe_parts
from fastdqn.options.groups import groups_of
from fastdqn.options.run import RunOptions
from tests.helpers.scripts import parse


def said(script: str, words: str) -> tuple[str, ...]:
    """Return all lines, for a script that has parts with that of the parts."""
    options: Any = groups_of(parse(script, *words.split()))
    lines = describe_learning(options.dqn, options.pace, options.update, options.agent, options.parts)
    parts = () if options.parts is None else (describe_parts(options.dqn, options.agent, options.parts),)
    return (*lines, *parts, describe_end(options.run))


def test_a_run_says_what_it_learns_from() -> None:
    assert said("10_rainbow", "--agent rainbow --game seaquest") == (
        "learns by agent rainbow: Adam 6.25e-05, 8 samples for each env step (batch 32 every 4), 3 steps, gamma 0.99, "
        "target copied every 8,000 env steps, no epsilon",
        "parts: nature network, double, dueling, factorised noise, prioritized (alpha 0.5, beta from 0.4 to 1 over "
        "50,000,000 env steps), 51 atoms from -10 to 10",
        "stops after 50,000,000 env steps",
    )
    assert said("01_baseline", "--agent nature") == (
        "learns by agent nature: RMSProp 0.00025, clipped errors, 8 samples for each env step, 1 step, gamma 0.99, "
        "target copied every 40,000 env steps, epsilon 1 to 0.1",
        "differs from nature: updates on 8 transitions after each env step; those on 32 every 4 are 02's",
        "stops after 50,000,000 env steps",
    )
    assert said("11_pong_in_seconds", "--device cpu --max-minutes 9 --target-average 0.005") == (
        "learns by agent pong-fast: Adam 0.0005 moving to 0.0001, 4 samples for each env step (batch 64 every 16), 5 "
        "steps, gamma 0.98, target moved by 0.005 of the way at each update, epsilon 1 to 0.02",
        "parts: nature network, prioritized (alpha 0.6, beta from 0.4 to 1 over 100,000 env steps)",
        "stops when the mean of 100 games is above 18, or after 3,000,000 env steps, or after 9 minutes",
    )
    assert "prioritized (alpha 0.5, beta 0.5)" in said("10_rainbow", "--agent dopamine-rainbow")[1]
    assert "clipped" not in said("10_rainbow", "--agent nature --distributional")[0]


def test_a_run_without_limits_says_so() -> None:
    assert describe_end(RunOptions(stop_score=None, max_env_steps=None)) == "stops at Ctrl-C alone"
