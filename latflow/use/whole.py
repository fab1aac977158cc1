"""Draws given what is known where the emission looks at all of z: particles are whole sequences, weighed step by step.

Every known step needs all of z, so each particle carries a guess u of what is to come. Up to the known step t the
target is

    Γ_t(z_≤t, u) = p(z_≤t) r(u_>t | z_≤t, x̂) p(x_known,≤t | z_≤t, u_>t),

where r draws known steps from q(u_s | x̂) and free ones from the prior, and x̂ is what is known, filled up by a draw from
the emission. z_t ~ q(z_t | x̂) at a known step, and z_t is the guess at a free one, so that a particle weighs

    p(z_t | z_<t) / q(z_t | x̂) · p(x_known,≤t | z_≤t, u'_>t) / p(x_known,<t | z_<t, u_≥t).

Where particles have been resampled, u and z_t are drawn anew, and elsewhere the guess stays, u = (z_t, u'). r and the
law of x̂ are part of the target and of its proposal alike, hence in no weight; behind the last known step r is the prior
itself, and summed over x̂ and all former guesses Γ is p(z) p(x_known | z). So draws and log p are as exact as those of
`latflow.use.walkers`, and the weights of an emission that sees z_t alone are the same. Steps of which some notes are
known are drawn from the prior, for q asks for all of them: they weigh p(known notes | z).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from latflow.errors import LatflowError
from latflow.flows.sequence import AutoregressiveTime, IndependentTime, InverseAutoregressiveTime
from latflow.models import GaussianPosterior, LatentSequenceModel, SequenceModel
from latflow.progress import Progress
from latflow.shapes import Float, Int
from latflow.use.evidence import Evidence
from latflow.use.particles import Drawn, Particles
from latflow.use.walkers import notes_log_prob

WIDER = 1.2
"""Times the standard deviation of q: one that is trained on the bound is too narrow rather than too wide, and then a
few draws in its tails carry all the weight."""


class Whole:
    """z of every particle, all of it, with what the weights are made of. Tensors are padded (n, t, …)."""

    def __init__(
        self, model: SequenceModel, evidence: Evidence, lengths: Int[Tensor, "n"], temperature: float
    ):
        if not isinstance(model, LatentSequenceModel):
            raise LatflowError(f"no way to draw given what is known is known for {type(model).__name__}")
        time = model.prior.time
        if not isinstance(time, AutoregressiveTime | InverseAutoregressiveTime | IndependentTime):
            raise LatflowError(f"no way to go step by step is known for {type(time).__name__}")
        self.model, self.lengths, self.temperature = model, lengths, temperature
        self.sees_noise = isinstance(time, InverseAutoregressiveTime)
        self.steps = int(lengths.max())
        x, known = (torch.from_numpy(part).to(lengths.device) for part in (evidence.x, evidence.known))
        more = (self.steps - len(x), *x.shape[1:])
        self.x = torch.cat([x.long(), x.new_zeros(more, dtype=torch.int64)])
        self.known = torch.cat([known, known.new_zeros(more)])
        self.packing = model.layout(lengths)
        self.z = model.alphabet.bias.new_zeros(len(lengths), self.steps, model.prior.size)
        self.seen = self.z.clone()
        """What the contexts see of the steps: z, or where time is IAF eps."""
        self._draw(0, None)

    def guess(self, t: int) -> None:
        """z_≥t anew, z_<t as it is."""
        posterior, packing = self.model.posterior, self.packing
        if not isinstance(posterior, GaussianPosterior):
            return self._draw(t, None)
        alphabet = self.model.alphabet
        mean, log_std = posterior(packing.pack(self.filled(self.scores, False)), alphabet, packing)
        log_std = log_std + math.log(WIDER)
        noise = torch.randn_like(mean)
        log_q = -(0.5 * noise.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1)
        return self._draw(t, (packing.unpack(mean + log_std.exp() * noise), packing.unpack(log_q)))

    def _draw(self, first: int, proposed: tuple[Tensor, Tensor] | None) -> None:
        """Through the prior: what stands before the `first` step is kept, known steps are as `proposed` with their
        log q, all others drawn."""
        prior, packing = self.model.prior, self.packing
        whole_steps = self.known if self.known.ndim == 1 else self.known.all(1)
        by_q = whole_steps.tolist() if proposed else [False] * self.steps
        z, log_q = proposed or (self.z, self.z)
        self.log_ratio = torch.zeros_like(self.z[..., 0])
        """log p(z_t | z_<t) - log q(z_t | x̂) of the steps that q proposed."""
        forward = prior.hidden.stepper("forward")
        context, state = prior.context.start(packing)
        for t, n in enumerate(packing.active):
            given = None if prior.hidden.context_size == 0 else context
            if t >= first and by_q[t]:
                self.z[:n, t] = self.seen[:n, t] = z[:n, t]
                self.log_ratio[:n, t] = prior.hidden.log_prob(z[:n, t], given) - log_q[:n, t]
                if self.sees_noise:
                    self.seen[:n, t] = prior.hidden.inverse(z[:n, t], given)[0]
            elif t >= first:
                eps = self.temperature * torch.randn_like(self.z[:n, t])
                self.z[:n, t] = forward(eps, given)[0]
                self.seen[:n, t] = eps if self.sees_noise else self.z[:n, t]
            context, state = prior.context.step(self.seen[:n, t], t, packing, state)
        self.scores = self._unpack(
            self.model.emission.scores(packing.pack(self.z), self.model.alphabet, packing)
        )

    def _unpack(self, rows: Tensor) -> Tensor:
        return self.packing.unpack(rows, self.steps)

    def log_known(self) -> Float[Tensor, "n t"]:
        """log p(known of step t | z)."""
        if self.known.ndim == 2:
            return notes_log_prob(self.scores, self.x).masked_fill(~self.known, 0).sum(-1)
        log_p = self.model.alphabet.log_prob(self.scores.flatten(0, 1), self.x.repeat(len(self.z)))
        return log_p.unflatten(0, self.scores.shape[:2]).masked_fill(~self.known, 0)

    def filled(self, scores: Float[Tensor, "n t v"], argmax: bool) -> Tensor:
        """What is known, and a draw or the most likely elsewhere."""
        alphabet = self.model.alphabet
        fill = alphabet.sample(scores.flatten(0, 1), argmax, None).unflatten(0, scores.shape[:2])
        return torch.where(self.known, self.x, fill.long())

    def select(self, index: Int[Tensor, "m"]) -> None:
        self.z, self.seen, self.log_ratio, self.scores, self.lengths = (
            part[index] for part in (self.z, self.seen, self.log_ratio, self.scores, self.lengths)
        )
        self.packing = self.model.layout(self.lengths)


def walk_whole(
    model: SequenceModel,
    evidence: Evidence,
    lengths: Int[Tensor, "k"],
    n: int,
    threshold: float,
    temperature: float,
    argmax: bool,
    progress: Progress | None,
) -> Drawn:
    """n sequences by as many particles as there are lengths, the longest of them first."""
    last = evidence.last
    cloud = Particles(len(lengths), last, threshold, lengths.device)
    if not last:  # nothing weighs, so nothing but what is asked for need be drawn
        lengths = lengths[cloud.select(n)]
    whole = Whole(model, evidence, lengths, temperature)
    before = whole.z.new_zeros(len(lengths))
    decided = 0
    stale = True
    for t in sorted(set(evidence.known.nonzero()[0].tolist())):
        if stale:
            whole.guess(decided)
            for step in range(decided, last):
                cloud.mark(step)
            stale = False
        log_known = whole.log_known()[:, : t + 1].sum(1)
        index = cloud.weigh(t, whole.log_ratio[:, t] + log_known - before)
        before, decided = log_known, t + 1
        if index is not None:
            whole.select(index)
            before, stale = before[index], True
        if progress:
            progress(decided, last)
    effective = cloud.effective_draws(last)
    if last:
        whole.select(cloud.select(n))
    if not whole.scores.isfinite().all():
        raise LatflowError(
            "z leaves the range of its numbers, so there is no x to draw; a lower temperature keeps it within "
            "(1 is the model's own)"
        )
    return Drawn(whole.filled(whole.scores, argmax), whole.lengths, cloud, effective)
