"""The prior p(z | T): a hidden flow at every step, conditional on the other steps (section 4.3, supplement B).

    time    the context of step t sees    density (inverse)      sampling (forward)
    af      z_<t                          parallel over t        serial
    iaf     eps_<t                        serial                 parallel over t
    none    its position alone            parallel               parallel

In each case dz/deps is block triangular over time, so its log |det| is the sum of the hidden flow's over the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from latflow.flows.base import change_of_variables
from latflow.flows.context import Context
from latflow.flows.hidden import HiddenFlow
from latflow.flows.packing import Packing
from latflow.shapes import Float, Int

Time = Literal["af", "iaf", "none"]


class SequenceFlow(nn.Module):
    """z = f(eps; T) for sequences of vectors of size H. Tensors are batch-first (b, t, h) with lengths (b,).

    Whatever stands behind the end of a sequence is ignored, and every result is zero there. The methods on rows
    take and give the packed layout of `Packing`, which the rest of the package works in.
    """

    def __init__(self, hidden: HiddenFlow, context: Context, time: Time = "af"):
        super().__init__()
        if time not in ("af", "iaf", "none"):
            raise ValueError(f"time must be one of 'af', 'iaf', 'none', not {time!r}")
        if hidden.context_size != context.size:
            raise ValueError(
                f"the hidden flow takes a context of size {hidden.context_size}, the context gives {context.size}"
            )
        if time == "none" and context.sees_steps:
            raise ValueError(f"time 'none' needs a context that sees no steps, not {type(context).__name__}")
        self.hidden, self.context, self.time = hidden, context, time
        self.size = hidden.size

    def forward(
        self, eps: Float[Tensor, "b t h"], lengths: Int[Tensor, "b"]
    ) -> tuple[Float[Tensor, "b t h"], Float[Tensor, "b t"]]:
        """z and log |det dz_t/deps_t| per step."""
        return self._on_rows(self.forward_rows, eps, lengths)

    def inverse(
        self, z: Float[Tensor, "b t h"], lengths: Int[Tensor, "b"]
    ) -> tuple[Float[Tensor, "b t h"], Float[Tensor, "b t"]]:
        """eps and log |det deps_t/dz_t| per step."""
        return self._on_rows(self.inverse_rows, z, lengths)

    def log_prob(self, z: Float[Tensor, "b t h"], lengths: Int[Tensor, "b"]) -> Float[Tensor, "b t"]:
        """log p(z_t | z_<t, T) per step, zero behind the end; the sum over t is log p(z | T)."""
        packing = self._packing(z, lengths)
        return packing.unpack(self.log_prob_rows(packing.pack(z), packing), z.shape[1])

    @torch.no_grad()
    def sample(
        self, lengths: Int[Tensor, "b"], temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Float[Tensor, "b t h"]:
        """z ~ p(z | T), with the standard deviation of eps multiplied by `temperature`."""
        return self.rsample(lengths, temperature, generator)

    def rsample(
        self, lengths: Int[Tensor, "b"], temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Float[Tensor, "b t h"]:
        """`sample`, differentiable in the weights."""
        packing = Packing(lengths)
        return packing.unpack(self.sample_rows(packing, temperature, generator))

    # On rows.

    def inverse_rows(self, z: Float[Tensor, "n h"], packing: Packing) -> tuple[Tensor, Tensor]:
        if self.time == "iaf":
            return self._serial(self.hidden.inverse, z, packing)
        return self.hidden.inverse(z, self.context.whole(z, packing))

    def forward_rows(self, eps: Float[Tensor, "n h"], packing: Packing) -> tuple[Tensor, Tensor]:
        if self.time == "af":
            return self._serial(self.hidden.forward, eps, packing)
        return self.hidden(eps, self.context.whole(eps, packing))

    def log_prob_rows(self, z: Float[Tensor, "n h"], packing: Packing) -> Float[Tensor, "n"]:
        """log p(z_t | z_<t, T) of every row."""
        if self.time == "iaf":
            return change_of_variables(z, *self.inverse_rows(z, packing))
        return self.hidden.log_prob(z, self.context.whole(z, packing))

    def sample_rows(
        self, packing: Packing, temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Float[Tensor, "n h"]:
        weight = next(self.parameters())
        eps = torch.randn(
            packing.rows, self.size, generator=generator, dtype=weight.dtype, device=weight.device
        )
        return self.forward_rows(temperature * eps, packing)[0]

    def _serial(self, step_map: Callable, y: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """One step after the other: the results are what the next context sees."""
        prepared = self.hidden.prepare(steps=True)
        results, logdets = [], []
        context, state = self.context.start(packing)
        for t in range(packing.steps):
            result, logdet = step_map(y[packing.at(t)], context, prepared)
            results.append(result)
            logdets.append(logdet)
            context, state = self.context.step(result, t, packing, state)
        return torch.cat(results), torch.cat(logdets)

    def _packing(self, y: Tensor, lengths: Tensor) -> Packing:
        packing = Packing(lengths)
        if y.ndim != 3 or y.shape[0] != len(lengths) or y.shape[2] != self.size:
            raise ValueError(
                f"expected (b, t, h) = ({len(lengths)}, t, {self.size}) for {len(lengths)} lengths and this flow's "
                f"H = {self.size}, was given shape {tuple(y.shape)}"
            )
        if packing.steps > y.shape[1]:
            raise ValueError(f"a length of {packing.steps} does not fit a tensor with {y.shape[1]} steps")
        return packing

    def _on_rows(self, rows_map: Callable, y: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packing = self._packing(y, lengths)
        result, logdet = rows_map(packing.pack(y), packing)
        return packing.unpack(result, y.shape[1]), packing.unpack(logdet, y.shape[1])
