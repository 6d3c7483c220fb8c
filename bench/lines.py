"""What a bench measures, as JSON lines: each as soon as it is there, so that a bench that is stopped loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Protocol


class Write(Protocol):
    """Writes one line."""

    def __call__(self, kind: str, **values: Any) -> None: ...


@contextlib.contextmanager
def lines_in(path: Path, options: Any, stamp: Mapping[str, Any]) -> Generator[Write]:
    """Return what writes lines into a new file, each with its kind; the first has the options, but for where the file
    is, and the machine.

    Args:
        path: of the file.
        options: a dataclass.
        stamp: the machine, from `fastdqn.runs.machine.environment`.
    """
    settings = {name: str(value) for name, value in dataclasses.asdict(options).items() if name != "out"}
    with path.open("w", encoding="utf-8", buffering=1) as file:

        def write(kind: str, **values: Any) -> None:
            file.write(json.dumps({"kind": kind, **values}) + "\n")

        write("environment", options=settings, **stamp)
        yield write
