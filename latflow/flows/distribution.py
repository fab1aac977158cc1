"""Flows as `torch.distributions.Distribution`: for whatever takes one."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from latflow.flows.packing import Packing
from latflow.flows.sequence import SequenceFlow
from latflow.flows.transform import Transform
from latflow.shapes import Float, Int


class FlowDistribution(Distribution):
    """p(z | context) of a transform: events of shape (H,), a batch of the leading axes of the context."""

    arg_constraints: Any = {}  # noqa: RUF012 (torch's own way)
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, flow: Transform, context: Float[Tensor, "*n c"] | None = None):
        self.flow, self.context = flow, context
        batch = torch.Size() if context is None else context.shape[:-1]
        super().__init__(batch, torch.Size([flow.size]), validate_args=False)

    def rsample(self, sample_shape=torch.Size()):  # noqa: B008 (torch's own signature)
        return self.flow.rsample(tuple(sample_shape), self.context)

    def log_prob(self, value: Tensor) -> Tensor:
        context = self.context
        if context is not None:
            leading = torch.broadcast_shapes(value.shape[:-1], context.shape[:-1])
            value, context = value.expand(*leading, -1), context.expand(*leading, -1)
        return self.flow.log_prob(value, context)


class SequenceDistribution(Distribution):
    """p(z | T) of a sequence flow for given lengths: a batch of sequences, events (t, H), zero behind their ends."""

    arg_constraints: Any = {}  # noqa: RUF012
    support: Any = constraints.independent(constraints.real, 2)
    has_rsample = True

    def __init__(self, flow: SequenceFlow, lengths: Int[Tensor, "b"]):
        self.flow, self.lengths = flow, lengths
        steps = Packing(lengths).steps
        super().__init__(torch.Size([len(lengths)]), torch.Size([steps, flow.size]), validate_args=False)

    def rsample(self, sample_shape=torch.Size()):  # noqa: B008
        n, shape = math.prod(sample_shape), self._extended_shape(torch.Size(sample_shape))
        return self.flow.rsample(self.lengths.repeat(n)).view(shape)

    def log_prob(self, value: Float[Tensor, "*s b t h"]) -> Float[Tensor, "*s b"]:
        leading = value.shape[:-3]
        z = value.reshape(-1, *self.event_shape)
        log_p = self.flow.log_prob(z, self.lengths.repeat(leading.numel())).sum(-1)
        return log_p.view(*leading, *self.batch_shape)
