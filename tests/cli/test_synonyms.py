"""What other trainers call our options: every answer names an option that exists."""

from __future__ import annotations

import functools

import pytest

from fastdqn.cli.help import groups_of
from fastdqn.cli.synonyms import OF_RANKS, SYNONYMS, answer
from fastdqn.errors import UserError
from tests.helpers.scripts import ROOT, loaded, parse


@functools.cache
def flags_of(script: str) -> frozenset[str]:
    groups = groups_of(loaded(script).options_type)
    return frozenset(option.flag for group in groups for option in group.options)


@functools.cache
def every_flag() -> frozenset[str]:
    return frozenset[str]().union(*(flags_of(path.stem) for path in (ROOT / "experiments").glob("[0-9]*.py")))


@pytest.mark.parametrize("other", SYNONYMS)
def test_every_answer_names_an_option_and_no_option_is_a_synonym(other: str) -> None:
    assert SYNONYMS[other].ours in every_flag()
    assert other not in every_flag()
    said = answer(other, every_flag())
    assert said is not None
    assert said.startswith(f"There is no option {other}; fastdqn calls it {SYNONYMS[other].ours}")
    assert said.endswith(".")


@pytest.mark.parametrize("flag", OF_RANKS)
def test_what_some_scripts_alone_have_is_said_of_all_of_them(flag: str) -> None:
    scripts = [path.stem for path in sorted((ROOT / "experiments").glob("[0-9]*.py"))]
    having = [script[:2] for script in scripts if flag in flags_of(script)]
    which = f"{', '.join(having[:-1])} and {having[-1]}"
    assert answer(flag, ()) == f"There is no option {flag} here; the scripts {which} have it."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lr", "1e-4"), "There is no option --lr; fastdqn calls it --learning-rate."),
        (("--lr=1e-4",), "There is no option --lr; fastdqn calls it --learning-rate."),
        (("--total_timesteps", "9"), "calls it --max-env-steps, which counts env steps (4 frames each)."),
        (("--env", "Pong-v5"), "calls it --game."),
        (
            ("--exploration-fraction", "0.1"),
            "calls it --epsilon-decay, the env steps in which epsilon falls by 1, not ",
        ),
        (("--target-network-frequency", "9"), "calls it --target-sync, which counts env steps, not updates."),
        (("--tau", "0.1"), "calls it --target-average, which this command does not have."),
        (("--learning-rat", "1e-4"), "Unrecognized options: --learning-rat, 1e-4; did you mean --learning-rate?"),
        (("--no-chekpoints",), "did you mean --no-checkpoints?"),
        (("--no-n-step",), "There is no option --no-n-step, only --n-step."),
        (("--moon", "3", "--seed", "1"), "Unrecognized options: --moon, 3; --help lists all options."),
        (("pong",), "Unrecognized options: pong; --help lists all options."),
    ],
)
def test_answers_on_the_command_line(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse("02_play_steps", *words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
