"""Sequences drawn given what is known of them, x ~ p(x | x_known), and log p(x_known): by sequential Monte Carlo.

Step by step (`latflow.use.walkers`) or, where the emission looks at all of z, with whole ones
(`latflow.use.whole`).
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from latflow.errors import LatflowError, LatflowWarning
from latflow.flows.seam import off
from latflow.models import SequenceModel
from latflow.progress import Progress
from latflow.training.evaluate import evaluating
from latflow.training.seeds import Stream, seeded
from latflow.use.evidence import Evidence
from latflow.use.particles import Drawn, Particles
from latflow.use.walkers import draws_directly, stepwise, walker_of
from latflow.use.whole import walk_whole

THRESHOLD = 0.5
"""Particles are resampled where fewer than this share of them is effective."""
FIRST = {"text": 500, "tokens": 500, "music": 200}
FACTOR = 4
"""Particles to begin with where their number is not given, and how many times more there are next time."""
MOST = {"text": 400_000, "tokens": 400_000, "music": 60_000}
"""Particles times known steps that are not exceeded by it."""
MOST_WHOLE = 60_000
"""Particles times steps that are not exceeded by it where a model looks at the whole sequence."""
UNLIKELY = 10.0
"""Nats below what symbols thrown at random would have, from which on evidence is remarked upon."""


@dataclass(frozen=True)
class Given:
    """Sequences, and how far to trust them. Logarithms are natural."""

    samples: list[np.ndarray]
    """n of them, (T,) indices or (T, 88) rolls; what is known stands in all."""
    log_p: float
    """log p(x_known | T), or where T is free log p(x_known | T > that of the evidence). An estimate: its exponential is
    right on average."""
    steps: np.ndarray
    """What each step adds to it, log p(known of step t | known before it); of a model that looks at the whole sequence
    their sum alone has a meaning by itself."""
    ess: np.ndarray
    """Effective particles by their weights at each step, before resampling."""
    effective: np.ndarray
    """Effective draws of each step among the particles at the last known one: those of one ancestor are one draw."""
    effective_samples: float
    """The fewest of them, over the steps of which something is free and the last known one."""
    particles: int
    resampled: int
    """How often."""


@torch.no_grad()
def given(
    model: SequenceModel,
    evidence: Evidence,
    n: int = 8,
    *,
    particles: int | None = None,
    temperature: float = 1.0,
    argmax: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Given:
    """n sequences of p(x | x_known, T), by `particles` particles: exact as they grow many.

    If their number is not given, there are 500 (200 of music), and four times as many again and again while fewer than
    n draws are effectively different, as far as is quick.

    `temperature` scales the noise of what is drawn, and with `argmax` that is the most likely x given z (for the
    baseline, the most likely next symbol), not a draw; what is known is weighed by the model as it is. Up to the last
    step of which something is known there are `particles` sequences, behind it n. With an open end each particle has
    a T of its own from p(T | T > len), which its weight makes one of p(T | x_known, T > len). `progress` is told how
    many steps are done.
    """
    if n < 1 or (particles is not None and particles < 1):
        raise LatflowError(f"{n} samples by {particles} particles; both must be 1 or more")
    if not 0 <= temperature < float("inf"):
        raise LatflowError(f"temperature {temperature}; it must be a number of at least 0")
    _check_evidence(model, evidence)
    check_length(model, len(evidence.x) + evidence.open_end)
    device = next(model.parameters()).device
    many = max(n, FIRST[model.spec.kind] if particles is None else particles)
    while True:
        # Particles are many rows: there definitions are as fast as compiled twins, which take a second to load.
        plainly = off() if draws_directly(model, temperature) else nullcontext()
        with evaluating(model), seeded(seed, Stream.GIVEN), plainly:
            lengths = _lengths(model, evidence, many).to(device)
            walk = _walk if stepwise(model) else walk_whole
            drawn = walk(model, evidence, lengths, n, THRESHOLD, temperature, argmax, progress)
            result = _result(evidence, drawn, many)
        enough = particles is not None or result.effective_samples >= n
        many *= FACTOR
        steps, most = evidence.last, MOST[model.spec.kind]
        if not stepwise(model):  # all steps count, and every one of them more than once
            steps, most = float(lengths.double().mean()), MOST_WHOLE
        if enough or many * steps > most:
            break
    _remark(model, evidence, result)
    return result


def _check_evidence(model: SequenceModel, evidence: Evidence) -> None:
    """That what is known are symbols, or notes, of this model."""
    spec = model.spec
    dimensions, most = (2, 1) if spec.kind == "music" else (1, spec.size - 1)
    known = evidence.x[evidence.known]
    whole = evidence.x.ndim == dimensions and evidence.x.dtype.kind in "iu"
    if not whole or (len(known) and not 0 <= known.min() <= known.max() <= most):
        raise LatflowError(
            f"evidence of shape {evidence.x.shape} and {evidence.x.dtype}; a model of {spec.kind} takes "
            f"{dimensions} dimensions of whole numbers from 0 to {most}, as Evidence.prefix and its like make them"
        )


def check_length(model: SequenceModel, length: int) -> None:
    """A length that this model has positions for, or a LatflowError that says how one is trained that has."""
    longest = model.spec.max_T
    if length < 1 or (length > longest and model.length.bounded):
        raise LatflowError(
            f"length {length}; this model knows lengths from 1 to {longest}, the longest of its training data, for "
            "every step has features of its distance from both ends. One that is trained with model.position_cap (16, "
            "say) and a codebook counts them up to there only and knows no longest"
        )


def _lengths(model: SequenceModel, evidence: Evidence, particles: int) -> Tensor:
    """T of every particle, the longest first."""
    T = len(evidence.x)
    if not evidence.open_end:
        return torch.full((particles,), T)
    p = model.length.log_p.exp().cpu()
    p[: T + 1] = 0
    if not p.sum() > 0:
        raise LatflowError(
            f"p(T) of this model has no length above {T}; give a length, up to {model.spec.max_T}"
        )
    return torch.multinomial(p, particles, replacement=True).sort(descending=True)[0]


def _walk(
    model: SequenceModel,
    evidence: Evidence,
    lengths: Tensor,
    n: int,
    threshold: float,
    temperature: float,
    argmax: bool,
    progress: Progress | None,
) -> Drawn:
    """Through all steps: `particles` as far as something is known, n behind it."""
    device, last = lengths.device, evidence.last
    x, known = (torch.from_numpy(part).to(device) for part in (evidence.x, evidence.known))
    nothing = x.new_zeros(x.shape[1:])
    cloud = Particles(len(lengths), last, threshold, device)
    if not last:  # nothing weighs, so nothing but what is asked for need be drawn
        lengths = lengths[cloud.select(n)]
    walker = walker_of(model, model.layout(lengths), temperature, argmax)
    steps = int(lengths.max())
    found = x.new_zeros(
        len(lengths), steps, *x.shape[1:]
    )  # notes are bytes: each resampling copies all of it
    effective = cloud.effective_draws(0)

    def go_on(index: Tensor) -> None:
        nonlocal found, lengths
        alike = len(index) == len(lengths) and not evidence.open_end  # all of one length, as before
        found, lengths = found.index_select(0, index), lengths[index]  # notes as bytes, row by row
        walker.select(index, walker.packing if alike else model.layout(lengths))

    for t in range(steps):
        if t == int(lengths[0]):  # none of those that were selected is longer
            break
        inside = t < len(x)
        marked = False
        for log_w in walker.step(x[t] if inside else nothing, known[t] if inside else nothing.bool()):
            if not marked:
                cloud.mark(t)
                marked = True
            index = cloud.weigh(t, log_w)
            if index is not None:
                go_on(index)
        if t < last and not marked:
            cloud.mark(t)
        found[: len(walker.x), t] = walker.x.to(found.dtype)
        if t + 1 == last:
            effective = cloud.effective_draws(last)
            go_on(cloud.select(n))
        walker.advance(t)
        if progress:
            progress(t + 1, int(lengths[0]))
    return Drawn(found, lengths, cloud, effective)


def _result(evidence: Evidence, drawn: Drawn, particles: int) -> Given:
    found, lengths, cloud, effective = drawn
    last = evidence.last
    order = torch.randperm(len(found)).tolist()
    samples = [found[i, : int(lengths[i])].cpu().numpy().astype(evidence.x.dtype) for i in order]
    which = [*(t for t in evidence.free_steps.tolist() if t < last), *([last - 1] if last else [])]
    fewest = float(effective[which].min()) if which else float(len(found))
    log_z, ess = cloud.log_z.numpy(), cloud.ess.numpy()
    return Given(
        samples, float(log_z.sum()), log_z, ess, effective.numpy(), fewest, particles, cloud.resampled
    )


def _remark(model: SequenceModel, evidence: Evidence, result: Given) -> None:
    """Warn of evidence that the model did not expect, and of samples that are fewer than they look."""
    spec, known = model.spec, int(evidence.known.sum())
    worst = known * np.log(2 if spec.kind == "music" else spec.size)
    if result.log_p < -worst - UNLIKELY:
        step = int(result.steps.argmin())
        warnings.warn(
            f"very unlikely: what is known has log p = {result.log_p:.1f} nats under this model, less than symbols "
            f"thrown at random ({-worst:.1f}); least likely is step {step + 1} ({result.steps[step]:.1f})",
            LatflowWarning,
            stacklevel=3,
        )
    if result.effective_samples < len(result.samples):
        warnings.warn(
            f"{len(result.samples)} samples, of which {result.effective_samples:.1f} are effectively different; more "
            f"than {result.particles} particles help",
            LatflowWarning,
            stacklevel=3,
        )
