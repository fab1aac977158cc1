"""The observed alphabet: how a step x_t is embedded, and how scores become a distribution over it (section 4.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.shapes import Float

EMBEDDING_RANGE = 0.07


class Alphabet(nn.Module, ABC):
    """V symbols with an embedding each; scores are (n, V)."""

    def __init__(self, size: int, embedding_size: int, tied: bool):
        super().__init__()
        self.size = size
        self.embedding = nn.Parameter(torch.empty(size, embedding_size))
        nn.init.uniform_(self.embedding, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.output = None
        if not tied:
            self.output = nn.Parameter(torch.empty(size, embedding_size))
            nn.init.uniform_(self.output, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.bias = nn.Parameter(torch.zeros(size))

    def scores(self, features: Float[Tensor, "n e"]) -> Float[Tensor, "n v"]:
        """Scores from features of the embedding's size; tied, the embedding is the output matrix."""
        return F.linear(features, self.embedding if self.output is None else self.output, self.bias)

    @abstractmethod
    def embed(self, x: Tensor) -> Float[Tensor, "n e"]:
        """Rows of x to vectors."""

    @abstractmethod
    def log_prob(self, scores: Float[Tensor, "n v"], x: Tensor) -> Float[Tensor, "n"]:
        """log p(x_t) in nats."""

    @abstractmethod
    def sample(self, scores: Float[Tensor, "n v"], argmax: bool, generator: torch.Generator | None) -> Tensor:
        """Rows of x: drawn, or the most likely."""


class Categorical(Alphabet):
    """One symbol per step: x is (n,) of whole numbers below V."""

    def embed(self, x):
        return F.embedding(x, self.embedding)

    def log_prob(self, scores, x):
        return -F.cross_entropy(scores, x, reduction="none")

    def sample(self, scores, argmax, generator):
        if argmax:
            return scores.argmax(-1)
        return torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(-1)


class Bernoulli(Alphabet):
    """Any set of V notes per step, independent given the scores: x is (n, V) of zeros and ones."""

    def embed(self, x):
        return x.to(self.embedding.dtype) @ self.embedding

    def log_prob(self, scores, x):
        return -F.binary_cross_entropy_with_logits(scores, x.to(scores.dtype), reduction="none").sum(-1)

    def sample(self, scores, argmax, generator):
        probabilities = scores.sigmoid()
        if argmax:
            return (probabilities > 0.5).to(scores.dtype)
        return torch.bernoulli(probabilities, generator=generator)
