"""The observed alphabet: how a step x_t is embedded, and how scores become a distribution over it (section 4.1)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.shapes import Float

EMBEDDING_RANGE = 0.07


class Alphabet(nn.Module, ABC):
    """V symbols with an embedding each; scores are (n, V).

    Where no part of a model embeds symbols (`embedded`) or scores features (`scored`), there are no weights for it.
    """

    embedding: Tensor
    bias: Tensor
    never: int | None = None
    """A symbol that is scored and never drawn: that for what training did not see."""

    def __init__(
        self, size: int, embedding_size: int, tied: bool, embedded: bool = True, scored: bool = True
    ):
        super().__init__()
        self.size = size
        self._weight("embedding", torch.empty(size, embedding_size), embedded)
        nn.init.uniform_(self.embedding, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.output = None
        if scored and not tied:
            self.output = nn.Parameter(torch.empty(size, embedding_size))
            nn.init.uniform_(self.output, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self._weight("bias", torch.zeros(size), scored)

    def _weight(self, name: str, value: Tensor, used: bool) -> None:
        if used:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value, persistent=False)

    @torch.no_grad()
    def start_at(self, bias: Float[Tensor, "v"]) -> None:
        """Begin with these scores of the symbols where nothing is known."""
        self.bias.copy_(bias)

    def scores(self, features: Float[Tensor, "n e"]) -> Float[Tensor, "n v"]:
        """Scores from features of the embedding's size; tied, the embedding is the output matrix."""
        return F.linear(features, self.output_matrix, self.bias)

    @property
    def output_matrix(self) -> Float[Tensor, "v e"]:
        return self.embedding if self.output is None else self.output

    def embed(self, x: Tensor) -> Float[Tensor, "n e"]:
        """Rows of x to vectors."""
        return self.look_up(x, self.embedding)

    @abstractmethod
    def look_up(self, x: Tensor, table: Float[Tensor, "v k"]) -> Float[Tensor, "n k"]:
        """Rows of x to vectors of a table of V rows: the embedding, or its product with what comes next."""

    @abstractmethod
    def log_prob(self, scores: Float[Tensor, "n v"], x: Tensor) -> Float[Tensor, "n"]:
        """log p(x_t) in nats."""

    @abstractmethod
    def noise(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n v"]:
        """Noise whose sum with the scores, decided, is a draw: so the noise of all steps can be drawn beforehand."""

    @abstractmethod
    def decide(self, scores: Float[Tensor, "n v"]) -> Tensor:
        """Rows of x: the most likely."""

    def sample(self, scores: Float[Tensor, "n v"], argmax: bool, generator: torch.Generator | None) -> Tensor:
        """Rows of x: drawn, or the most likely."""
        return self.decide(scores if argmax else scores + self.noise(len(scores), generator))


class Categorical(Alphabet):
    """One symbol per step: x is (n,) of whole numbers below V."""

    def look_up(self, x, table):
        return F.embedding(x.long(), table)

    def log_prob(self, scores, x):
        return -F.cross_entropy(scores, x.long(), reduction="none")

    def noise(self, n, generator=None):
        # The largest of scores plus Gumbel noise is a draw from their softmax.
        return -self.bias.new_empty(n, self.size).exponential_(generator=generator).log()

    def decide(self, scores):
        if self.never is not None:
            scores = scores.clone()
            scores[..., self.never] = -math.inf
        return scores.argmax(-1)


class Bernoulli(Alphabet):
    """Any set of V notes per step, independent given the scores: x is (n, V) of zeros and ones."""

    def look_up(self, x, table):
        return x.to(table.dtype) @ table

    def log_prob(self, scores, x):
        return -F.binary_cross_entropy_with_logits(scores, x.to(scores.dtype), reduction="none").sum(-1)

    def noise(self, n, generator=None):
        # A score plus logistic noise is positive with the probability sigmoid(score).
        u = torch.rand(n, self.size, generator=generator, dtype=self.bias.dtype, device=self.bias.device)
        return torch.logit(u)

    def decide(self, scores):
        return (scores > 0).to(scores.dtype)
