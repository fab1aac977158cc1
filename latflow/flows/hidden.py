"""Layered flows over the H dimensions of one vector, conditional on a context (paper, section 3).

Each class is f(eps; context) of J layers of one kind, the order of the dimensions reversed from one layer to the
next; layer 0 is next to eps. Used alone, without context and without a sequence, each is an ordinary flow.

    kind             what the map of dimension d sees        forward (eps -> z)   inverse (z -> eps)
    Autoregressive   z_<d                                    serial over H        parallel
    SplitCoupling    the half that passes through            parallel             parallel
    Elementwise      nothing but the context                 parallel             parallel
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows.base import Transform
from latflow.flows.made import MADE, Conditioner, Weights
from latflow.flows.scalar import NLSq, ScalarTransform


class HiddenFlow(Transform):
    """J layers; every scalar map in them sees the context, which is projected for all layers in one GEMM."""

    def __init__(
        self,
        size: int,
        layers: int = 5,
        scalar: ScalarTransform | None = None,
        context_size: int = 0,
        units: int = 100,
        depth: int = 2,
    ):
        super().__init__()
        if size < 1 or layers < 1:
            raise ValueError(f"a flow needs at least 1 dimension and 1 layer, not {size} and {layers}")
        self.size, self.layers, self.context_size, self.units = size, layers, context_size, units
        self.scalar = NLSq() if scalar is None else scalar
        self.networks = nn.ModuleList(self._network(layer % 2 == 1, units, depth) for layer in range(layers))
        self.context_weight = None
        if context_size:
            self.context_weight = nn.Parameter(torch.empty(layers * units, context_size))
            nn.init.uniform_(self.context_weight, -1 / math.sqrt(context_size), 1 / math.sqrt(context_size))

    @abstractmethod
    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        """The network of one layer; `reverse` on every second one."""

    @abstractmethod
    def _layer_forward(
        self, layer: int, eps: Tensor, hidden: Tensor | None, weights: Weights
    ) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def _layer_inverse(
        self, layer: int, z: Tensor, hidden: Tensor | None, weights: Weights
    ) -> tuple[Tensor, Tensor]: ...

    def forward(self, eps, context=None, weights: Sequence[Weights] | None = None):
        self._check(eps, context)
        z, total, hidden = eps, eps.new_zeros(eps.shape[:-1]), self.project(context)
        weights = self.weights() if weights is None else weights
        for layer in range(self.layers):
            z, logdet = self._layer_forward(layer, z, hidden[layer], weights[layer])
            total = total + logdet
        return z, total

    def inverse(self, z, context=None, weights: Sequence[Weights] | None = None):
        self._check(z, context)
        eps, total, hidden = z, z.new_zeros(z.shape[:-1]), self.project(context)
        weights = self.weights() if weights is None else weights
        for layer in reversed(range(self.layers)):
            eps, logdet = self._layer_inverse(layer, eps, hidden[layer], weights[layer])
            total = total + logdet
        return eps, total

    def weights(self) -> list[Weights]:
        """The weights of all layers as applied. A serial pass computes them once and hands them to every step."""
        return [self.network(layer).weights() for layer in range(self.layers)]

    def network(self, layer: int) -> Conditioner:
        network = self.networks[layer]
        assert isinstance(network, Conditioner)
        return network

    def project(self, context: Tensor | None) -> Sequence[Tensor | None]:
        """What each layer's network adds to its first hidden layer: one GEMM for all layers."""
        if self.context_weight is None or context is None:
            return [None] * self.layers
        return F.linear(context, self.context_weight).split(self.units, -1)

    def _check(self, point: Tensor, context: Tensor | None) -> None:
        if point.shape[-1] != self.size:
            raise ValueError(
                f"the last axis must have the flow's {self.size} dimensions, was given shape {tuple(point.shape)}"
            )
        given = 0 if context is None else context.shape[-1]
        if given != self.context_size:
            raise ValueError(f"this flow was built for a context of size {self.context_size}, was given {given}")


class Autoregressive(HiddenFlow):
    """f_AF: eps_d = s^-1(z_d; raw(z_<d, context)), J times (section 3, AF)."""

    def _network(self, reverse: bool, units: int, depth: int) -> MADE:
        return MADE(self.size, self.scalar.n_params, units, depth, reverse)

    def _layer_inverse(self, layer, z, hidden, weights):
        eps, logdet = self.scalar.inverse(z, self.network(layer)(z, hidden, weights))
        return eps, logdet.sum(-1)

    def _layer_forward(self, layer, eps, hidden, weights):
        """The plain way: a full pass of the network for every dimension, in its order."""
        network = self.network(layer)
        assert isinstance(network, MADE)
        order = range(self.size - 1, -1, -1) if network.reverse else range(self.size)
        columns = [torch.zeros_like(eps[..., 0])] * self.size
        total = eps.new_zeros(eps.shape[:-1])
        for d in order:
            raw = network(torch.stack(columns, -1), hidden, weights)[..., d, :]
            columns[d], logdet = self.scalar.forward(eps[..., d], raw)
            total = total + logdet
        return torch.stack(columns, -1), total


class SplitCoupling(HiddenFlow):
    """f_SCF: z_S = eps_S, and z_d = s(eps_d; raw(z_S, context)) for the others, J times (section 3, SCF).

    S is the first ⌊H/2⌋ dimensions, in reversed layers the last ⌊H/2⌋. With H = 1 nothing passes through and the
    map depends on the context alone.
    """

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        kept = self.size // 2
        return Conditioner(kept, self.size - kept, self.scalar.n_params, units, depth)

    def _layer_forward(self, layer, eps, hidden, weights):
        return self._couple(self.scalar.forward, layer, eps, hidden, weights)

    def _layer_inverse(self, layer, z, hidden, weights):
        return self._couple(self.scalar.inverse, layer, z, hidden, weights)

    def _couple(self, scalar_map, layer: int, y: Tensor, hidden: Tensor | None, weights: Weights):
        kept = self.size // 2
        reverse = layer % 2 == 1
        sizes = [self.size - kept, kept] if reverse else [kept, self.size - kept]
        halves = list(y.split(sizes, -1))
        moved, through = (0, 1) if reverse else (1, 0)
        halves[moved], logdet = scalar_map(halves[moved], self.network(layer)(halves[through], hidden, weights))
        return torch.cat(halves, -1), logdet.sum(-1)


class Elementwise(HiddenFlow):
    """z_d = s(eps_d; raw_d(context)), J times: no dependence across H (section 6.1, "- AF hidden")."""

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        return Conditioner(0, self.size, self.scalar.n_params, units, depth)

    def _layer_forward(self, layer, eps, hidden, weights):
        z, logdet = self.scalar.forward(eps, self.network(layer)(eps[..., :0], hidden, weights))
        return z, logdet.sum(-1)

    def _layer_inverse(self, layer, z, hidden, weights):
        eps, logdet = self.scalar.inverse(z, self.network(layer)(z[..., :0], hidden, weights))
        return eps, logdet.sum(-1)
