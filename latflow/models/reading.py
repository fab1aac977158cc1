"""The reading `symbols`: what the context reads of z_t is the symbol it expects there."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from latflow.flows import Reading
from latflow.flows.seam import replaceable
from latflow.models.emission.bayes import BayesEmission
from latflow.models.symbols import Alphabet
from latflow.shapes import Float


class SymbolsReading(Reading):
    """r_t = Σ_x p(x | z_t) e(x), the expected embedding under the emission; of notes, E[±1 | z_t] = tanh(score / 2).

    A function of z_t alone, so every flow stays valid, and what makes an LSTM over z learn as fast as one over symbols.
    """

    def __init__(self, emission: BayesEmission, alphabet: Alphabet):
        super().__init__()
        self.model = (emission, alphabet)  # a tuple: they are the model's own, not parts of this one
        self.size = alphabet.size if emission.codes.music else alphabet.embedding.shape[1]

    def forward(self, y: Float[Tensor, "n h"]) -> Float[Tensor, "n size"]:
        emission, alphabet = self.model
        scores = emission.at(y)
        if emission.codes.music:
            return (0.5 * scores).tanh()
        return scores.softmax(-1) @ alphabet.embedding

    @replaceable
    def stepper(self) -> Callable[[Tensor], Tensor]:
        return self
