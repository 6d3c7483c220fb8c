"""Options that list several words, separated by commas."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TypeVar

from fastdqn.errors import UserError

_T = TypeVar("_T")


def names(said: str, option: str, known: Collection[str], what: str) -> list[str]:
    """Return the names that an option lists, each one of those that are `known`.

    Raises:
        UserError: there is no such one, or one twice; `what` says what they are names of.
    """
    words = _words(said)
    if unknown := [word for word in words if word not in known]:
        raise UserError(f"{option} {unknown[0]}: there is no such {what}; there are {', '.join(known)}.")
    return _once(words, option)


def whole_numbers(said: str, option: str) -> list[int]:
    """Return the whole numbers above 0 that an option lists.

    Raises:
        UserError: it lists something else, or something twice.
    """
    words = _words(said)
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"{option} must be whole numbers above 0, separated by commas, not {said}.")
    return _once([int(word) for word in words], option)


def numbers(said: str, option: str) -> list[float]:
    """Return the numbers above 0 that an option lists.

    Raises:
        UserError: it lists something else, or something twice.
    """
    try:
        found = [float(word) for word in _words(said)]
    except ValueError:
        found = []
    if not found or not all(0.0 < number < math.inf for number in found):
        raise UserError(f"{option} must be numbers above 0, separated by commas, not {said}.")
    return _once(found, option)


def _words(said: str) -> list[str]:
    return [word.strip() for word in said.split(",")]


def _once(found: list[_T], option: str) -> list[_T]:
    """Return `found`, in which nothing may stand twice."""
    if twice := [one for one in found if found.count(one) > 1]:
        raise UserError(f"{option} has {twice[0]} twice.")
    return found
