"""Twins of the mixture over a codebook: generation by one compiled call a step, the codebook prepared once; densities
of all codes as one product."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from latflow.fast import compiled
from latflow.flows.tied import TiedMixture, log_normals
from latflow.flows.transform import Direction, Step

ACCURACY = {torch.float64: (-53 * math.log(2), 3e-5), torch.float32: (-30 * math.log(2), 3e-3)}
"""log of the part ε of a tail that may be left out, and the step τ, in least scales, that may be the last: see the
kernels `tied` and `quantile`. Either is far below a rounding of the dtype."""


class TiedStep:
    """Generation, holding the codebook as the kernel takes it."""

    def __init__(self, flow: TiedMixture):
        self.flow = flow
        means, log_scales = (part.detach().t().double() for part in flow.codebook())
        codes = (means, (-log_scales).exp(), log_scales)
        self.codes = tuple(part.contiguous().numpy() for part in codes)

    def __call__(self, eps: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        flow = self.flow
        kernels = compiled.tied_kernels(eps, *([] if context is None else [context]))
        if kernels is None:
            return flow.forward(eps, context)
        logits = flow.logits(context).expand(*eps.shape[:-1], -1).reshape(-1, len(flow.bias))
        rows = eps.reshape(-1, flow.size)
        z, logdet = kernels.tied_forward(
            rows.contiguous().numpy(), logits.contiguous().numpy(), *self.codes, *ACCURACY[eps.dtype]
        )
        return torch.from_numpy(z).view_as(eps), torch.from_numpy(logdet).view(eps.shape[:-1])


@log_normals.twin(lambda z, *_: z.dtype == torch.float32)
def log_normals_by_products(z: Tensor, means: Tensor, log_scales: Tensor) -> Tensor:
    """-Σ_h (z - μ)² / 2σ² as (z², z) · (-1/2σ², μ/σ²) - Σ_h μ²/2σ²: no array of (n, V, H), a third of the time.

    What cancels in it costs (z/σ)² roundings of float64; that of z itself to float32 changes as much, and more. So not
    for z of float64.
    """
    z, means, log_scales = z.double(), means.double(), log_scales.double()
    precision = (-2 * log_scales).exp()
    pull = means * precision
    constant = (0.5 * means * pull + log_scales).sum(-1) + 0.5 * means.shape[-1] * math.log(2 * math.pi)
    rows = torch.cat([z.square(), z], -1).reshape(-1, 2 * means.shape[-1])
    found = torch.addmm(-constant, rows, torch.cat([-0.5 * precision, pull], -1).t())
    return found.float().view(*z.shape[:-1], len(means))


def _can_generate(flow: TiedMixture, eps: Tensor, context: Tensor | None = None) -> bool:
    given = (eps, flow.bias) if context is None else (eps, context, flow.bias)
    return eps.numel() > 0 and compiled.tied_kernels(*given) is not None


@TiedMixture.forward.twin(_can_generate)
def tied_forward(flow: TiedMixture, eps: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return TiedStep(flow)(eps, context)


@TiedMixture.stepper.twin(
    lambda flow, direction: direction == "forward" and compiled.tied_kernels(*flow.parameters()) is not None
)
def tied_step(flow: TiedMixture, direction: Direction) -> Step:
    return TiedStep(flow)
