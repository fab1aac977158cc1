"""How surprising given sequences are: -log p(x) of each, and of each of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from latflow.data.base import collate
from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.progress import Progress
from latflow.training.evaluate import chunk_of, evaluating, in_unit
from latflow.training.seeds import Stream, seeded
from latflow.use.evidence import Evidence
from latflow.use.given import given


def score(
    model: SequenceModel,
    sequences: Sequence[Any],
    *,
    samples: int = 50,
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """The negative log-likelihood of each sequence, in the unit of the data, in the order given: arrays as
    `DataSpec.encode` gives them, or what it takes (strings, lists of tokens, rolls).

    nll is -log p(x | T) - log p(T), nll_per_step is that / (T + 1). The baseline's steps are exact, -log p(x_t | x_<t,
    T); for a latent model they are the terms of the bound, -log p(x_t | z) + log q(z_t | x) - log p(z_t | z_<t), the
    mean over the samples, whose sum over t plus the length term is -ELBO. A sequence whose length p(T) rules out has
    no likelihood but that given T: nll is None and "error" says why. Equal sequences are scored once; `progress` is
    told how many are done.
    """
    if samples < 1 or batch_size < 1:
        raise LatflowError(f"{samples} samples, {batch_size} sequences at a time; both must be 1 or more")
    longest = model.spec.max_T
    sequences = [x if isinstance(x, np.ndarray) else model.spec.encode(x) for x in sequences]
    keys = [(x.shape, x.dtype, x.tobytes()) for x in sequences]
    distinct = {key: x for key, x in zip(keys, sequences, strict=True) if 1 <= len(x) <= longest}
    order = sorted(distinct, key=lambda key: len(distinct[key]))
    scored: dict[Any, dict[str, Any]] = {}
    for start in range(0, len(order), batch_size):
        which = order[start : start + batch_size]
        with evaluating(model), seeded(seed, Stream.SCORING, start):
            rows = _score_batch(model, [distinct[key] for key in which], samples)
        scored.update(zip(which, rows, strict=True))
        if progress:
            progress(len(scored), len(order))
    unknown = {"nll": None, "error": f"this model knows lengths from 1 to {longest}"}
    return (
        {"index": i, "length": len(x), **scored.get(key, unknown)}
        for i, (key, x) in enumerate(zip(keys, sequences, strict=True))
    )


def score_given(
    model: SequenceModel, evidence: Evidence, *, particles: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """-log p(x_known, T) in the unit of the data: how surprising a pattern with free places is, whatever stands there.

    "steps" are -log p(known of step t | known before it, T), zero where nothing is known.
    """
    found = given(model, evidence, 1, particles=particles, seed=seed)
    rest, T = in_unit(-found.log_p, model.spec), len(evidence.x)
    row = {"length": T, "known": int(evidence.known.sum()), **_with_length(model, T, rest)}
    row |= {"unit": model.spec.unit, "nll_given_length": rest, "effective_samples": found.effective_samples}
    steps = [in_unit(0.0 - float(v), model.spec) for v in found.steps]
    return row | {"particles": found.particles, "steps": steps + [0.0] * (T - len(steps))}


def _score_batch(model: SequenceModel, items: list[np.ndarray], samples: int) -> list[dict[str, Any]]:
    spec = model.spec
    batch = collate(items, spec).to(next(model.parameters()).device)
    given_length = effective = steps = torch.zeros(())
    for terms, weights in model.draws(batch, [samples], chunk_of(batch), given_length=True):
        given_length, effective = weights.nll(), weights.effective_samples()
        steps = steps + (terms.kl - terms.log_emission).double().sum(1)
    steps = steps / (1 if model.exact else samples)
    rows = []
    for i, x in enumerate(items):
        rest = in_unit(float(given_length[i]), spec)
        row = _with_length(model, len(x), rest) | {"unit": spec.unit, "nll_given_length": rest}
        if not model.exact:
            row["effective_samples"] = float(effective[i])
        found = [in_unit(v, spec) for v in steps[i, : len(x)].tolist()]
        rows.append(row | {"steps" if model.exact else "bound_steps": found})
    return rows


def _with_length(model: SequenceModel, T: int, rest: float) -> dict[str, Any]:
    """-log p(x | T) and -log p(T) together, if T has a probability."""
    try:
        length = in_unit(-float(model.length.log_prob(torch.tensor([T]))), model.spec)
    except ValueError:
        return {"nll": None, "error": f"length {T} has no probability under p(T)"}
    return {"nll": rest + length, "nll_per_step": (rest + length) / (T + 1), "length_nll": length}
