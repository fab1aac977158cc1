"""Sequences near another one, and between two: moves in eps, where the prior is a standard normal."""

from __future__ import annotations

import numpy as np
import torch

from latflow.errors import LatflowError
from latflow.models import LatentSequenceModel, SequenceModel
from latflow.training.evaluate import evaluating
from latflow.training.seeds import Stream, seeded
from latflow.use.given import check_length
from latflow.use.score import collate


@torch.no_grad()
def like(
    model: SequenceModel,
    x: np.ndarray,
    n: int = 8,
    *,
    noise: float = 0.3,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[np.ndarray]:
    """n variations of a sequence: eps' = sqrt(1 - s²) eps + s ξ, ξ ~ N(0, I), s = `noise`, and the most likely x of it.

    eps' is a standard normal if eps is, so a variation is as likely as what it came from; s = 0 gives back what the
    model keeps of x, s = 1 a sample that knows nothing of it. `temperature` scales ξ.
    """
    if n < 1 or not 0 <= noise <= 1:
        raise LatflowError(
            f"{n} variations with noise {noise}; one or more, with noise from 0 (the same) to 1 (new)"
        )
    if not 0 <= temperature < float("inf"):
        raise LatflowError(f"temperature {temperature}; it must be a number of at least 0")
    latent, device = _latent(model), next(model.parameters()).device
    check_length(model, len(x))
    batch = collate(model.spec, [x] * n).to(device)
    with evaluating(model), seeded(seed, Stream.GIVEN):
        eps = latent.noise(batch)
        moved = (1 - noise**2) ** 0.5 * eps + noise * temperature * torch.randn_like(eps)
        found = latent.from_noise(moved, latent.packing(batch))
    return list(found.cpu().numpy().astype(x.dtype))


def between(model: SequenceModel, first: np.ndarray, last: np.ndarray, steps: int = 7) -> list[np.ndarray]:
    """`steps` sequences from one to another, both ends included: see `LatentSequenceModel.between`."""
    if steps < 2:
        raise LatflowError(f"{steps} steps from one to another; 2 or more, for both ends are among them")
    latent, device = _latent(model), next(model.parameters()).device
    for x in (first, last):
        check_length(model, len(x))
    with evaluating(model):
        ends = (collate(model.spec, [x]).to(device) for x in (first, last))
        found = latent.between(next(ends), next(ends), steps)
    return [x[0, :T].cpu().numpy().astype(first.dtype) for x, T in found]


def _latent(model: SequenceModel) -> LatentSequenceModel:
    if not isinstance(model, LatentSequenceModel):
        raise LatflowError(
            "this model has no latent z to vary; take a flow, for example a preset {corpus}-af-af-codebook"
        )
    return model
