"""How a context reads y_t: the numbers themselves, or a function of them. Never more than step t itself, so that every
flow stays what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from latflow.flows.network import linear
from latflow.flows.seam import replaceable
from latflow.shapes import Float


class Reading(nn.Module, ABC):
    """A vector of `size` features from y_t of any row."""

    size: int

    @abstractmethod
    def forward(self, y: Float[Tensor, "n h"]) -> Float[Tensor, "n size"]: ...

    def stepper(self) -> Callable[[Tensor], Tensor]:
        """The same, holding what all steps of a serial pass share."""
        return self


class Raw(Reading):
    """y_t as it is."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def forward(self, y):
        return y


class Layer(Reading):
    """tanh(A y_t + b).

    A linear map of few numbers hardly tells apart the many modes of their density, and an LSTM that reads them so
    learns slowly. A starts so large that the units divide the region of a standard normal in different places.
    """

    def __init__(self, input_size: int, size: int):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.empty(size, input_size))
        self.bias = nn.Parameter(torch.empty(size))
        nn.init.normal_(self.weight)
        nn.init.uniform_(self.bias, -2, 2)

    def forward(self, y):
        return linear(y, self.weight, self.bias).tanh()

    @replaceable
    def stepper(self) -> Callable[[Tensor], Tensor]:
        return self
