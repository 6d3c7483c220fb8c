"""Follows a script's options through the code: which files they enter, whole or by group, and how often.

The code is read, not run. What is followed is the options' dataclass and its groups, as arguments of calls; a value
that was taken out of a group is a value like any other.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.helpers.scripts import ROOT, loaded

WHOLE, GROUP = "whole", "group"


class Place(NamedTuple):
    """A function, and where it is defined."""

    file: Path
    node: ast.FunctionDef
    owner: ast.ClassDef | None


def way_of(script: str) -> Counter[str]:
    """Return how often the options of a script enter each file, the script's own first."""
    path = ROOT / "experiments" / f"{script}.py"
    groups = frozenset(loaded(script).options_type.__dataclass_fields__)
    walk = _Walk(groups)
    (train,) = [node for node in _tree(path).body if isinstance(node, ast.FunctionDef) and node.name == "train"]
    walk.entries[_name(path)] += 1
    walk.function(Place(path, train, None), {"options": WHOLE})
    return walk.entries


class _Walk:
    def __init__(self, groups: frozenset[str]) -> None:
        self.groups = groups
        self.entries: Counter[str] = Counter()
        self._done: set[tuple[Path, str, int, tuple[tuple[str, str], ...]]] = set()

    def function(self, place: Place, known: dict[str, str]) -> None:
        key = (place.file, place.node.name, place.node.lineno, tuple(sorted(known.items())))
        if key in self._done:
            return
        self._done.add(key)
        known = dict(known)
        for node in ast.walk(place.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value, known)
        for node in ast.walk(place.node):
            if isinstance(node, ast.Call):
                self._call(node, place, known)
        kept = {name: kind for name, kind in known.items() if name.startswith("self.")}
        if place.owner is not None and place.node.name == "__init__" and kept:
            for method in place.owner.body:
                if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                    self.function(Place(place.file, method, place.owner), kept)

    def _assign(self, target: ast.expr, value: ast.expr, known: dict[str, str]) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._assign(one, its, known)
            return
        kind = self._kind(value, known)
        if kind is not None:
            known[ast.unparse(target)] = kind

    def _kind(self, node: ast.expr, known: dict[str, str]) -> str | None:
        """Return whether an expression is the options, a group of them, or neither."""
        said = known.get(ast.unparse(node))
        if said is not None:
            return said
        if isinstance(node, ast.Attribute) and self._kind(node.value, known) == WHOLE and node.attr in self.groups:
            return GROUP
        if isinstance(node, ast.BoolOp):
            return next((kind for kind in (self._kind(value, known) for value in node.values) if kind), None)
        return None

    def _call(self, node: ast.Call, place: Place, known: dict[str, str]) -> None:
        function, args = node.func, list(node.args)
        if isinstance(function, ast.Name) and function.id == "partial" and args:
            function, args = args[0], args[1:]
        flat = [one for arg in args for one in _unpacked(arg)]
        given: dict[int | str, str] = {}
        for i, arg in enumerate(flat):
            kind = self._kind(arg, known)
            if kind is not None:
                given[i] = kind
        for keyword in node.keywords:
            kind = self._kind(keyword.value, known)
            if kind is not None and keyword.arg is not None:
                given[keyword.arg] = kind
        if not given:
            return
        found = _resolve(function, place)
        if found is None:
            return
        names = [arg.arg for arg in found.node.args.args]
        if found.owner is not None and names and names[0] in ("self", "cls"):
            names = names[1:]
        inside = {names[i] if isinstance(i, int) else i: kind for i, kind in given.items()}
        if found.file != place.file:
            self.entries[_name(found.file)] += 1
        self.function(found, inside)


def _unpacked(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Starred):
        return list(node.value.elts) if isinstance(node.value, ast.Tuple) else [node.value]
    return [node]


def _resolve(function: ast.expr, place: Place) -> Place | None:
    """Return what a call calls, if that is a function or class of the library."""
    if isinstance(function, ast.Name):
        return _defined(place.file, function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id == "self" and place.owner is not None:
            return _method(place.file, place.owner, function.attr)
        module = _imported(place.file).get(function.value.id)
        if module is not None and module[1] is None:
            return _defined(module[0], function.attr)
        found = _class(place.file, function.value.id)
        return None if found is None else _method(*found, function.attr)
    return None


def _defined(file: Path, name: str) -> Place | None:
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Place(file, node, None)
    found = _class(file, name)
    if found is not None:
        return _method(*found, "__init__")
    there = _imported(file).get(name)
    return None if there is None or there[1] is None else _defined(there[0], there[1])


def _class(file: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    for node in _tree(file).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return file, node
    there = _imported(file).get(name)
    return None if there is None or there[1] is None else _class(there[0], there[1])


def _method(file: Path, owner: ast.ClassDef, name: str) -> Place | None:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return Place(file, node, owner)
    return None


@functools.cache
def _imported(file: Path) -> dict[str, tuple[Path, str | None]]:
    """Return what a file imports from the library: names of modules, and of things in modules."""
    found: dict[str, tuple[Path, str | None]] = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fastdqn":
            base = ROOT / Path(*str(node.module).split("."))
            for alias in node.names:
                name = alias.asname or alias.name
                if (base / f"{alias.name}.py").exists():
                    found[name] = (base / f"{alias.name}.py", None)
                elif base.with_suffix(".py").exists():
                    found[name] = (base.with_suffix(".py"), alias.name)
    return found


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))
