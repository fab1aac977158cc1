"""Options made from the fields of a config dataclass."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
from typing import Any


def add_config_options(parser: argparse.ArgumentParser, config: Any, leave_out: tuple[str, ...] = ()) -> None:
    """An option for each field of a config dataclass, explained by the docstring below the field."""
    documented = field_docs(config)
    kinds: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": _yes_or_no}
    for field in dataclasses.fields(config):
        if field.name in leave_out:
            continue
        kind = str(field.type).removesuffix(" | None")
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=kinds[kind],
            default=field.default,
            metavar={"str": "TEXT", "int": "N", "float": "X", "bool": "yes|no"}[kind],
            help=documented.get(field.name, "").replace("%", "%%")
            + (f" ({field.default})" if field.default is not None else ""),
        )


def field_docs(config: Any) -> dict[str, str]:
    """The docstrings that stand below a dataclass's fields."""
    body = ast.parse(inspect.getsource(config)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[above.target.id] = str(below.value.value)
    return found


def _yes_or_no(word: str) -> bool:
    if word.lower() in ("yes", "true", "1"):
        return True
    if word.lower() in ("no", "false", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{word!r} is neither yes nor no")
