"""Groups of options together: what a run's config.json says of them."""

from __future__ import annotations

import json

import pytest

from fastdqn.errors import UserError
from fastdqn.options.fields import plain
from fastdqn.options.groups import Groups, options_from
from tests.helpers.scripts import ROOT, loaded, parse
from tests.helpers.trained import TrainedRuns


def test_options_survive_config_json(runs: TrainedRuns) -> None:
    said = json.loads((runs["09"] / "config.json").read_text())
    kind = loaded("09_cuda_graph").options_type
    options = options_from(kind, said)
    assert isinstance(options, kind)
    assert (options.vector.num_envs, options.game.max_frames, options.dqn.batch_size) == (4, 240, 2)
    groups = options_from(Groups, said)
    assert (groups.vector, groups.game, groups.dqn, groups.agent) == (options.vector, options.game, options.dqn, None)
    for wanted in (kind, Groups):
        with pytest.raises(UserError, match="'moon'"):
            options_from(wanted, {**said, "dqn": {**said["dqn"], "moon": 3}})
        with pytest.raises(UserError, match="'dqn' is no group"):
            options_from(wanted, {**said, "dqn": 3})
    with pytest.raises(UserError, match="'dqn' is no group"):
        options_from(kind, {name: values for name, values in said.items() if name != "dqn"})


@pytest.mark.parametrize("script", sorted(path.stem for path in (ROOT / "experiments").glob("[0-9]*.py")))
def test_the_options_of_every_script_survive_config_json(script: str) -> None:
    options = parse(script, "--seed", "7", "--runs-dir", "elsewhere", "--batch-size", "9")
    assert options_from(loaded(script).options_type, json.loads(json.dumps(plain(options)))) == options


def test_options_that_are_no_more_are_read_where_they_were_off() -> None:
    said = json.loads(json.dumps(plain(parse("10_rainbow", "--variant", "double"))))
    kind = loaded("10_rainbow").options_type
    before = {name: values for name, values in said.items() if name != "variant"}
    before |= {"agent": {**said["agent"], "gradient_threads": 1}, "turns": {"game_groups": 1}}
    before |= {"series": {"variant": "double", "seeds": 1}}
    for wanted in (kind, Groups):
        assert options_from(wanted, before) == options_from(wanted, said)
        with pytest.raises(UserError, match="'gradient_threads'"):
            options_from(wanted, {**before, "agent": {**said["agent"], "gradient_threads": 2}})
    with pytest.raises(UserError, match="'game_groups'"):
        options_from(kind, {**before, "turns": {"game_groups": 2}})
    assert options_from(Groups, {**before, "turns": {"game_groups": 2}}) == options_from(Groups, said)
