"""Where speed may stand in for an equation, and nothing else may.

A definition marked `@replaceable` is what a function *is*. A twin (`latflow.fast`) has its signature and its numbers,
says for which arguments it applies, and is chosen here alone:

    @replaceable
    def cell(gates, c): ...                    # the definition, plain torch

    @cell.twin(lambda gates, c: gates.dtype == torch.float32)
    def compiled_cell(gates, c): ...           # the same numbers, faster

`with off():` (in public, `latflow.fast.off()`) or LATFLOW_FAST=off in the environment leaves the definitions alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, update_wrapper
from importlib import import_module
from types import MethodType
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

PROVIDERS = ["latflow.fast"]
"""Modules that register twins, imported at the first call of a definition."""

REGISTRY: dict[str, Replaceable] = {}
"""Every definition by its name, as in "LSTM.forward"."""

_OFF: ContextVar[bool] = ContextVar("latflow_fast_off", default=False)


class Twin(NamedTuple):
    name: str
    applies: Callable[..., bool]
    function: Callable[..., Any]


class Replaceable:
    """A definition and its twins: called, the first twin that applies runs, or the definition."""

    def __init__(self, definition: Callable[..., Any]):
        update_wrapper(self, definition)
        self.definition = definition
        self.twins: list[Twin] = []
        REGISTRY[definition.__qualname__] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.chosen(*args, **kwargs)(*args, **kwargs)

    def chosen(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """What runs for these arguments."""
        if active():
            for twin in self.twins:
                if twin.applies(*args, **kwargs):
                    return twin.function
        return self.definition

    def twin(self, applies: Callable[..., bool]) -> Callable[[F], F]:
        """Register a twin; those registered earlier are asked first."""

        def register(function: F) -> F:
            self.twins.append(Twin(function.__name__, applies, function))
            return function

        return register

    def __get__(self, instance: object | None, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


def replaceable(definition: Callable[..., Any]) -> Any:
    """Mark a function or method as one that twins may stand in for. (To type checkers the result is anything: they
    know no methods that are objects.)"""
    return Replaceable(definition)


def active() -> bool:
    """Whether twins are chosen here and now."""
    if _OFF.get() or _off_by_environment():
        return False
    _load()
    return True


@contextmanager
def off() -> Iterator[None]:
    """Within the block every definition runs as it is written."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def _off_by_environment() -> bool:
    return os.environ.get("LATFLOW_FAST", "").lower() in ("off", "0", "no", "false")


def provide(module: str) -> None:
    """Name a module that registers twins; it is imported when a definition is next called."""
    if module not in PROVIDERS:
        PROVIDERS.append(module)
        _load.cache_clear()


@cache
def _load() -> None:
    for name in PROVIDERS:
        import_module(name)
