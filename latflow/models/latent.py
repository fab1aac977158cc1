"""The latent normalizing flow: p(T) p(z | T) p(x | z, T), trained with q(z | x) (sections 4 and 5)."""

from __future__ import annotations

from torch import Tensor

from latflow.data.base import DataSpec
from latflow.flows.packing import Packing
from latflow.flows.sequence import SequenceFlow
from latflow.models.base import SequenceModel
from latflow.models.emission import Emission
from latflow.models.length import LengthModel
from latflow.models.posterior import Posterior


class LatentSequenceModel(SequenceModel):
    """T ~ p(T), eps ~ N(0, I), z = f(eps; T), x_t ~ p(x_t | z, T)  (supplement D)."""

    exact = False

    def __init__(self, spec: DataSpec, prior: SequenceFlow, posterior: Posterior, emission: Emission):
        super().__init__()
        self.spec = spec
        self.length = LengthModel(spec.length_counts)
        self.prior, self.posterior, self.emission = prior, posterior, emission

    def _terms(self, x: Tensor, packing: Packing, samples: int) -> tuple[Tensor, Tensor]:
        rows = packing.pack(x)
        z, log_q = self.posterior.rsample(self.emission.alphabet.embed(rows), packing, samples)
        # Here the sample axis folds into the rows, and nowhere else.
        packing = packing.repeat(samples)
        log_p = self.prior.log_prob_rows(z, packing)
        log_emission = self.emission.log_prob(rows.repeat_interleave(samples, 0), z, packing)
        return _per_sample(log_emission, packing), _per_sample(log_q - log_p, packing)

    def _sample(self, packing, temperature, argmax, generator):
        z = self.prior.sample_rows(packing, temperature, generator)
        return self.emission.sample(z, packing, argmax, generator)


def _per_sample(rows: Tensor, packing: Packing) -> Tensor:
    """Rows to (b, s, t)."""
    values = packing.unpack(rows)
    return values[:, None] if packing.samples == 1 else values
