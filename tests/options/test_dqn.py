"""Options of deep Q-learning."""

from __future__ import annotations

import pytest

from fastdqn.errors import UserError
from fastdqn.options.dqn import UpdateOptions
from fastdqn.options.groups import Groups, check


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (UpdateOptions(frame_scale=0.0), "--frame-scale must be between 1e-06 and 1e\\+06"),
        (UpdateOptions(crowded_threads=0), "--crowded-threads must be between 1 and 1024"),
        (UpdateOptions(final_learning_rate=0.0), "--final-learning-rate must be more than 0"),
        (UpdateOptions(learning_rate_decay=0), "--learning-rate-decay must be at least 1"),
        (
            UpdateOptions(learning_rate_decay=40_000, learning_rate_restart=39_999),
            "--learning-rate-restart must be at least --learning-rate-decay, here 40,000, or None, not 39,999.",
        ),
    ],
)
def test_impossible_options_are_one_sentence(options: UpdateOptions, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check(Groups(update=options))
