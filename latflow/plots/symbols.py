"""Given sequences of symbols, and how a symbol is written on a figure."""

from __future__ import annotations

import json

import numpy as np

from latflow.data.base import DataSpec
from latflow.errors import LatflowError


def encode(text: str, spec: DataSpec) -> np.ndarray:
    """The text, or a JSON list of tokens, as (T,) indices that the model's positions allow."""
    if spec.kind == "music":
        raise LatflowError("this figure is of symbols one after the other; the run is of music")
    given = text
    if spec.kind == "tokens":
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if not isinstance(given, list):
            raise LatflowError(f"the run is of tokens; give them as a JSON list, not as {text[:40]!r}")
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
    text = f'"{symbol}"' if ambiguous else str(symbol)
    text = text if text.isprintable() else repr(text)[1:-1]
    return text.replace("$", r"\$")
