"""The lines of a run's metrics.jsonl, read without torch: what tables, curves and the page are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from latflow.errors import LatflowError

PLACES = ("epoch", "updates", "kl_weight", "lr", "seconds")
TERMS = ("negative_elbo", "reconstruction", "kl", "length")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; none if there is no file. Those of epochs have all figures, of which terms that are not finite
    are None."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    try:
        found = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise LatflowError(f"{path} is damaged: {error}") from None
    for number, line in enumerate(found, start=1):
        if not isinstance(line, dict) or "kind" not in line:
            raise LatflowError(f"{path} is damaged: line {number} has no kind")
        if line["kind"] == "epoch" and (missing := _missing(line)):
            raise LatflowError(f"{path} is damaged: line {number} has no number {missing}")
    return found


def _missing(line: dict[str, Any]) -> str:
    """The first figure of an epoch that is not there or no number."""
    for name in PLACES:
        if not isinstance(line.get(name), (int, float)):
            return name
    for part in ("train", "valid"):
        terms = line.get(part)
        for name in TERMS:
            if not isinstance(terms, dict) or not isinstance(terms.get(name, ""), (int, float, type(None))):
                return f"{part}.{name}"
    return ""
