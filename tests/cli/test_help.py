"""--help: groups, the common options first, wrapped to the terminal."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from fastdqn.cli import main
from fastdqn.cli.help import COMMON, groups_of, help_of
from fastdqn.cli.scripts import _defaults, parse
from fastdqn.errors import UserError
from fastdqn.options.agents import AGENTS
from tests.helpers.scripts import ROOT, loaded

SCRIPTS = sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py"))
COMMANDS = (main.Evaluate, main.Watch, main.Plot, main.Compare, main.Games)


def printed(script: str, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a script prints on --help."""
    found = loaded(script)
    with pytest.raises(SystemExit) as end:
        parse(found.options_type, "01 one: two.", (*words, "--help"), script=script, **found.defaults)
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 120, 300])
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_line_fits(
    script: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", [f"experiments/{script}.py"])
    text = printed(script, capsys)
    assert max(map(len, text.splitlines())) <= min(columns, 110)
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    for noise in ("%", "{None}", "None)", "False)", "True)", "\xa0", "──"):
        assert noise not in text


@pytest.mark.parametrize("script", [*SCRIPTS, "33_trainer_thread --algorithm ppo"])
def test_what_an_option_says_names_no_option_that_the_script_lacks(script: str) -> None:
    name, _, ppo = script.partition(" ")
    found = loaded(name)
    kind = found.defaults["others"]["ppo"][0] if ppo else found.options_type
    options = [option for group in groups_of(kind) for option in group.options]
    named = {flag.replace("--no-", "--") for one in options for flag in re.findall(r"--[a-z][a-z-]*[a-z]", one.about)}
    assert named <= {option.flag for option in options}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        *(("12_atari_100k", ("--agent", agent)) for agent in AGENTS),
        ("11_pong_in_seconds", ()),
        ("32_sac_hogwild", ("--game", "Humanoid-v5")),
        ("31_sac", ("--game", "MountainCarContinuous-v0")),
        ("41_ppo_ranks", ()),
    ],
)
def test_no_option_names_two_defaults(script: str, words: tuple[str, ...]) -> None:
    found = loaded(script)
    values = _defaults(found.options_type, words, found.defaults.get("game", "pong"), found.defaults.get("device"))
    said = [option.about for group in groups_of(found.options_type, values) for option in group.options]
    assert not [about for about in said if "by default" in about.lower() and "(default:" in about]


@pytest.mark.parametrize("script", ["09_cuda_graph", "41_ppo_ranks", "42_sac_ranks"])
def test_what_each_process_has_of_its_own_is_said(script: str) -> None:
    said = {one.flag: one.about for group in groups_of(loaded(script).options_type) for one in group.options}
    assert "are those of each process; env steps are counted over all." in said["--processes"]
    assert "The run's limit is --max-env-steps." in said["--max-frames"]


def test_what_a_script_refuses_for_good_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--published" in printed("41_ppo_ranks", capsys)
    assert "--published" not in printed("09_cuda_graph", capsys)


def test_the_common_options_come_first_and_each_option_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed("10_rainbow", capsys)
    places = [text.index(f"\n  {flag}") for flag in COMMON]
    assert places == sorted(places)
    assert places[-1] < text.index("\nThe run: where, for how long, and what it leaves behind\n")
    assert text.index("\nDeep Q-learning\n") < text.index("\n  --replay-size INT ")
    flags = [option.flag for group in groups_of(loaded("10_rainbow").options_type) for option in group.options]
    assert len(flags) == len(set(flags))
    fields = dataclasses.fields(loaded("10_rainbow").options_type)
    assert len(flags) == sum(len(dataclasses.fields(getattr(parse_nothing(), field.name))) for field in fields)
    for script in SCRIPTS:
        known = {option.flag for group in groups_of(loaded(script).options_type) for option in group.options}
        assert {"--game", "--seed"} <= known
    eleven = groups_of(loaded("11_pong_in_seconds").options_type)
    assert "--freeze-share" in {option.flag for group in eleven for option in group.options}


def parse_nothing() -> object:
    """Return 10's options without a word."""
    return parse(loaded("10_rainbow").options_type, "", [])


def test_defaults_are_the_games(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    pong = printed("10_rainbow", capsys)
    breakout = printed("10_rainbow", capsys, "--game", "breakout", "--variant", "rainbow")
    assert "Transitions that the replay holds. (default: 100000)" in pong
    assert "Transitions that the replay holds. (default: 1000000)" in breakout
    assert "\n  --double " in pong
    assert "\n  --[no-]double " in breakout
    assert "One of dqn, n-step, double, " in " ".join(pong.split())  # too long for the left column
    assert "\n  --precision {auto,fp32,bf16}" in pong


@pytest.mark.parametrize("script", ["01_baseline", "06_vector_env", "09_cuda_graph", "10_rainbow", "12_atari_100k"])
def test_the_agents_that_it_names_are_those_that_the_script_has(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    said = printed(script, capsys).split("\n  --agent ")[1].split("\n  --")[0]
    for agent in AGENTS:
        named = re.search(rf"[{{,\s]{agent}[}},.]", said) is not None
        if named:
            parse(loaded(script).options_type, "", ["--agent", agent], script=script)
        else:
            with pytest.raises(UserError, match="lacks what the agent"):
                parse(loaded(script).options_type, "", ["--agent", agent], script=script)


OF_PICTURES = ("--protocol", "--frame-skip", "--fire-reset", "--sticky-actions", "--frame-size", "--env-threads")


@pytest.mark.parametrize("script", ["31_sac", "32_sac_hogwild", "33_trainer_thread", "42_sac_ranks"])
def test_where_vectors_are_shown_nothing_is_said_of_ataris_games(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = printed(script, capsys)
    for word in ("Atari", "emulator", "Nature", "epsilon 0.02", "4 frames", *OF_PICTURES):
        assert word not in text
    assert "\n  --game STR " in text
    assert "of an environment that shows vectors and whose actions are continuous" in " ".join(text.split())
    assert "Stop after this many env steps. (default: 50000)" in text


@pytest.mark.parametrize(("script", "words"), [("33_trainer_thread", ("--algorithm", "ppo")), ("41_ppo_ranks", ())])
def test_where_pictures_may_be_shown_they_are_spoken_of(
    script: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    text = printed(script, capsys, *words)
    for word in OF_PICTURES:
        assert f"\n  {word}" in text.replace("--[no-]", "--")


@dataclasses.dataclass(frozen=True)
class Mine:
    """Options of a script of one's own. They have all kinds of types."""

    place: Annotated[Path, tyro.conf.Positional]
    """Where,
    over two lines, with 50% and a [bracket]."""
    hidden: tyro.conf.Suppress[int] = 1
    way: Literal["left", "right"] | None = "left"
    share: float | None = None


def test_a_dataclass_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(Mine, None, "About.\n\n    an example, as it stands\n", "mine")
    assert text.startswith("usage: mine PLACE [OPTIONS]\n\nAbout.\n\n    an example, as it stands\n")
    assert "  PLACE                    Where, over two lines, with 50% and a [bracket].\n" in text
    assert "  --way {left,right}|None  (default: left)\n" in text
    assert "\n  --share FLOAT\n" in text
    assert "hidden" not in text


def test_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(main.Evaluate | main.Games, None, "About.", "fastdqn")
    assert "\n  evaluate  Play whole games with trained networks under a named protocol, and\n" in text
    for command in COMMANDS:
        assert max(map(len, help_of(command, None, "", "fastdqn").splitlines())) <= 80
