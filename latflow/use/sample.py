"""Lengths -> z -> x: new sequences from a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.progress import Progress
from latflow.training.evaluate import evaluating
from latflow.training.seeds import Numbers, Stream

BLOCK = 1 << 16
"""Lengths drawn at once: memory does not grow with how many sequences are asked for."""


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
    found: list[np.ndarray] = []
    for x in sampled(
        model,
        n,
        length=length,
        temperature=temperature,
        argmax=argmax,
        seed=seed,
        batch_size=batch_size,
        label=label,
    ):
        found.append(x)
        if progress and (len(found) % batch_size == 0 or len(found) == n):
            progress(len(found), n)
    return found


def sampled(
    model: SequenceModel,
    n: int,
    *,
    length: int | None = None,
    temperature: float = 1.0,
    argmax: bool = False,
    seed: int = 0,
    batch_size: int = 64,
    label: str | None = None,
) -> Iterator[np.ndarray]:
    """The same sequences one after another, as they are drawn; wrong arguments are refused at once."""
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
    which = None if label is None else model.spec.label_index(label)
    device, numbers = next(model.parameters()).device, Numbers(seed, Stream.SAMPLING)

    def drawn() -> Iterator[np.ndarray]:
        for first in range(0, n, BLOCK):
            many = min(BLOCK, n - first)
            with numbers.going_on():
                lengths = torch.full((many,), length or 1, device=device)
                lengths = model.length.sample(many) if length is None else lengths
            for part in lengths.split(batch_size):
                labels = None if which is None else torch.full_like(part, which)
                with evaluating(model), numbers.going_on():
                    x = model.sample(part, temperature, argmax, label=labels).cpu().numpy()
                for one, T in zip(x, part.tolist(), strict=True):
                    yield one[:T]

    return drawn()
