"""A break: a small patch of one function, found by its name, that fails loudly when it does not fit any more."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

TRAINING = "tests/walks/test_training_walk.py"
USE = "tests/walks/test_use_walk.py"
DRAWS = "tests/walks/test_dropout_and_draws.py"


@dataclass(frozen=True)
class Break:
    """In `file`, within the function (or Class.method, Class; "" for the whole module) `where`, `old` becomes `new`."""

    name: str
    file: str
    where: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Test files, or tests by their ids, at least one of which should fail."""

    def applied(self, source: str) -> str:
        """The source with the break in it; a LookupError if it does not fit."""
        first, last = self._lines(source)
        lines = source.splitlines(keepends=True)
        part = "".join(lines[first:last])
        if (count := part.count(self.old)) != 1:
            raise LookupError(
                f"break {self.name}: {self.old!r} occurs {count} times in {self.where or 'the module'} of {self.file}; "
                "it must occur once: change the break with the code"
            )
        broken = "".join(lines[:first]) + part.replace(self.old, self.new) + "".join(lines[last:])
        ast.parse(broken)  # a break that is no Python would be noticed by anything
        return broken

    def _lines(self, source: str) -> tuple[int, int]:
        node: ast.AST = ast.parse(source)
        first, last = 0, len(source.splitlines())
        for name in filter(None, self.where.split(".")):
            found = [
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name == name
            ]
            if len(found) != 1:
                raise LookupError(f"break {self.name}: {len(found)} of {self.where} in {self.file}, not one")
            node = found[0]
            first, last = found[0].lineno - 1, found[0].end_lineno or last
        return first, last


def of(file: str, tests: str | tuple[str, ...], entries: Iterable[tuple[str, str, str, str]]) -> list[Break]:
    """Breaks of one file: name, where, old, new."""
    chosen = (tests,) if isinstance(tests, str) else tests
    return [Break(name, file, where, old, new, chosen) for name, where, old, new in entries]


def read(file: str, root: Path = ROOT) -> str:
    return (root / file).read_text(encoding="utf-8")
