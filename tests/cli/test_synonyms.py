"""What other trainers call our options: every answer names an option that exists."""

from __future__ import annotations

import functools
import re

import pytest

from fastdqn.cli.help import groups_of
from fastdqn.cli.main import main
from fastdqn.cli.synonyms import ELSEWHERE, SYNONYMS, answer
from fastdqn.errors import UserError
from tests.helpers.scripts import ROOT, loaded, parse


@functools.cache
def flags_of(script: str) -> frozenset[str]:
    groups = groups_of(loaded(script).options_type)
    return frozenset(option.flag for group in groups for option in group.options)


@functools.cache
def every_flag() -> frozenset[str]:
    return frozenset[str]().union(*map(flags_of, scripts()))


def scripts() -> list[str]:
    return [path.stem for path in sorted((ROOT / "experiments").glob("[0-9]*.py"))]


@pytest.mark.parametrize("other", SYNONYMS)
def test_every_answer_names_an_option_and_no_option_is_a_synonym(other: str) -> None:
    assert other not in every_flag() or other in ELSEWHERE
    for synonym in SYNONYMS[other]:
        having = [flags for flags in map(flags_of, scripts()) if {synonym.ours, synonym.beside} - {""} <= flags]
        assert having, synonym.ours
        found = [said for said in (answer(other, flags) for flags in having) if said is not None]
        start = f"There is no option {other}{' here; this script has' if other in ELSEWHERE else '; fastdqn calls it'} "
        assert all(said.startswith(start) and said.endswith(".") and "does not have" not in said for said in found)
        assert any(said.startswith(f"{start}{synonym.ours}") for said in found)  # nobody else is in its way everywhere


@pytest.mark.parametrize(
    ("script", "flag", "said"),
    [
        ("41_ppo_ranks", "--num-steps", "calls it --rollout-steps, which counts the steps of each game."),
        ("09_cuda_graph", "--num-steps", "calls it --max-env-steps, which counts env steps"),
        ("21_a3c_data", "--num-steps", "calls it --n-step, which counts the steps of each game."),
        ("31_sac", "--max-episode-steps", "calls it --max-frames, which counts env steps."),
        ("09_cuda_graph", "--total-frames", "calls it --max-env-steps, which counts env steps, of --frame-skip frames"),
        ("41_ppo_ranks", "--minibatch-size", "calls it --batch-size."),
        ("09_cuda_graph", "--minibatch-size", "calls it --batch-size, for each env step: --steps multiplies it."),
        ("41_ppo_ranks", "--n-steps", "calls it --rollout-steps"),
        ("20_a2c", "--n-steps", "calls it --n-step."),
        ("31_sac", "--train-freq", "calls it --steps-per-update, the env steps for each update."),
        ("31_sac", "--ent-coef", "calls it --temperature"),
        ("41_ppo_ranks", "--ent-coef", "calls it --entropy-weight."),
        ("01_baseline", "--ent-coef", "calls it --temperature or --entropy-weight, which this command does not have."),
        ("41_ppo_ranks", "--n-epochs", "calls it --epochs."),
        ("41_ppo_ranks", "--update-epochs", "calls it --epochs."),
        ("41_ppo_ranks", "--gae-lambda", "calls it --trace-decay."),
        ("41_ppo_ranks", "--clip-coef", "calls it --clip."),
        ("41_ppo_ranks", "--clip-range", "calls it --clip."),
        ("41_ppo_ranks", "--num-minibatches", "calls it --batch-size, a size, not a number of them."),
        ("41_ppo_ranks", "--anneal-lr", "calls it --learning-rate-decay, the env steps over which it falls to 0."),
        ("09_cuda_graph", "--anneal-lr", "the env steps over which it moves to --final-learning-rate."),
        ("31_sac", "--gradient-steps", "calls it --steps-per-update, its inverse: the env steps for each update."),
        ("12_atari_100k", "--replay-ratio", "calls it --batch-size, the samples for each env step."),
        ("31_sac", "--q-lr", "calls it --learning-rate, the same for actor, critics and temperature."),
        ("31_sac", "--autotune", "calls it --temperature, a weight that stays, or None to learn it."),
        ("12_atari_100k", "--env-steps", "calls it --max-env-steps."),
        ("01_baseline", "--frames", "calls it --max-env-steps, which counts env steps, of --frame-skip frames each."),
        ("31_sac", "--steps", "no option --steps here; this script has --steps-per-update, the env steps for each"),
        ("01_baseline", "--steps", "no option --steps here; the scripts 02 to 12 have it."),
        (
            "10_rainbow",
            "--trace-decay",
            "the scripts 11, 12 and 41 have it, and 33 with --algorithm ppo; of PPO it is GAE's lambda.",
        ),
        ("33_trainer_thread", "--algo", "calls it --algorithm."),
        ("09_cuda_graph", "--algo", "calls it --agent."),
        ("41_ppo_ranks", "--num-processes", "calls it --processes."),
        ("21_a3c_data", "--num-workers", "calls it --players."),
        ("32_sac_hogwild", "--num-workers", "calls it --sessions."),
        ("09_cuda_graph", "--num-workers", "calls it --num-envs."),
        ("41_ppo_ranks", "--address", "calls it --engine-address."),
        ("11_pong_in_seconds", "--gamma-final", "calls it --final-gamma."),
        ("01_baseline", "--log-interval", "calls it --log-seconds, seconds between two lines of progress on the"),
        ("01_baseline", "--target-update-interval", "calls it --target-sync, which counts env steps."),
        ("01_baseline", "--target-update-freq", "calls it --target-sync, which counts env steps, not updates."),
    ],
)
def test_an_answer_is_of_the_script_that_was_asked(script: str, flag: str, said: str) -> None:
    assert said in (answer(flag, flags_of(script)) or "")


@pytest.mark.parametrize("flag", ELSEWHERE)
def test_what_some_scripts_alone_have_is_said_of_all_of_them(flag: str) -> None:
    having = [script[:2] for script in scripts() if flag in flags_of(script)]
    sentence, _, also = (
        named(flag).removesuffix("; of PPO it is GAE's lambda.").removesuffix(".").partition(" it, and ")
    )
    said = re.fullmatch(rf"There is no option {flag} here; (?:the scripts|script) (.+) ha(?:ve|s)(?: it)?", sentence)
    assert said is not None
    assert also == ("33 with --algorithm ppo" if flag in flags_of_ppo() - flags_of("33_trainer_thread") else "")
    numbers = [script[:2] for script in scripts()]
    which: list[str] = []
    for part in re.split(r", | and ", said[1]):
        first, _, last = part.partition(" to ")
        which += [number for number in numbers if first <= number <= (last or first)]
    assert which == having


def flags_of_ppo() -> frozenset[str]:
    """Return what 33 has with --algorithm ppo."""
    kind, _ = loaded("33_trainer_thread").defaults["others"]["ppo"]
    return frozenset(option.flag for group in groups_of(kind) for option in group.options)


def test_of_what_a_script_lacks_others_that_have_it_are_named() -> None:
    some = {flag for flag in every_flag() if not all(flag in flags_of(script) for script in scripts())}
    assert some - ELSEWHERE.keys() == {"--agent"}  # which a sweep calls --agents


@pytest.mark.parametrize("flag", ["--seeds", "--num-seeds"])
def test_several_seeds_are_a_sweep(flag: str) -> None:
    assert named(flag) == f"There is no option {flag} here; fastdqn sweep runs any script with several seeds."
    assert answer("--n-seeds", ("--seeds",)) == "There is no option --n-seeds here; fastdqn calls it --seeds."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "demo", "--gpu"), "no option --gpu; fastdqn calls it --device, as in --device cuda."),
        (("evaluate", "demo", "--cuda"), "no option --cuda; fastdqn calls it --device, as in --device cuda."),
        (("evaluate", "demo", "--num-games", "5"), "no option --num-games; fastdqn calls it --games."),
        (("sweep", "41", "--into", "x", "--engine-address", "auto"), "fastdqn calls it --address. Options of the scr"),
        (("sweep", "32", "--into", "x", "--sessions", "4"), "script 32 has it. Options of the script follow --."),
        (("sweep", "12"), "fastdqn sweep needs --into; --help"),
        (("sweep", "--into", "x"), "fastdqn sweep needs SCRIPT; --help"),
        (("sweep",), "fastdqn sweep needs SCRIPT and --into; --help"),
    ],
)
def test_commands_have_names_of_their_own(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fastdqn", *words])
    assert main() == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "flags", "said"),
    [
        ("--where", ("--profile",), "; fastdqn calls it --profile."),
        ("--hold-share", ("--freeze-share",), "; fastdqn calls it --freeze-share."),
        ("--hold-slack", ("--freeze-slack",), "; fastdqn calls it --freeze-slack."),
        ("--gradient-threads", ("--env-threads",), " any more; it gained nothing."),
        ("--no-end-at-reward", ("--env-threads",), " any more; it gained nothing."),
        ("--no-small", ("--network",), " any more; it gained nothing."),
    ],
)
def test_options_of_an_older_version_are_answered(flag: str, flags: tuple[str, ...], said: str) -> None:
    assert answer(flag, flags) == f"There is no option {flag}{said}"


def named(flag: str) -> str:
    """Return the answer where no option is known."""
    return answer(flag, ()) or ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--lr", "1e-4"), "There is no option --lr; fastdqn calls it --learning-rate."),
        (("--lr=1e-4",), "There is no option --lr; fastdqn calls it --learning-rate."),
        (
            ("--total_timesteps", "9"),
            "calls it --max-env-steps, which counts env steps, of 4 frames each in Atari's games.",
        ),
        (("--env", "Pong-v5"), "calls it --game."),
        (
            ("--exploration-fraction", "0.1"),
            "calls it --epsilon-decay, the env steps in which epsilon falls by 1, not ",
        ),
        (("--target-network-frequency", "9"), "calls it --target-sync, which counts env steps."),
        (("--no-game", "pong"), "There is no option --no-game, only --game."),
        (("--no-max-env-step",), "did you mean --max-env-steps?"),
        (("--no-doubl",), "There is no option --no-doubl; did you mean --no-double?"),
        (("--tau", "0.1"), "calls it --target-average, which this command does not have."),
        (("--learning-rat", "1e-4"), "There is no option --learning-rat; did you mean --learning-rate?"),
        (("--no-chekpoints",), "did you mean --no-checkpoints?"),
        (("--no-n-step",), "There is no option --no-n-step, only --n-step."),
        (("--moon", "3", "--seed", "1"), "There is no option --moon; --help lists all options."),
        (("pong",), "Nothing takes pong here; did you mean --game pong?"),
        (("SpaceInvaders",), "did you mean --game SpaceInvaders?"),
        (("seed", "1"), "Nothing takes seed, 1 here; did you mean --seed?"),
        (("False",), "Nothing takes False here; --help lists all options."),
        (("3",), "Nothing takes 3 here; --help lists all options."),
        (("--seed", "1", "", "pong"), "Nothing takes , pong here; --help lists all options."),
    ],
)
def test_answers_on_the_command_line(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse("02_play_steps", *words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--algorithm", "ppo", "--temperature", "0.1"), "no option --temperature here; another --algorithm has it."),
        (("--clip", "0.1"), "There is no option --clip here; --algorithm ppo has it."),
        (("--algorithm=ppo", "--no-gamma"), "There is no option --no-gamma, only --gamma."),
        (("--dueling",), "There is no option --dueling here; the scripts 10 to 12 have it."),
    ],
)
def test_answers_of_a_script_with_two_algorithms(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse("33_trainer_thread", *words)
    assert said in str(caught.value)


def test_the_page_of_names_says_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8").partition("names elsewhere")[2]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ((?:[^|]*`--[a-z-]+`)+) \|", page, re.M)
    assert len(rows) >= 15
    for other, cell in rows:
        ours = set(re.findall(r"--[a-z-]+", cell))
        if other != "batch-size":  # the same name here
            assert ours <= {synonym.ours for synonym in SYNONYMS[f"--{other}"]}, other
