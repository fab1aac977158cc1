"""Sequences out of nothing, step by step, so that one can see how far it is and stop it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from latflow.flows import Packing
from latflow.flows.sequence import AutoregressiveTime
from latflow.models import LatentSequenceModel, SequenceModel
from latflow.progress import Progress
from latflow.training.evaluate import evaluating
from latflow.training.seeds import Stream, seeded
from latflow.use import Evidence, given
from latflow.use.given import check_length
from latflow.use.walkers import stepwise


def fresh(
    model: SequenceModel,
    n: int,
    length: int | None,
    temperature: float,
    argmax: bool,
    seed: int,
    tell: Progress,
) -> list[np.ndarray]:
    """n sequences x ~ p(x | T), with T ~ p(T) unless a length is given."""
    if stepwise(model):
        music = model.spec.kind == "music"
        x = np.zeros((length or 0, 88) if music else length or 0, np.uint8 if music else np.int64)
        nothing = Evidence(x, np.zeros(x.shape, bool), open_end=length is None)
        return given(
            model, nothing, n, temperature=temperature, argmax=argmax, seed=seed, progress=tell
        ).samples
    assert isinstance(model, LatentSequenceModel)
    if length is not None:
        check_length(model, length)
    with torch.no_grad(), evaluating(model), seeded(seed, Stream.SAMPLING):
        lengths = model.length.sample(n) if length is None else torch.full((n,), length)
        packing = model.layout(lengths)
        z = _noise_to_z(model, packing, temperature, tell)
        x: Any = packing.unpack(model.emission.sample(z, model.alphabet, packing, argmax)).numpy()
    return [one[:T] for one, T in zip(x, lengths.tolist(), strict=True)]


def _noise_to_z(
    model: LatentSequenceModel, packing: Packing, temperature: float, tell: Progress
) -> torch.Tensor:
    """`SequenceFlow.serial` with a word after each step; a prior that is not serial has no steps to tell of."""
    prior = model.prior
    if not isinstance(prior.time, AutoregressiveTime):
        return prior.sample_rows(packing, temperature)
    eps = temperature * torch.randn(packing.rows, prior.size)
    step, alone = prior.hidden.stepper("forward"), prior.hidden.context_size == 0
    context, state = prior.context.start(packing)
    found = []
    for t in range(packing.steps):
        z, _ = step(eps[packing.at(t)], None if alone else context)
        found.append(z)
        context, state = prior.context.step(z, t, packing, state)
        tell(t + 1, packing.steps)
    return torch.cat(found)
