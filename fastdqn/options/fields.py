"""What groups of options have in common: which fields change what is learnt, checks, and how they are written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fastdqn.errors import UserError

ValueT = TypeVar("ValueT")
_BESIDE = "beside learning"
LARGEST = 2**63 - 1
"""Of whole numbers: what config.json and checkpoints may hold."""
MOST_THREADS = 1_024
HUNDRED_YEARS = 36_525 * 24 * 3_600
"""Seconds: what a run may take, at most."""
FRAME_SCALES = (1e-6, 1e6)
"""What pixels may be divided by."""


def beside(default: ValueT) -> ValueT:
    """Return a field with this default that changes nothing of what is learnt.

    A run that is resumed may be given it anew, and runs that differ in it alone are drawn as one.
    """
    return dataclasses.field(default=default, metadata={_BESIDE: True})


def changes_learning(field: dataclasses.Field[Any]) -> bool:
    """Tell whether a field of options changes what is learnt."""
    return not field.metadata.get(_BESIDE, False)


def at_least(value: float | None, low: float, option: str) -> None:
    """Raise UserError unless `value` is `low` or more, and finite, and fits into a file; None passes."""
    if value is not None and not value >= low:  # also catches NaN
        raise UserError(f"{option} must be at least {_said(low)}, not {_said(value)}.")
    finite(value, option)


def between(value: float | None, low: float, high: float, option: str) -> None:
    """Raise UserError unless `value` is between `low` and `high`; None passes."""
    if value is not None and not low <= value <= high:
        raise UserError(f"{option} must be between {_said(low)} and {_said(high)}, not {_said(value)}.")


def above_zero(value: float | None, option: str) -> None:
    """Raise UserError unless `value` is more than 0, and finite, and fits into a file; None passes."""
    if value is not None and not value > 0:
        raise UserError(f"{option} must be more than 0, not {_said(value)}.")
    finite(value, option)


def _said(value: float) -> str:
    """Return a number as it is asked for: a whole one with all of its digits, but for one that is far too long."""
    if not isinstance(value, int):
        short = f"{value:g}"
        return short if float(short) == value or math.isnan(value) else repr(value)
    return str(value) if abs(value) < 10**30 else "a number of so many digits"


def finite(value: float | None, option: str) -> None:
    """Raise UserError for a value that is infinite, no number, or too large for a run's files; None passes."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{option} must be a finite number, not {_said(value)}.")
    if isinstance(value, int) and value > LARGEST:
        raise UserError(f"{option} must be at most {LARGEST}, not {_said(value)}.")


def plain(options: Any) -> dict[str, Any]:
    """Return options as a config.json holds them: by group and field."""
    return {group: _plain(values) for group, values in dataclasses.asdict(options).items()}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
