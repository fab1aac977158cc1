"""Scores as people take them on: a list of records, CSV, and which of them are out of the ordinary."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from latflow.data.base import DataSpec
from latflow.data.files import writing
from latflow.errors import LatflowError

COLUMNS = (
    "index",
    "length",
    "nll",
    "nll_error",
    "nll_per_step",
    "quantile",
    "anomaly",
    "unit",
    "samples",
    "effective_samples",
    "error",
    "sequence",
)
"""Of a table, as far as a record has them."""


class Scores(list[dict[str, Any]]):
    """The records of `score`, a dict each: `pandas.DataFrame(scores)` is a table of them."""

    def __init__(self, records: Iterable[dict[str, Any]], spec: DataSpec):
        super().__init__(records)
        self.spec = spec

    def ranked(self) -> Scores:
        """The most surprising for their length first; those without a likelihood last, in their order."""

        def place(row: Mapping[str, Any]) -> tuple[bool, float]:
            return row.get("nll_per_step") is None, -(row.get("nll_per_step") or 0.0)

        return Scores(sorted(self, key=place), self.spec)

    def against(self, reference: Scores, threshold: float) -> tuple[Scores, float]:
        """With `quantile`, the share of the reference that is less surprising a step, and `anomaly`, whether a sequence
        is more so than that share `threshold` of it; and the nll_per_step at which that begins.

        A sequence that has no likelihood is an anomaly.
        """
        if not 0 < threshold < 1:
            raise LatflowError(
                f"the threshold is {threshold}; it is a share of the reference, between 0 and 1"
            )
        ordinary = np.sort([v for row in reference if (v := row.get("nll_per_step")) is not None])
        if not len(ordinary):
            raise LatflowError("none of the reference's sequences has a likelihood; give another reference")
        limit = float(np.quantile(ordinary, threshold))
        records = []
        for row in self:
            value = row.get("nll_per_step")
            share = None if value is None else float(np.searchsorted(ordinary, value) / len(ordinary))
            records.append({**row, "quantile": share, "anomaly": value is None or value > limit})
        return Scores(records, self.spec), limit

    def to_csv(self, path: str | Path | None = None, *, steps: bool = False) -> str | None:
        """A table with a header: into a file, or as a string. With `steps` each token and its surprise in columns of
        their own, token_1, surprise_1, token_2 and so on."""
        text = "".join(self.csv_lines(steps=steps))
        if path is None:
            return text
        with writing(path) as new:
            new.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        return None

    def csv_lines(self, *, steps: bool = False) -> Iterable[str]:
        """The lines of that table, the header first."""
        columns = [name for name in COLUMNS if any(name in row for row in self)]
        longest = max((len(_steps(row)) for row in self), default=0) if steps else 0
        header = [f"{name}_{t}" for t in range(1, longest + 1) for name in ("token", "surprise")]
        yield _line([*columns, *header])
        for row in self:
            tokens = self._tokens(row)
            values = {**row, "sequence": tokens if isinstance(tokens, str) else " ".join(map(str, tokens))}
            cells = [values.get(name) for name in columns]
            if steps:
                pairs = zip(tokens, _steps(row), strict=False)
                cells += [cell for pair in pairs for cell in pair]
            yield _line(cells)

    def _tokens(self, row: Mapping[str, Any]) -> Any:
        """The symbols of a record: text as it is, tokens as a list of them."""
        given = row["sequence"]
        if given is None:
            return ""
        if self.spec.kind != "tokens" or not isinstance(given, str):
            return given
        try:
            parsed = json.loads(given)
        except (ValueError, RecursionError):
            return given
        tokens = parsed.get("tokens") if isinstance(parsed, dict) else parsed
        return tokens if isinstance(tokens, list) else given


def _steps(row: Mapping[str, Any]) -> list[float]:
    return row.get("steps") or row.get("bound_steps") or []


def _line(cells: list[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(_cell, cells))
    return line.getvalue()


def _cell(value: Any) -> Any:
    """Six digits, and nothing for what is not there."""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else value
