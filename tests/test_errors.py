"""Sentences for errors."""

from __future__ import annotations

from fastdqn.errors import listed


def test_of_many_words_the_first_are_named() -> None:
    assert listed([]) == ""
    assert listed(["a", 2]) == "a, 2"
    assert listed(list("abcdefg")) == "a, b, c, d, e, f, g"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f, 2 more"
    assert listed(range(1_000)) == "0, 1, 2, 3, 4, 5, 994 more"
