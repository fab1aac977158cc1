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
from typing import NamedTuple

import torch
from torch import Tensor, nn

from latflow.flows.network import MADE, Conditioner, Weights, linear
from latflow.flows.scalar import NLSq, ScalarTransform
from latflow.flows.seam import replaceable
from latflow.flows.transform import Direction, Step, Transform, standard_normal_log_prob


class Share(NamedTuple):
    """What the context adds to one layer: to the first hidden layer of its network, and to the raw parameters."""

    hidden: Tensor | None = None
    raw: Tensor | None = None


class HiddenFlow(Transform):
    """J layers; every scalar map in them sees the context, which is projected for all layers in one GEMM.

    With `skip` the context also reaches the raw parameters directly, not only through the hidden units, of which the
    first dimensions of a masked network see few. `dropout` acts on the hidden units of the networks.
    """

    def __init__(
        self,
        size: int,
        layers: int = 5,
        scalar: ScalarTransform | None = None,
        context_size: int = 0,
        units: int = 100,
        depth: int = 2,
        skip: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if size < 1 or layers < 1:
            raise ValueError(f"a flow needs at least 1 dimension and 1 layer, not {size} and {layers}")
        if skip and not context_size:
            raise ValueError("a skip from the context needs a context; this flow is built without one")
        self.size, self.layers, self.context_size, self.units = size, layers, context_size, units
        self.scalar = NLSq() if scalar is None else scalar
        self.networks = nn.ModuleList(self._network(layer % 2 == 1, units, depth) for layer in range(layers))
        for network in self._all():
            network.dropout = dropout
        self.context_weight = self.skip_weight = None
        if context_size:
            self.context_weight = nn.Parameter(torch.empty(layers * units, context_size))
            nn.init.uniform_(self.context_weight, -1 / math.sqrt(context_size), 1 / math.sqrt(context_size))
        if skip:
            outputs = sum(network.outputs * network.n_params for network in self._all())
            self.skip_weight = nn.Parameter(torch.zeros(outputs, context_size))

    @abstractmethod
    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        """The network of one layer; `reverse` on every second one."""

    @abstractmethod
    def dimensions(self, reverse: bool) -> tuple[slice, slice]:
        """The dimensions that a layer's network sees and those that the layer moves."""

    @abstractmethod
    def layer_forward(
        self, layer: int, eps: Tensor, share: Share, weights: Weights
    ) -> tuple[Tensor, Tensor]: ...

    def layer_inverse(self, layer: int, z: Tensor, share: Share, weights: Weights) -> tuple[Tensor, Tensor]:
        return self._move("inverse", layer, z, share, weights)

    @replaceable
    def forward(self, eps, context=None):
        return self._through("forward", eps, context, self.weights())

    def inverse(self, z, context=None):
        return self._through("inverse", z, context, self.weights())

    def log_prob(self, z, context=None):
        """The change of variables; a scalar map that has a closed density needs no eps of the layer next to it."""
        if not self.scalar.direct:
            return super().log_prob(z, context)
        self.check(z, context)
        shares, total, weights = self.project(context), z.new_zeros(z.shape[:-1]), self.weights()
        for layer in reversed(range(1, self.layers)):
            z, logdet = self.layer_inverse(layer, z, shares[layer], weights[layer])
            total = total + logdet
        seen, moved = self.dimensions(reverse=False)
        raw = self.raw(0, z[..., seen], shares[0], weights[0])
        density = self.scalar.at(moved).log_prob(z[..., moved], raw).sum(-1)
        return total + density + standard_normal_log_prob(z[..., : moved.start])

    @replaceable
    def stepper(self, direction: Direction) -> Step:
        weights = self.weights()  # masked once for all steps
        return lambda point, context=None: self._through(direction, point, context, weights)

    def _through(
        self, direction: Direction, point: Tensor, context: Tensor | None, weights: Sequence[Weights]
    ) -> tuple[Tensor, Tensor]:
        """All layers, one after the other."""
        self.check(point, context)
        shares, total = self.project(context), point.new_zeros(point.shape[:-1])
        through = self.layer_forward if direction == "forward" else self.layer_inverse
        for layer in range(self.layers) if direction == "forward" else reversed(range(self.layers)):
            point, logdet = through(layer, point, shares[layer], weights[layer])
            total = total + logdet
        return point, total

    def _move(
        self, direction: Direction, layer: int, y: Tensor, share: Share, weights: Weights
    ) -> tuple[Tensor, Tensor]:
        """A layer whose network sees of `y` all that it needs: the moved dimensions change, the others pass through."""
        seen, moved = self.dimensions(layer % 2 == 1)
        scalar = self.scalar.at(moved)
        raw = self.raw(layer, y[..., seen], share, weights)
        result, logdet = (scalar.forward if direction == "forward" else scalar.inverse)(y[..., moved], raw)
        if moved.stop - moved.start < self.size:
            result = torch.cat([y[..., : moved.start], result, y[..., moved.stop :]], -1)
        return result, logdet.sum(-1)

    def raw(self, layer: int, seen: Tensor, share: Share, weights: Weights) -> Tensor:
        """The raw parameters of a layer from the dimensions that its network sees, (…, outputs, n_params)."""
        raw = self.network(layer)(seen, share.hidden, weights)
        return raw if share.raw is None else raw + self.network(layer).parameters_last(share.raw)

    def weights(self) -> list[Weights]:
        """The weights of all layers as applied."""
        return [network.weights() for network in self._all()]

    def network(self, layer: int) -> Conditioner:
        network = self.networks[layer]
        assert isinstance(network, Conditioner)
        return network

    def _all(self) -> list[Conditioner]:
        return [self.network(layer) for layer in range(self.layers)]

    def project(self, context: Tensor | None) -> list[Share]:
        """What the context adds to each layer: one GEMM for all layers, and one for what skips the networks."""
        if context is None or self.context_weight is None:
            return [Share()] * self.layers
        hidden = linear(context, self.context_weight).split(self.units, -1)
        if self.skip_weight is None:
            return [Share(part) for part in hidden]
        widths = [network.outputs * network.n_params for network in self._all()]
        raw = linear(context, self.skip_weight).split(widths, -1)
        return [Share(*parts) for parts in zip(hidden, raw, strict=True)]

    def check(self, point: Tensor, context: Tensor | None) -> None:
        """That point and context are of this flow's sizes."""
        if point.shape[-1] != self.size:
            raise ValueError(
                f"the last axis must have the flow's {self.size} dimensions, was given shape {tuple(point.shape)}"
            )
        given = 0 if context is None else context.shape[-1]
        if given != self.context_size:
            raise ValueError(
                f"this flow was built for a context of size {self.context_size}, was given {given}"
            )
        if context is not None and context.shape[:-1] != point.shape[:-1]:
            raise ValueError(
                f"the context needs the leading axes of the point, {tuple(point.shape[:-1])}, was given shape "
                f"{tuple(context.shape)}; `expand` repeats one vector"
            )


class Autoregressive(HiddenFlow):
    """f_AF: eps_d = s^-1(z_d; raw(z_<d, context)), J times (section 3, AF)."""

    def _network(self, reverse: bool, units: int, depth: int) -> MADE:
        return MADE(self.size, self.scalar.n_params, units, depth, reverse, self.scalar.start(self.size))

    def dimensions(self, reverse: bool) -> tuple[slice, slice]:
        return slice(0, self.size), slice(0, self.size)

    @replaceable
    def layer_forward(self, layer, eps, share, weights):
        """Dimension after dimension: each needs the parameters that those before it give."""
        reverse = layer % 2 == 1
        columns, total = [torch.zeros_like(eps[..., 0])] * self.size, eps.new_zeros(eps.shape[:-1])
        for d in reversed(range(self.size)) if reverse else range(self.size):
            raw = self.raw(layer, torch.stack(columns, -1), share, weights)[..., d, :]
            columns[d], logdet = self.scalar.at(d).forward(eps[..., d], raw)
            total = total + logdet
        return torch.stack(columns, -1), total


class SplitCoupling(HiddenFlow):
    """f_SCF: z_S = eps_S, and z_d = s(eps_d; raw(z_S, context)) for the others, J times (section 3, SCF).

    S is the first ⌊H/2⌋ dimensions, in reversed layers the last ⌊H/2⌋. With H = 1 nothing passes through and the
    map depends on the context alone.
    """

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        seen, moved = self.dimensions(reverse)
        start = self.scalar.start(self.size)
        return Conditioner(
            seen.stop - seen.start,
            moved.stop - moved.start,
            self.scalar.n_params,
            units,
            depth,
            None if start is None else start[moved],
        )

    def dimensions(self, reverse: bool) -> tuple[slice, slice]:
        kept = self.size // 2
        border = self.size - kept if reverse else kept
        first, last = slice(0, border), slice(border, self.size)
        return (last, first) if reverse else (first, last)

    def layer_forward(self, layer, eps, share, weights):
        return self._move("forward", layer, eps, share, weights)


class Elementwise(HiddenFlow):
    """z_d = s(eps_d; raw_d(context)), J times: no dependence across H (section 6.1, "- AF hidden")."""

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        return Conditioner(0, self.size, self.scalar.n_params, units, depth, self.scalar.start(self.size))

    def dimensions(self, reverse: bool) -> tuple[slice, slice]:
        return slice(0, 0), slice(0, self.size)

    def layer_forward(self, layer, eps, share, weights):
        return self._move("forward", layer, eps, share, weights)
