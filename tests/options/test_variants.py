"""Variants: what their names imply, what beats them, and values that are refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from fastdqn.errors import UserError
from fastdqn.options.parts import VARIANTS
from tests.helpers.scripts import parse


def parsed(words: str) -> Any:
    return parse("10_rainbow", *words.split())


def test_a_variant_turns_its_parts_on_and_options_beat_it() -> None:
    def on(words: str) -> set[str]:
        options = parsed(words)
        found = {n for n in ("dueling", "noisy", "prioritized", "distributional") if getattr(options.parts, n)}
        found |= {"double"} if options.dqn.double else set()
        return found | ({f"n{options.dqn.n_step}"} if options.dqn.n_step > 1 else set())

    assert on("") == on("--variant dqn") == set()
    for variant in VARIANTS[2:-1]:
        assert on(f"--variant {variant}") == on(f"--{variant}") == {variant}
    assert on("--variant n-step") == {"n2"}
    everything = {"dueling", "noisy", "prioritized", "distributional", "double", "n2"}
    assert on("--variant rainbow") == on("--variant=rainbow --game breakout --agent nature") == everything
    assert on("--variant rainbow --game breakout") == on("--agent rainbow") == (everything - {"n2"}) | {"n3"}
    assert on("--agent rainbow --variant n-step") == {"n3"}
    assert on("--agent rainbow --variant dqn") == set()
    assert on("--agent rainbow --no-noisy --no-double") == {"dueling", "prioritized", "distributional", "n3"}
    assert on("--agent dopamine-rainbow") == {"prioritized", "distributional", "n3"}
    assert on("--variant rainbow --no-noisy --n-step 3") == (everything - {"noisy", "n2"}) | {"n3"}
    assert on("--double --dueling --n-step 3") == {"double", "dueling", "n3"}
    assert on("--variant rainbow --dueling") == on("--variant rainbow")
    assert on("--agent pong-fast --variant rainbow") == (everything - {"n2"}) | {"n5"}
    rainbow = parsed("--variant rainbow").parts
    assert (rainbow.priority_exponent, rainbow.importance_exponent, rainbow.importance_decay) == (0.6, 0.4, 100_000)
    assert (rainbow.atoms, rainbow.value_min, rainbow.value_max) == (51, -10.0, 10.0)
    assert (rainbow.noise, rainbow.noisy_sigma) == ("factorised", None)


def test_noisy_layers_do_without_epsilon() -> None:
    def epsilons(words: str) -> tuple[float, float]:
        dqn = parsed(words).dqn
        return dqn.epsilon_start, dqn.epsilon_final

    for variant in VARIANTS:
        assert (epsilons(f"--variant {variant}") == (0.0, 0.0)) == (variant in ("noisy", "rainbow"))
    assert epsilons("--noisy") == (0.0, 0.0)
    assert epsilons("--variant rainbow --no-noisy") == (1.0, 0.02)  # something has to explore
    assert epsilons("--agent rainbow --no-noisy") == (1.0, 0.01)
    assert epsilons("--noisy --epsilon-start 0.1 --epsilon-final 0.1") == (0.1, 0.1)


@pytest.mark.parametrize(
    "words",
    [
        "--variant moon",
        "--noisy-sigma -1",
        "--priority-exponent 1.5",
        "--priority-exponent nan",
        "--importance-exponent -0.1",
        "--importance-final 1.1",
        "--agent rainbow --max-env-steps None",
        "--agent moon",
        "--importance-decay 0",
        "--priority-floor 0",
        "--atoms 1",
        "--value-min 3 --value-max 3",
        "--report-env-steps 0",
        "--held-out 0",
        "--adam-epsilon 0",
        "--frame-size 30",
        "--network small",
        "--atoms 5000",
        "--value-max inf",
        "--frame-scale inf",
        "--held-out 10000000",
        "--frame-size 300",
    ],
)
def test_bad_values_are_one_sentence(words: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(words)
    assert "\n" not in str(caught.value)
