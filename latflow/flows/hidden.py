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
import torch.nn.functional as F
from torch import Tensor, nn

from latflow.flows import fast, stack
from latflow.flows.base import Transform
from latflow.flows.deferred import DeferredWeight, across, defer, linear, linear_across
from latflow.flows.made import MADE, Conditioner, Weights
from latflow.flows.scalar import Affine, NLSq, ScalarTransform


class Prepared(NamedTuple):
    """The weights of all layers as applied, and that of the context: what every step of a serial pass shares."""

    networks: Sequence[Weights]
    context: Tensor | DeferredWeight | None
    compiled: tuple | None = None
    """The same for the compiled kernel, where it can be used."""
    stack: list[stack.Layer] | None = None
    """The same for all layers of a step at once (`stack`), where that can be used."""


class HiddenFlow(Transform):
    """J layers; every scalar map in them sees the context, which is projected for all layers in one GEMM."""

    serial = False
    """Whether `forward` goes through the dimensions one after the other."""

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
    def _dimensions(self, reverse: bool) -> tuple[slice, slice]:
        """The dimensions that a layer's network sees and those that the layer moves."""

    @abstractmethod
    def _layer_forward(
        self, layer: int, eps: Tensor, hidden: Tensor | None, weights: Weights
    ) -> tuple[Tensor, Tensor]: ...

    @abstractmethod
    def _layer_inverse(
        self, layer: int, z: Tensor, hidden: Tensor | None, weights: Weights
    ) -> tuple[Tensor, Tensor]: ...

    def forward(self, eps, context=None, prepared: Prepared | None = None):
        self._check(eps, context)
        networks, context_weight, _, layers = self.prepare() if prepared is None else prepared
        if (
            layers is not None
            and isinstance(self.scalar, NLSq)
            and eps.ndim == 2
            and not self.serial
            and fast.kernels(*_given(eps, context)) is not None
        ):
            return stack.generate(eps, self._projected(context, context_weight), layers, self.scalar)
        z, total, hidden = eps, eps.new_zeros(eps.shape[:-1]), self.project(context, context_weight)
        for layer in range(self.layers):
            z, logdet = self._layer_forward(layer, z, hidden[layer], networks[layer])
            total = total + logdet
        return z, total

    def inverse(self, z, context=None, prepared: Prepared | None = None):
        self._check(z, context)
        networks, context_weight, _, layers = self.prepare() if prepared is None else prepared
        if (
            layers is not None
            and isinstance(self.scalar, NLSq)
            and z.ndim == 2
            and fast.stack_kernels(*_given(z, context)) is not None
        ):
            return stack.density(z, self._projected(context, context_weight), layers, self.scalar)
        eps, total, hidden = z, z.new_zeros(z.shape[:-1]), self.project(context, context_weight)
        for layer in reversed(range(self.layers)):
            eps, logdet = self._layer_inverse(layer, eps, hidden[layer], networks[layer])
            total = total + logdet
        return eps, total

    def weights(self) -> list[Weights]:
        """The weights of all layers as applied."""
        return [self.network(layer).weights() for layer in range(self.layers)]

    def prepare(self, steps: bool = False) -> Prepared:
        """What a pass needs, computed once for however many `steps` it has."""
        if not steps:
            return Prepared(self.weights(), self.context_weight)
        context = None if self.context_weight is None else defer(self.context_weight)
        networks = [weights.deferred() for weights in self.weights()]
        layers = None
        if type(self.scalar) is NLSq and fast.stack_kernels(*self.parameters()) is not None:
            layers = [
                stack.Layer(weights.prepared(), *self._dimensions(layer % 2 == 1))
                for layer, weights in enumerate(networks)
            ]
        return Prepared(networks, context, stack=layers)

    def network(self, layer: int) -> Conditioner:
        network = self.networks[layer]
        assert isinstance(network, Conditioner)
        return network

    def project(
        self, context: Tensor | None, weight: Tensor | DeferredWeight | None = None
    ) -> Sequence[Tensor | None]:
        """What each layer's network adds to its first hidden layer: one GEMM for all layers."""
        projected = self._projected(context, self.context_weight if weight is None else weight)
        return [None] * self.layers if projected is None else projected.split(self.units, -1)

    def _projected(self, context: Tensor | None, weight: Tensor | DeferredWeight | None) -> Tensor | None:
        return None if context is None or weight is None else linear(context, weight)

    def _check(self, point: Tensor, context: Tensor | None) -> None:
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


def _given(point: Tensor, context: Tensor | None) -> tuple[Tensor, ...]:
    return (point,) if context is None else (point, context)


class Autoregressive(HiddenFlow):
    """f_AF: eps_d = s^-1(z_d; raw(z_<d, context)), J times (section 3, AF)."""

    serial = True

    def _network(self, reverse: bool, units: int, depth: int) -> MADE:
        return MADE(self.size, self.scalar.n_params, units, depth, reverse)

    def _dimensions(self, reverse: bool) -> tuple[slice, slice]:
        return slice(0, self.size), slice(0, self.size)

    def _layer_inverse(self, layer, z, hidden, weights):
        eps, logdet = self.scalar.inverse(z, self.network(layer)(z, hidden, weights))
        return eps, logdet.sum(-1)

    def forward(self, eps, context=None, prepared: Prepared | None = None):
        self._check(eps, context)
        if (
            eps.ndim == 1
            or eps.numel() == 0
            or (kernels := fast.kernels(*_given(eps, context), next(self.parameters()))) is None
        ):
            return super().forward(eps, context, prepared)
        prepared = self.prepare() if prepared is None else prepared
        compiled = self._compiled() if prepared.compiled is None else prepared.compiled
        if compiled is None:
            return super().forward(eps, context, prepared)
        rows = eps.detach().reshape(-1, self.size)
        weight = prepared.context
        if weight is None or context is None:
            hidden = rows.new_zeros(len(rows), self.layers, self.units)
        else:
            context = context.detach().reshape(len(rows), -1)
            if isinstance(weight, DeferredWeight) and across(len(rows)):
                hidden = linear_across(context.t(), weight).contiguous()
            else:
                hidden = linear(context, weight)
            hidden = hidden.view(-1, self.layers, self.units)
        z, logdet = kernels.made_forward(rows.contiguous().numpy(), hidden.numpy(), *compiled)
        return torch.from_numpy(z).view_as(eps), torch.from_numpy(logdet).view(eps.shape[:-1])

    def prepare(self, steps: bool = False) -> Prepared:
        prepared = super().prepare(steps)
        return prepared._replace(compiled=self._compiled()) if steps else prepared

    def _compiled(self) -> tuple | None:
        """The weights as the kernel takes them, if there is one for them."""
        settings = _kernel_settings(self.scalar)
        if settings is None or (kernels := fast.kernels(*self.parameters())) is None:
            return None
        networks = [self.network(layer) for layer in range(self.layers)]
        matrices, biases = zip(*(network.weights().plain() for network in networks), strict=True)
        shape = (self.scalar.n_params, self.size)
        first = torch.stack([layer[0] for layer in matrices])
        between = first.new_empty(self.layers, 0, self.units, self.units)
        if len(matrices[0]) > 2:
            between = torch.stack([torch.stack(layer[1:-1]) for layer in matrices])
        arrays = (
            first,
            between,
            torch.stack([torch.stack(layer[:-1]) for layer in biases]),
            torch.stack([layer[-1].view(*shape, self.units) for layer in matrices]),
            torch.stack([layer[-1].view(shape) for layer in biases]),
            torch.tensor(_made(networks[0]).starts),
        )
        kind = kernels.NLSQ if isinstance(self.scalar, NLSq) else kernels.AFFINE
        return *(array.numpy() for array in arrays), kind, settings

    def _layer_forward(self, layer, eps, hidden, weights):
        """Dimension after dimension, each unit computed once: those of degree r as soon as r dimensions are known."""
        network = _made(self.network(layer))
        matrices, biases = weights.plain()
        reverse, size = network.reverse, self.size
        known: list[list[Tensor]] = [[] for _ in range(len(matrices) - 1)]
        columns: list[Tensor] = []  # in the order of the dimensions, known ones only
        total = eps.new_zeros(eps.shape[:-1])
        for rank in range(size):
            d = size - 1 - rank if reverse else rank
            seen = slice(d + 1, size) if reverse else slice(0, d)
            block, upto = (
                slice(network.starts[rank], network.starts[rank + 1]),
                slice(0, network.starts[rank + 1]),
            )
            y = biases[0][block].expand(*eps.shape[:-1], -1)
            if rank:
                y = F.linear(torch.stack(columns, -1), matrices[0][block, seen], biases[0][block])
            known[0].append(F.relu(y if hidden is None else y + hidden[..., block]))
            for k in range(1, len(known)):
                below = torch.cat(known[k - 1], -1)
                known[k].append(F.relu(F.linear(below, matrices[k][block, upto], biases[k][block])))
            below = torch.cat(known[-1], -1)
            raw = F.linear(below, matrices[-1][d::size, upto], biases[-1][d::size])
            z, logdet = self.scalar.forward(eps[..., d], raw)
            columns.insert(0 if reverse else rank, z)
            total = total + logdet
        return torch.stack(columns, -1), total

    def forward_plain(self, eps: Tensor, context: Tensor | None = None, prepared: Prepared | None = None):
        """The straightforward way, a full pass of every network for every dimension, its context included: the
        reference in tests."""
        self._check(eps, context)
        networks = (self.prepare() if prepared is None else prepared).networks
        z, total = eps, eps.new_zeros(eps.shape[:-1])
        for layer in range(self.layers):
            network = _made(self.network(layer))
            columns = [torch.zeros_like(z[..., 0])] * self.size
            for d in range(self.size - 1, -1, -1) if network.reverse else range(self.size):
                hidden = None
                if context is not None and self.context_weight is not None:
                    hidden = F.linear(context, self.context_weight[layer * self.units :][: self.units])
                raw = network(torch.stack(columns, -1), hidden, networks[layer])[..., d, :]
                columns[d], logdet = self.scalar.forward(z[..., d], raw)
                total = total + logdet
            z = torch.stack(columns, -1)
        return z, total


def _made(network: Conditioner) -> MADE:
    assert isinstance(network, MADE)
    return network


def _kernel_settings(scalar: ScalarTransform) -> tuple[float, ...] | None:
    """The constants of a scalar map that has a kernel: the factor of tanh, and the scales of b', c', d'."""
    if type(scalar) is NLSq:
        return (scalar.kappa_bound, *scalar.scale)
    if type(scalar) is Affine:
        return (0.0, scalar.scale, 0.0, 0.0)
    return None


class SplitCoupling(HiddenFlow):
    """f_SCF: z_S = eps_S, and z_d = s(eps_d; raw(z_S, context)) for the others, J times (section 3, SCF).

    S is the first ⌊H/2⌋ dimensions, in reversed layers the last ⌊H/2⌋. With H = 1 nothing passes through and the
    map depends on the context alone.
    """

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        kept = self.size // 2
        return Conditioner(kept, self.size - kept, self.scalar.n_params, units, depth)

    def _dimensions(self, reverse: bool) -> tuple[slice, slice]:
        kept = self.size // 2
        border = self.size - kept if reverse else kept
        first, last = slice(0, border), slice(border, self.size)
        return (last, first) if reverse else (first, last)

    def _layer_forward(self, layer, eps, hidden, weights):
        return self._couple(self.scalar.forward, layer, eps, hidden, weights)

    def _layer_inverse(self, layer, z, hidden, weights):
        return self._couple(self.scalar.inverse, layer, z, hidden, weights)

    def _couple(self, scalar_map, layer: int, y: Tensor, hidden: Tensor | None, weights: Weights):
        through, moved = self._dimensions(layer % 2 == 1)
        passed = y[..., through]
        result, logdet = scalar_map(y[..., moved], self.network(layer)(passed, hidden, weights))
        halves = (passed, result) if moved.start else (result, passed)
        return torch.cat(halves, -1), logdet.sum(-1)


class Elementwise(HiddenFlow):
    """z_d = s(eps_d; raw_d(context)), J times: no dependence across H (section 6.1, "- AF hidden")."""

    def _network(self, reverse: bool, units: int, depth: int) -> Conditioner:
        return Conditioner(0, self.size, self.scalar.n_params, units, depth)

    def _dimensions(self, reverse: bool) -> tuple[slice, slice]:
        return slice(0, 0), slice(0, self.size)

    def _layer_forward(self, layer, eps, hidden, weights):
        z, logdet = self.scalar.forward(eps, self.network(layer)(eps[..., :0], hidden, weights))
        return z, logdet.sum(-1)

    def _layer_inverse(self, layer, z, hidden, weights):
        eps, logdet = self.scalar.inverse(z, self.network(layer)(z[..., :0], hidden, weights))
        return eps, logdet.sum(-1)
