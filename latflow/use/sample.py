"""Lengths -> z -> x: new sequences from a model."""

from __future__ import annotations

import numpy as np
import torch

from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.progress import Progress
from latflow.training.evaluate import evaluating
from latflow.training.seeds import Stream, seeded


def sample(
    model: SequenceModel,
    n: int = 8,
    *,
    length: int | None = None,
    temperature: float = 1.0,
    argmax: bool = False,
    seed: int = 0,
    batch_size: int = 64,
    label: str | None = None,
    progress: Progress | None = None,
) -> list[np.ndarray]:
    """n sequences: (T,) indices or (T, 88) rolls. T ~ p(T) unless a length is given; all of one `label`, if the model
    knows labels. `progress` is told how many."""
    if n < 1 or batch_size < 1:
        raise LatflowError(f"{n} samples, {batch_size} at a time; both must be 1 or more")
    longest = model.spec.max_T
    if length is not None and (length < 1 or (length > longest and model.length.bounded)):
        raise LatflowError(
            f"length {length}; this model knows lengths from 1 to {longest} (one trained with model.position_cap and a "
            "codebook knows no longest)"
        )
    if not 0 <= temperature < float("inf"):
        raise LatflowError(f"temperature {temperature}; it must be a number of at least 0")
    device = next(model.parameters()).device
    which = None if label is None else model.spec.label_index(label)
    with evaluating(model), seeded(seed, Stream.SAMPLING):
        lengths = model.length.sample(n) if length is None else torch.full((n,), length, device=device)
        found: list[np.ndarray] = []
        for part in lengths.split(batch_size):
            labels = None if which is None else torch.full_like(part, which)
            drawn = model.sample(part, temperature, argmax, label=labels).cpu().numpy()
            found += [x[:T] for x, T in zip(drawn, part.tolist(), strict=True)]
            if progress:
                progress(len(found), n)
    return found
