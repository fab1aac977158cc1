"""q(z | x) = Π_t N(z_t; μ(x_t), diag σ²(x_t)): the codebook as a posterior, which knows x_t alone."""

from __future__ import annotations

from latflow.models.codes import Codes
from latflow.models.parts import GaussianPosterior


class CodebookPosterior(GaussianPosterior):
    """The Gaussian of the code of x_t."""

    def __init__(self, codes: Codes):
        super().__init__()
        self.codes, self.latent_size = codes, codes.size

    def forward(self, x, alphabet, packing):
        return self.codes.of(x)
