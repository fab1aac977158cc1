"""p(x_t | z_t) = q(z_t | x_t) p̃(x_t) / Σ_x q(z_t | x) p̃(x): Bayes' rule on the codebook; no network at all."""

from __future__ import annotations

from torch import Tensor, nn

from latflow.models.codes import Codes
from latflow.models.parts import Emission
from latflow.shapes import Float


class BayesEmission(Emission):
    """Scores are log q(z_t | x) + log p̃(x), for notes their log-odds; p̃ is learned from the `start` of its logits."""

    local = True

    def __init__(self, codes: Codes, start: Float[Tensor, "v"]):
        super().__init__()
        self.codes = codes
        self.logits = nn.Parameter(start.clone())

    def scores(self, z, alphabet, packing):
        return self.at(z)

    def at(self, z: Float[Tensor, "n h"]) -> Float[Tensor, "n v"]:
        """The scores of any rows: what the emission says of z_t depends on nothing else."""
        return self.codes.log_likelihoods(z) + self.logits
