"""All J layers at one step of a serial pass, compiled: the density as one node of the graph, and generation.

Layer by layer a step is some forty calls of torch for a few rows, more than a hundred where a root is solved, and as
many nodes for autograd: the calls cost more than the numbers. Here a layer is its products and one compiled call, and
the same backwards; weight gradients wait on the tapes of `deferred` as in every serial pass. `HiddenFlow.inverse` and
`forward` do the same without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.first_order import first_order
from latflow.fast.linear import DeferredWeight
from latflow.flows.mixture import Mixture
from latflow.flows.scalar import NLSq, ScalarTransform
from latflow.shapes import Float

MAPS: dict[type[ScalarTransform], tuple[str, Callable[[Any], tuple[float, ...]]]] = {
    NLSq: ("nlsq_density", lambda scalar: (scalar.kappa_bound, *scalar.scale)),
    Mixture: ("mixture_density", lambda scalar: (scalar.components,)),
}
"""Scalar maps whose densities are compiled: the kernel's name, and their constants."""


class Layer(NamedTuple):
    """What one layer does: raw parameters from the dimensions that its network sees, for those that it moves."""

    network: Sequence[DeferredWeight]
    seen: slice
    moved: slice
    dropout: float
    """Of hidden units, in this pass."""


def density(
    z: Float[Tensor, "n h"],
    hidden: Float[Tensor, "n units"] | None,
    skip: Float[Tensor, "n raw"] | None,
    layers: Sequence[Layer],
    scalar: ScalarTransform,
) -> tuple[Float[Tensor, "n h"], Float[Tensor, "n"]]:
    """eps and log |det deps/dz|. `hidden` is what is added to the first hidden layers of the networks, `skip` to what
    they put out, side by side."""
    weights = [part for layer in layers for weight in layer.network for part in weight[:2]]
    return _Density.apply(z, hidden, skip, layers, scalar, *weights)


def generate(
    eps: Float[Tensor, "n h"], hidden: Float[Tensor, "n units"] | None, layers: Sequence[Layer], scalar: NLSq
) -> tuple[Float[Tensor, "n h"], Float[Tensor, "n"]]:
    """z and log |det dz/deps|, without gradients, of layers that do not see what they move."""
    kernels = compiled.generation_kernels(eps)
    assert kernels is not None
    settings = (scalar.kappa_bound, *scalar.scale)
    z, logdet = eps, eps.new_zeros(len(eps))
    for layer, share in zip(layers, _shares(hidden, layers), strict=True):
        raw, before, z = _network(layer, z, share)[-1], z, z.clone()
        given = _arrays(before, raw.view(len(raw), 5, -1))
        kernels.scalar_forward(*given, layer.moved.start, kernels.NLSQ, settings, *_arrays(z, logdet))
    return z, logdet


def _shares(hidden: Tensor | None, layers: Sequence[Layer]) -> Sequence[Tensor | None]:
    return [None] * len(layers) if hidden is None else hidden.chunk(len(layers), -1)


def _skips(skip: Tensor | None, layers: Sequence[Layer]) -> Sequence[Tensor | None]:
    widths = [len(layer.network[-1].matrix) for layer in layers]
    return [None] * len(layers) if skip is None else skip.split(widths, -1)


def _network(layer: Layer, y: Tensor, share: Tensor | None, skip: Tensor | None = None) -> list[Tensor]:
    """What the layers of a network put out, the last of them raw parameters."""
    values = [y[:, layer.seen]]
    for k, (matrix, bias, _) in enumerate(layer.network):
        value = F.linear(values[-1], matrix, bias)
        if k == 0 and share is not None:
            value += share
        values.append(
            value
            if k + 1 == len(layer.network)
            else F.dropout(value.relu_(), layer.dropout, layer.dropout > 0)
        )
    if skip is not None:
        values[-1] += skip
    return values[1:]


class _Density(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx,
        z: Tensor,
        hidden: Tensor | None,
        skip: Tensor | None,
        layers: Sequence[Layer],
        scalar: ScalarTransform,
        *_: Tensor,
    ):
        kernels = compiled.layer_kernels(z)
        assert kernels is not None
        name, constants = MAPS[type(scalar)]
        work, settings = getattr(kernels, name), constants(scalar)
        z = z.detach()
        logdet = z.new_zeros(len(z))
        kept: list[Tensor] = []
        shares = zip(layers, _shares(hidden, layers), _skips(skip, layers), strict=True)
        for layer, share, raw in reversed(list(shares)):
            values, eps = _network(layer, z, share, raw), z.clone()
            given = _arrays(z, values[-1].view(len(z), scalar.n_params, -1))
            work(*given, layer.moved.start, *settings, *_arrays(eps, logdet))
            kept += [z, *values]
            z = eps
        ctx.layers, ctx.scalar, ctx.settings = layers, scalar, settings
        ctx.save_for_backward(*kept, *(weight.matrix for layer in layers for weight in layer.network))
        return z, logdet

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor, grad_logdet: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        kernels = compiled.layer_kernels(grad, grad_logdet)
        assert kernels is not None
        work = getattr(kernels, f"{MAPS[type(ctx.scalar)][0]}_gradient")
        layers: Sequence[Layer] = ctx.layers
        depth = len(layers[0].network)
        saved = list(ctx.saved_tensors)
        matrices = saved[-depth * len(layers) :]
        grad, grad_logdet = grad.contiguous().clone(), grad_logdet.contiguous()
        shares, skips = [], []
        for j, layer in enumerate(layers):  # layer 0 came last
            at = (len(layers) - 1 - j) * (depth + 1)
            z, *values = saved[at : at + depth + 1]
            inputs, outputs = [z[:, layer.seen], *values[:-1]], values[-1]
            below = outputs.clone()
            given = _arrays(z, below.view(len(z), ctx.scalar.n_params, -1))
            work(*given, layer.moved.start, *ctx.settings, *_arrays(grad, grad_logdet))
            skips.append(below)
            for k in range(depth - 1, -1, -1):
                if ctx.needs_input_grad[5 + 2 * (j * depth + k)]:
                    layer.network[k].tape.add(inputs[k], below)
                if k > 0:
                    # Zero where a unit is off or dropped; the others were scaled up by what is left of them.
                    below = torch.ops.aten.threshold_backward(below @ matrices[j * depth + k], inputs[k], 0)
                    if 0 < layer.dropout < 1:
                        below /= 1 - layer.dropout
            shares.append(below)
            grad[:, layer.seen] += below @ matrices[j * depth]
        hidden = torch.cat(shares, -1) if ctx.needs_input_grad[1] else None
        skip = torch.cat(skips, -1) if ctx.needs_input_grad[2] else None
        return grad, hidden, skip, None, None, *[None] * (2 * depth * len(layers))


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().numpy() for tensor in tensors]
