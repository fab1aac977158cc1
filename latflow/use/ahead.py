"""What a model expects as a sequence goes on: p(x_t | x_<t), with T known or only known to be longer.

With an open end T is one of a few lengths T_k, all of p(T | T > n) or quantiles of it, with weights w_k:

    p(x_t | x_<t) = Σ_k w_k p(x_≤t | T_k) / Σ_k w_k p(x_<t | T_k).

Of a codebook model p(x_≤t | T) is the mean of the importance weights up to t, with z ~ q(z | x); all steps, samples and
lengths are one parallel pass. A model that looks at the whole sequence has no such steps but the terms of its bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latflow.data.base import Batch, collate
from latflow.errors import LatflowError
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel
from latflow.models.emission.bayes import BayesEmission
from latflow.models.posterior.codebook import CodebookPosterior
from latflow.shapes import Float, Int
from latflow.training.evaluate import NATS_PER_UNIT, evaluating
from latflow.training.seeds import Stream, seeded
from latflow.use.given import check_length
from latflow.use.score import score
from latflow.use.walkers import stepwise

LENGTHS = 6
"""That an open end is a mixture of."""
SAMPLES = 1
"""z for each sequence, and for each symbol that may come next: of a codebook one says nearly all."""
BOUND_SAMPLES = 8
"""z of which the terms of a bound are the mean."""
DRAWS = 96
"""z_t ~ p(z_t | z_<t) that stand for the next symbol where a model looks at the whole sequence."""


@dataclass(frozen=True)
class Next:
    """What may stand at a step."""

    p: Float[Tensor, "v"]
    """p(x_t | x_<t) of each symbol."""
    context: Float[Tensor, "k c"] | None
    """What the hidden flow of that step sees, for each of the lengths; None for the baseline."""
    weights: Float[Tensor, "k"]
    """p(T_k | x_<t)."""


def surprise(
    model: SequenceModel, x: np.ndarray, *, ended: bool = True, samples: int | None = None, seed: int = 0
) -> np.ndarray:
    """-log p(x_t | x_<t) of each step in nats: given T = len(x), or if it has not `ended`, T > len(x).

    A model that looks at the whole sequence has terms of its bound instead (`latflow.use.score`), and an end.
    """
    check_length(model, len(x))
    if not stepwise(model):
        (row,) = score(model, [x], samples=samples or BOUND_SAMPLES, seed=seed)
        return np.array(row["bound_steps"]) * NATS_PER_UNIT[model.spec.unit]
    with torch.no_grad(), evaluating(model), seeded(seed, Stream.SCORING):
        log_w, lengths = _lengths(model, len(x), ended)
        joint = (log_w[:, None] + _log_p(model, x, lengths, samples or SAMPLES)).logsumexp(0)  # (T + 1,)
        return -joint.diff().numpy()


def next_symbol(
    model: SequenceModel, x: np.ndarray, at: int, *, ended: bool = True, samples: int = SAMPLES, seed: int = 0
) -> Next:
    """The distribution of x_t for t = `at`, from 0, given x_<t; with an open end also that of the step behind the last.

    Where a model looks at the whole sequence it is the mean of p(x_t | z) over z_t ~ p(z_t | z_<t), the other z as
    q(z | x) drew them.
    """
    if model.spec.kind == "music":
        raise LatflowError("the next symbol is one of text or tokens; a step of music is a set of notes")
    ended = ended or not stepwise(model)
    if not 0 <= at < len(x) + (not ended):
        raise LatflowError(
            f"step {at + 1}; there are {len(x)}" + ("" if ended else ", and one to come behind them")
        )
    check_length(model, len(x) + (at == len(x)))
    with torch.no_grad(), evaluating(model), seeded(seed, Stream.FIGURE_POSTERIOR):
        log_w, lengths = _lengths(model, len(x), ended)
        rows, packing = _rows(model, x, lengths)
        if isinstance(model, LSTMLanguageModel):
            before = log_w + _log_p(model, x, lengths, 1)[:, at]
            context = model.context.whole(model.alphabet.embed(rows), packing)
            p = model.scores(packing.unpack(context)[:, at]).softmax(-1)
            weights = before.softmax(0)
            return Next(weights.to(p.dtype) @ p, None, weights)
        assert isinstance(model, LatentSequenceModel)
        z = model.draw(rows, packing).z
        whole = model.prior.context.whole(model.prior.time.seen(model.prior, z, packing), packing)
        context = packing.unpack(whole)[:, at]
        if not stepwise(model):
            return Next(_from_draws(model, z, at, context), context, log_w.exp())
        weights = (log_w + _log_p(model, x, lengths, samples)[:, at]).softmax(0)
        p = _by_codes(model, context, samples)
        p = weights.to(p.dtype) @ p
        return Next(p / p.sum(), context, weights)


def _lengths(model: SequenceModel, n: int, ended: bool) -> tuple[Float[Tensor, "k"], Int[Tensor, "k"]]:
    """T_k with log w_k: n itself, or of p(T | T > n) all lengths if they are few, else quantiles."""
    p = model.length.log_p.exp().clone()
    p[: n + 1] = 0
    if ended or not p.sum() > 0:
        further = not ended and not model.length.bounded
        return torch.zeros(1, dtype=torch.float64), torch.tensor([n + further])
    few = p.nonzero().flatten()
    if len(few) <= LENGTHS:
        return (p[few] / p.sum()).log(), few
    places = (torch.arange(LENGTHS, dtype=torch.float64) + 0.5) / LENGTHS
    found, counts = torch.searchsorted(p.cumsum(0) / p.sum(), places).unique_consecutive(return_counts=True)
    return (counts.double() / LENGTHS).log(), found


def _rows(model: SequenceModel, x: np.ndarray, lengths: Tensor) -> tuple[Tensor, Packing]:
    """x once for each length; what stands behind its end is seen by no step before."""
    packing = model.layout(lengths)
    return packing.pack(_batch(model, x, lengths).x), packing


def _batch(model: SequenceModel, x: np.ndarray, lengths: Tensor) -> Batch:
    wide = [[(0, T - len(x))] + [(0, 0)] * (x.ndim - 1) for T in lengths.tolist()]
    return collate([np.pad(x, pad) for pad in wide], model.spec)


def _log_p(model: SequenceModel, x: np.ndarray, lengths: Tensor, samples: int) -> Float[Tensor, "k steps"]:
    """log p(x_<t | T_k) for t = 0 … n, in float64."""
    terms = model.terms(_batch(model, x, lengths), samples, given_length=True)
    steps = (terms.log_emission - terms.kl)[:, :, : len(x)].double()
    ratio = steps.cumsum(-1).logsumexp(1) - math.log(steps.shape[1])
    return torch.cat([ratio.new_zeros(len(lengths), 1), ratio], 1)


def _by_codes(model: LatentSequenceModel, context: Tensor, samples: int) -> Float[Tensor, "k v"]:
    """p(x_t | context) = E_{z ~ q(z | x_t)} p(z | context) p(x_t | z) / q(z | x_t), the same z for all contexts."""
    assert isinstance(model.posterior, CodebookPosterior)
    assert isinstance(model.emission, BayesEmission)
    V, k = model.spec.size, len(context)
    symbols = torch.arange(V).repeat(samples)
    mean, log_std = model.posterior.codes.of(symbols)
    noise = torch.randn_like(mean)
    z = mean + log_std.exp() * noise
    log_q = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)
    log_emission = model.alphabet.log_prob(model.emission.at(z), symbols)
    hidden = model.prior.hidden
    given = None if hidden.context_size == 0 else context.repeat_interleave(len(z), 0)
    log_p = hidden.log_prob(z.repeat(k, 1), given).unflatten(0, (k, samples, V))
    ratio = log_p + (log_emission - log_q).unflatten(0, (samples, V))
    return (ratio.logsumexp(1) - math.log(samples)).exp()


def _from_draws(model: LatentSequenceModel, z: Tensor, at: int, context: Tensor) -> Float[Tensor, "v"]:
    """The mean of p(x_t | z) over z_t from the prior, of one sequence."""
    packing = Packing(torch.full((DRAWS,), len(z)))
    many = z.repeat_interleave(DRAWS, 0)
    hidden = model.prior.hidden
    many[packing.at(at)] = hidden.sample(
        () if hidden.context_size else (DRAWS,), context.repeat(DRAWS, 1) if hidden.context_size else None
    )
    scores = model.emission.scores(many, model.alphabet, packing)
    return scores[packing.at(at)].softmax(-1).mean(0)
