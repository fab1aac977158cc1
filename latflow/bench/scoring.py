"""How many distinct lines a second `score` takes, at its default tolerance."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from latflow.models import SequenceModel
from latflow.progress import counting
from latflow.use.score import scored


def scoring(model: SequenceModel, lines: int, distinct: int, seed: int = 0) -> dict[str, Any]:
    """Lines drawn from the model itself, `distinct` of them different, scored as `latflow score` does."""
    from latflow.use import sample

    found: dict[bytes, np.ndarray] = {}
    for attempt in range(100):
        if len(found) >= distinct:
            break
        with counting("drawing lines") as tell:
            drawn = sample(model, distinct, seed=seed + attempt, batch_size=512, progress=tell)
        found |= {x.tobytes(): x for x in drawn}
    arrays = list(found.values())[:distinct]
    given = [(i, "", arrays[i % len(arrays)]) for i in range(lines)]
    scored(model, given[:64])  # compiles and warms up
    begin = time.perf_counter()
    with counting("scoring, distinct sequences") as tell:
        scores = scored(model, given, progress=tell)
    seconds = time.perf_counter() - begin
    different = scores[: len(arrays)]
    return {
        "lines": lines,
        "distinct": len(arrays),
        "mean length": float(np.mean([len(x) for x in arrays])),
        "seconds": seconds,
        "distinct lines/s": len(arrays) / seconds,
        "mean samples": float(np.mean([row.get("samples", 1) for row in different])),
        "median error": float(np.median([row["nll_error"] for row in different])),
        "unit": model.spec.unit,
    }
