"""What the scripts write into config.json: their options by group, and how the game is presented."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from fastdqn.options.fields import plain
from fastdqn.options.groups import options_from
from fastdqn.runs.folder import read_config, version
from tests.helpers.scripts import ROOT, SHORT, TOY_CATCH, loaded, parse, train

WRAPPERS = {
    "01_baseline": "classic",
    "02_play_steps": "classic",
    "03_parallel": "classic",
    "04_cuda_async": "classic",
    "05_opencv_wrappers": "opencv",
    "06_vector_env": "vector",
    "07_device_replay": "vector",
    "08_overlap": "vector",
    "09_cuda_graph": "vector",
    "10_rainbow": "vector",
    "11_pong_in_seconds": "vector",
    "12_atari_100k": "vector",
    "20_a2c": "vector",
    "21_a3c_data": "vector",
    "22_a3c_grad": "vector",
    "31_sac": "vector",
    "32_sac_hogwild": "vector",
    "33_trainer_thread": "vector",
    "41_ppo_ranks": "vector",
    "42_sac_ranks": "vector",
}


def words_of(calls: list[ast.Call], place: int) -> list[object]:
    """Return the argument of each call at `place`, where it is written out."""
    return [getattr(call.args[place], "value", None) for call in calls]


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_every_script_says_how_it_presents_the_game(path: Path) -> None:
    """Read off its source: what it tells the run is what it builds the game with."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = {name: [call for call in calls if ast.unparse(call.func) == name] for name in ("Run", "build.one_game")}
    named["build.player_elsewhere"] = [c for c in calls if ast.unparse(c.func) == "build.player_elsewhere"]
    expected = WRAPPERS[path.stem]
    ranked = words_of([call for call in calls if ast.unparse(call.func) == "run_of"], 4)
    assert words_of(named["Run"], 3) + ranked == [expected]
    built = words_of(named["build.one_game"], 3) + words_of(named["build.player_elsewhere"], 5)
    assert built == ([] if expected == "vector" else [expected])


@pytest.mark.parametrize("script", ["01_baseline", "06_vector_env"])
def test_config_json_is_by_group(tmp_path: Path, script: str) -> None:
    words = (*SHORT, "--game", TOY_CATCH, "--replay-size", "500", "--gamma", "0.97", "--seed", "4")
    words += ("--num-envs", "3", "--steps", "2") if script == "06_vector_env" else ()
    config = read_config(train(script, tmp_path, *words))
    kind = loaded(script).options_type
    groups = [field.name for field in dataclasses.fields(kind)]
    assert list(config) == ["format", "version", "script", "wrappers", *groups]
    said = (config["format"], config["version"], config["script"], config["wrappers"])
    assert said == (3, version(), script, WRAPPERS[script])
    assert all(isinstance(config[group], dict) for group in groups)
    assert (config["run"]["seed"], config["game"]["name"], config["dqn"]["gamma"]) == (4, TOY_CATCH, 0.97)
    if script == "06_vector_env":
        assert groups == ["run", "game", "dqn", "pace", "vector"]
        assert (config["vector"]["num_envs"], config["pace"]["steps"]) == (3, 2)
    else:
        assert groups == ["run", "game", "dqn"]
    options = parse(script, "--runs-dir", str(tmp_path), *words)
    assert {group: config[group] for group in groups} == plain(options)
    assert options_from(kind, config) == options
