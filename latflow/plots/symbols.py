"""Given sequences of symbols, and how a symbol is written on a figure."""

from __future__ import annotations

import numpy as np

from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.use.files import typed


def encode(text: str, spec: DataSpec) -> np.ndarray:
    """The text, or a JSON list of tokens, as (T,) indices that the model's positions allow."""
    if spec.kind == "music":
        raise LatflowError("this figure is of symbols one after the other; the run is of music")
    given = typed(text, spec)
    if not given:
        raise LatflowError("the text is empty")
    if len(given) > spec.max_T:
        raise LatflowError(
            f"the text has {len(given)} {spec.step_name}s; this model knows lengths to {spec.max_T}"
        )
    return spec.encode(given)


def label(symbol: str | int, spec: DataSpec) -> str:
    """A symbol to be seen: a space as ␣, what cannot be printed as its escape, mathematics as plain text; in quotes
    a string that reads like one of the whole numbers beside it."""
    if symbol == " ":
        return "␣"
    ambiguous = isinstance(symbol, str) and any(str(n) == symbol for n in spec.symbols if isinstance(n, int))
    return written(f'"{symbol}"' if ambiguous else str(symbol))


def written(text: str) -> str:
    """Text as a figure shows it: what cannot be printed as its escape, mathematics as plain text."""
    return (text if text.isprintable() else repr(text)[1:-1]).replace("$", r"\$")
