"""`fastdqn train`: the scripts of the ladder by number or name, from a checkout or from a wheel.

A script runs as `python SCRIPT` runs it: in this process, as `__main__`, with its folder first on the path. So its
clock begins with the process, and the processes that it starts import it by its path.
"""

from __future__ import annotations

import ast
import difflib
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro

from fastdqn.cli.help import columns, rendered
from fastdqn.errors import UserError
from fastdqn.terminal import say

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Train:
    """Run a script of the ladder, by its number or name; without one, list them."""

    script: Annotated[str, tyro.conf.Positional]
    """Number or name of the script; what follows goes to it."""


def scripts() -> dict[str, Path]:
    """Return the scripts of the ladder by name: those in the package, as in a wheel, else those of the checkout."""
    packaged = _PACKAGE / "experiments"
    folder = packaged if packaged.is_dir() else _PACKAGE.parent / "experiments"
    return {path.stem: path for path in sorted(folder.glob("[0-9]*.py"))}


def script_called(name: str) -> Path:
    """Return the script whose number or name is `name`.

    Raises:
        UserError: there is none.
    """
    known = scripts()
    for stem, path in known.items():
        number = stem.partition("_")[0]
        if name in (stem, path.name) or (name.isdecimal() and int(name) == int(number)):
            return path
    meant = difflib.get_close_matches(name, known, n=1) or [stem for stem in known if name.lower() in stem]
    hint = f"did you mean {meant[0]}?" if meant and name else "fastdqn train lists them."
    raise UserError(f"There is no script called {name!r}; {hint}")


def train(words: Sequence[str]) -> int:
    """Run the script that the first of `words` names with the others; list the scripts if there is none.

    Returns:
        0, after the list; a script leaves by itself.

    Raises:
        UserError: there is no such script.
    """
    if not words or words[0] in ("-h", "--help"):
        say(listing().rstrip("\n"))
        return 0
    if words[0].startswith("-"):
        raise UserError(f"The script comes first, then its options, as in fastdqn train SCRIPT {words[0]} ...")
    path = script_called(words[0])
    run_as_main(path, words[1:], f"fastdqn train {path.stem}")
    return 0


def listing() -> str:
    """Return the list of scripts, with what each is about: the first line of its docstring."""
    rows: list[tuple[str, str]] = []
    for name, path in scripts().items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        rows.append((name, about.partition("\n")[0].partition(": ")[2]))
    width, longest = shutil.get_terminal_size().columns, max(len(name) for name, _ in rows)
    text = "usage: fastdqn train SCRIPT [OPTIONS]\n\nSCRIPT is the number or the name of one of\n"
    return f"{text}{rendered(columns(rows, width, longest))}\nfastdqn train SCRIPT --help lists its options.\n"


def run_as_main(path: Path, words: Sequence[str], program: str) -> None:
    """Run a script in this process as `python PATH` does, with these words; `program` is what --help calls it."""
    sys.argv = [program, *words]
    sys.path.insert(0, str(path.parent))
    module = ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    SourceFileLoader("__main__", str(path)).exec_module(module)
