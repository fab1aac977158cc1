"""Twins of the layered flows: weights prepared for a serial pass, units computed once, whole stacks compiled.

path                                   applies to
prepared weights (`SerialStep`)        every scalar map, both directions: the steps of a serial pass
unit by unit (`incremental_layer`)     every scalar map: generation of an autoregressive layer in torch
all layers of a step compiled          the maps of `layers.MAPS`: density with its gradient; NLSq: generation of SCF
masked generation compiled             the maps of `MAPS` and `MIXTURES`: an autoregressive flow without gradients
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.fast import compiled, layers
from latflow.fast.linear import DeferredWeight, across, defer, linear, linear_across
from latflow.fast.tied import ACCURACY
from latflow.flows.hidden import Autoregressive, Elementwise, HiddenFlow, Share, SplitCoupling
from latflow.flows.mixture import Mixture
from latflow.flows.network import MADE, Weights
from latflow.flows.scalar import Affine, NLSq, ScalarTransform
from latflow.flows.tied import TiedScalar
from latflow.flows.transform import Direction, Step

MAPS: dict[type[ScalarTransform], tuple[str, Callable[[Any], tuple[float, ...]]]] = {
    NLSq: ("NLSQ", lambda scalar: (scalar.kappa_bound, *scalar.scale)),
    Affine: ("AFFINE", lambda scalar: (0.0, scalar.scale, 0.0, 0.0)),
}
"""Scalar maps that the kernel of generation knows: its name for them, and their constants."""
MIXTURES: tuple[type[ScalarTransform], ...] = (Mixture, TiedScalar)
"""Those that its twin for mixtures knows, which also has the skip."""


class SerialStep:
    """The stepper of a layered flow: every weight prepared once for all steps."""

    def __init__(self, flow: HiddenFlow, direction: Direction):
        self.flow, self.direction = flow, direction
        self.context = None if flow.context_weight is None else defer(flow.context_weight)
        self.skip = None if flow.skip_weight is None else defer(flow.skip_weight)
        self.networks = [_prepared(weights) for weights in flow.weights()]
        self.stack = self.compiled = None
        if (
            type(flow.scalar) in layers.MAPS
            and type(flow) in (Autoregressive, SplitCoupling, Elementwise)
            and compiled.layer_kernels(*flow.parameters()) is not None
        ):
            dropout = flow.network(0).dropout if flow.training else 0.0
            self.stack = [
                layers.Layer(network, *flow.dimensions(layer % 2 == 1), dropout)
                for layer, network in enumerate(self.networks)
            ]
        if direction == "forward":
            self.compiled = _compiled_weights(flow)
        self.given = None
        if self.compiled is not None and self.context is not None and type(flow.scalar) in MIXTURES:
            self.given = _given_weight(flow)

    def __call__(self, point: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        flow = self.flow
        flow.check(point, context)
        if self.compiled is not None and type(flow.scalar) in MIXTURES:
            if point.ndim > 1 and point.numel() > 0 and _kernels(flow, *_given(point, context)) is not None:
                return _generate_mixtures(flow, point, context, self.given, self.compiled)
        elif (
            self.direction == "forward" and _can_generate(flow, point, context) and self.compiled is not None
        ):
            hidden = None if context is None else self._projected_across(context)
            return _generate(flow, point, hidden, self.compiled)
        if self.stack is not None and point.ndim == 2 and self._stack_applies(point, context):
            hidden, skip = (
                None if context is None or weight is None else linear(context, weight)
                for weight in (self.context, self.skip)
            )
            if self.direction == "inverse":
                return layers.density(point, hidden, skip, self.stack, flow.scalar)
            assert isinstance(flow.scalar, NLSq)
            return layers.generate(point, hidden, self.stack, flow.scalar)
        shares, total = self._shares(context), point.new_zeros(point.shape[:-1])
        through = flow.layer_forward if self.direction == "forward" else flow.layer_inverse
        for layer in range(flow.layers) if self.direction == "forward" else reversed(range(flow.layers)):
            network = self.networks[layer]
            point, logdet = through(layer, point, shares[layer], Weights(network, [None] * len(network)))  # type: ignore[arg-type]
            total = total + logdet
        return point, total

    def _stack_applies(self, point: Tensor, context: Tensor | None) -> bool:
        given = _given(point, context)
        if self.direction == "inverse":
            return compiled.layer_kernels(*given) is not None
        return (
            type(self.flow.scalar) is NLSq
            and self.skip is None
            and type(self.flow) is not Autoregressive
            and compiled.generation_kernels(*given) is not None
        )

    def _shares(self, context: Tensor | None) -> list[Share]:
        flow = self.flow
        if context is None or self.context is None:
            return [Share()] * flow.layers
        hidden = linear(context, self.context).split(flow.units, -1)
        if self.skip is None:
            return [Share(part) for part in hidden]
        widths = [n.outputs * n.n_params for n in map(flow.network, range(flow.layers))]
        raw = linear(context, self.skip).split(widths, -1)
        return [Share(*parts) for parts in zip(hidden, raw, strict=True)]

    def _projected_across(self, context: Tensor) -> Tensor | None:
        if self.context is None:
            return None
        context = context.detach().reshape(-1, context.shape[-1])
        if across(len(context)):
            return linear_across(context.t(), self.context).contiguous()
        return linear(context, self.context)


@HiddenFlow.stepper.twin(lambda *_: True)
def serial_step(flow: HiddenFlow, direction: Direction) -> Step:
    return SerialStep(flow, direction)


def _prepared(weights: Weights) -> list[DeferredWeight]:
    return [defer(matrix, bias) for matrix, bias in zip(*weights, strict=True)]


def _drops(flow: HiddenFlow) -> bool:
    """Whether hidden units are dropped, which no generation unit by unit does."""
    return flow.training and flow.network(0).dropout > 0


def _given(point: Tensor, context: Tensor | None) -> tuple[Tensor, ...]:
    return (point,) if context is None else (point, context)


# Generation of an autoregressive flow.


def _can_generate(flow: HiddenFlow, eps: Tensor, context: Tensor | None = None) -> bool:
    return (
        type(flow) is Autoregressive
        and not _drops(flow)
        and eps.ndim > 1
        and eps.numel() > 0
        and _kernels(flow, *_given(eps, context), next(flow.parameters())) is not None
    )


def _kernels(flow: HiddenFlow, *tensors: Tensor) -> ModuleType | None:
    """Those that generate from this flow, if there are any for it and these tensors."""
    if type(flow.scalar) in MIXTURES:
        return compiled.mixture_kernels(*tensors)
    if type(flow.scalar) in MAPS and flow.skip_weight is None:
        return compiled.generation_kernels(*tensors)
    return None


@HiddenFlow.forward.twin(_can_generate)
def compiled_forward(flow: HiddenFlow, eps: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """All layers and dimensions by one compiled call."""
    flow.check(eps, context)
    weights, hidden = _compiled_weights(flow), None
    assert weights is not None
    if type(flow.scalar) in MIXTURES:
        matrix = None if flow.context_weight is None else _given_weight(flow)
        return _generate_mixtures(flow, eps, context, matrix, weights)
    if context is not None and flow.context_weight is not None:
        hidden = F.linear(context.detach().reshape(-1, context.shape[-1]), flow.context_weight)
    return _generate(flow, eps, hidden, weights)


def _generate(flow: HiddenFlow, eps: Tensor, hidden: Tensor | None, weights: tuple) -> tuple[Tensor, Tensor]:
    kernels = compiled.generation_kernels(eps)
    assert kernels is not None
    rows = eps.detach().reshape(-1, flow.size)
    if hidden is None:
        hidden = rows.new_zeros(len(rows), flow.layers * flow.units)
    given = hidden.view(-1, flow.layers, flow.units)
    z, logdet = kernels.made_forward(rows.contiguous().numpy(), given.numpy(), *weights)
    return torch.from_numpy(z).view_as(eps), torch.from_numpy(logdet).view(eps.shape[:-1])


def _generate_mixtures(
    flow: HiddenFlow, eps: Tensor, context: Tensor | None, matrix: Tensor | None, weights: tuple
) -> tuple[Tensor, Tensor]:
    kernels = compiled.mixture_kernels(eps)
    assert kernels is not None
    rows = eps.reshape(-1, flow.size).contiguous()
    if context is None or matrix is None:
        given = rows.new_zeros(flow.layers * flow.units, len(rows))
    else:
        given = matrix @ context.reshape(-1, context.shape[-1]).t()
    z, logdet = kernels.mixtures_forward(rows.numpy(), given.numpy(), *weights)
    return torch.from_numpy(z).view_as(eps), torch.from_numpy(logdet).view(eps.shape[:-1])


def _given_weight(flow: HiddenFlow) -> Tensor:
    """What makes of the context all that it adds, one matrix for networks and skip."""
    return torch.cat(
        [weight.detach() for weight in (flow.context_weight, flow.skip_weight) if weight is not None]
    )


def _compiled_weights(flow: HiddenFlow) -> tuple | None:
    """The weights as the kernel takes them, if there is one for them."""
    if type(flow) is not Autoregressive or _drops(flow):
        return None
    if (kernels := _kernels(flow, *flow.parameters())) is None:
        return None
    matrices, biases = zip(*flow.weights(), strict=True)
    shape = (flow.scalar.n_params, flow.size)
    first = torch.stack([layer[0] for layer in matrices])
    between = first.new_empty(flow.layers, 0, flow.units, flow.units)
    if len(matrices[0]) > 2:
        between = torch.stack([torch.stack(layer[1:-1]) for layer in matrices])
    arrays = (
        first,
        between,
        torch.stack([torch.stack(layer[:-1]) for layer in biases]),
        torch.stack([layer[-1].view(*shape, flow.units) for layer in matrices]),
        torch.stack([layer[-1].view(shape) for layer in biases]),
        torch.tensor(_made(flow, 0).starts),
    )
    arrays = tuple(array.numpy() for array in arrays)
    if type(flow.scalar) in MIXTURES:
        columns = first.transpose(1, 2).contiguous().numpy()
        return columns, *arrays, _components(flow.scalar), ACCURACY[first.dtype][1]
    name, constants = MAPS[type(flow.scalar)]
    return *arrays, getattr(kernels, name), constants(flow.scalar)


def _components(scalar: ScalarTransform) -> Any:
    """Means and log scales (2, H, K) of components that are given; none where the network gives them."""
    if not isinstance(scalar, TiedScalar):
        return torch.empty(2, 0, 0, dtype=torch.float64).numpy()
    return torch.stack([part.detach().double() for part in scalar.components()]).numpy()


def _made(flow: HiddenFlow, layer: int) -> MADE:
    network = flow.network(layer)
    assert isinstance(network, MADE)
    return network


@Autoregressive.layer_forward.twin(lambda flow, *_: not _drops(flow))
def incremental_layer(
    flow: Autoregressive, layer: int, eps: Tensor, share: Share, weights: Weights
) -> tuple[Tensor, Tensor]:
    """Dimension after dimension, each unit computed once: those of degree r as soon as r dimensions are known."""
    network = _made(flow, layer)
    matrices = [matrix[0] if isinstance(matrix, DeferredWeight) else matrix for matrix in weights.matrices]
    biases: list[Any] = [
        matrix[1] if isinstance(matrix, DeferredWeight) else bias
        for matrix, bias in zip(weights.matrices, weights.biases, strict=True)
    ]
    reverse, size = network.reverse, flow.size
    known: list[list[Tensor]] = [[] for _ in range(len(matrices) - 1)]
    columns: list[Tensor] = []  # in the order of the dimensions, known ones only
    total = eps.new_zeros(eps.shape[:-1])
    for rank in range(size):
        d = size - 1 - rank if reverse else rank
        seen = slice(d + 1, size) if reverse else slice(0, d)
        block = slice(network.starts[rank], network.starts[rank + 1])
        upto = slice(0, network.starts[rank + 1])
        y = biases[0][block].expand(*eps.shape[:-1], -1)
        if rank:
            y = F.linear(torch.stack(columns, -1), matrices[0][block, seen], biases[0][block])
        known[0].append(F.relu(y if share.hidden is None else y + share.hidden[..., block]))
        for k in range(1, len(known)):
            below = torch.cat(known[k - 1], -1)
            known[k].append(F.relu(F.linear(below, matrices[k][block, upto], biases[k][block])))
        below = torch.cat(known[-1], -1)
        raw = F.linear(below, matrices[-1][d::size, upto], biases[-1][d::size])
        raw = raw if share.raw is None else raw + share.raw[..., d::size]
        z, logdet = flow.scalar.at(d).forward(eps[..., d], raw)
        columns.insert(0 if reverse else rank, z)
        total = total + logdet
    return torch.stack(columns, -1), total
