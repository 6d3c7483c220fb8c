"""Options of many games at once."""

from __future__ import annotations

import pytest

from fastdqn.errors import UserError
from fastdqn.options.game import VectorOptions
from fastdqn.options.groups import Groups, check


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (VectorOptions(num_envs=0), "--num-envs must be at least 1"),
        (VectorOptions(env_threads=0), "--env-threads must be at least 1"),
    ],
)
def test_impossible_options_are_one_sentence(options: VectorOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(Groups(vector=options))
