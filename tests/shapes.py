"""Shapes and types in signatures, checked at every call while the tests run.

jaxtyping has a hook for this, which binds the arguments of every call to the signature and checks them twice, for the
sake of its messages: half the time of many a test. Here beartype checks arguments and result once, in a scope in which
a letter of a shape has one value.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from beartype import beartype
from jaxtyping import jaxtyped

_SCOPE: Any = jaxtyped("context")  # type: ignore[call-overload]


def checked(function: Callable) -> Callable:
    """The function, its arguments and result held to their annotations."""
    if not function.__annotations__:
        return function
    inner = beartype(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _SCOPE:
            return inner(*args, **kwargs)

    return call


class _Decorated(ast.NodeTransformer):
    """`checked` below all other decorators of a function; jaxtyping's own on a class, for the fields of dataclasses."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(ast.Name("_checked_", ast.Load()))
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, ast.Name("_checked_class_", ast.Load()))
        return self.generic_visit(node)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        """Compiled anew in every process: bytecode on disk is that of the code as it stands."""
        path = self.get_filename(fullname)
        tree = _Decorated().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_checked_"] = checked
        vars(module)["_checked_class_"] = jaxtyped(typechecker=beartype)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]):
        self.packages = tuple(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(f"{fullname}.".startswith(f"{package}.") for package in self.packages):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def check(*packages: str) -> None:
    """From now on, in all modules of these packages."""
    sys.meta_path.insert(0, _Finder(packages))
