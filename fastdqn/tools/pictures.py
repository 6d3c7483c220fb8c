"""Pictures: drawn by Matplotlib's own settings, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from fastdqn.errors import RunError
from fastdqn.runs.folder import write_whole


@contextlib.contextmanager
def drawing() -> Generator[None]:
    """Let Matplotlib have its own settings meanwhile, whatever the user's say: pictures look the same everywhere, and
    neither a backend that is not there nor LaTeX that is missing ends a run. A $ in a name is a $. What is drawn is a
    `Figure`, which asks no backend; afterwards all is as it was.
    """
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    import matplotlib

    if backend is not None:  # looked at when Matplotlib is imported, which a name that it does not know would end
        os.environ["MPLBACKEND"] = backend
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
    import matplotlib.style

    with matplotlib.rc_context():
        matplotlib.style.use("default")
        matplotlib.rcParams["text.parse_math"] = False
        yield


def save_picture(figure: Any, out: Path, dpi: int, **how: Any) -> None:
    """Write a figure of Matplotlib's; its kind is the ending of `out`. What was there before stays until it is done.

    Args:
        figure: to write.
        out: where to.
        dpi: pixels for each inch.
        how: what else `savefig` is told.

    Raises:
        RunError: it cannot be written.
    """
    kind = out.suffix[1:].lower() or "png"
    try:
        write_whole(out, lambda unfinished: figure.savefig(unfinished, dpi=dpi, format=kind, **how))
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise RunError(f"The picture {out} cannot be written: {why}.") from error
