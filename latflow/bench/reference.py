"""The ways that the fast ones are held against: without kernels, and straightforward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from latflow.flows import Autoregressive, Packing, Positions, fast
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel


@contextmanager
def plain_torch() -> Iterator[None]:
    """Without the compiled kernels."""
    before, fast.AVAILABLE = fast.AVAILABLE, False
    try:
        yield
    finally:
        fast.AVAILABLE = before


@contextmanager
def one_hot_positions() -> Iterator[None]:
    """Position features as the paper writes them: a product with one-hots of width max_T, no look-up."""

    def multiply(self: Positions, step: Tensor, remaining: Tensor) -> Tensor:
        pairs = ((step, self.start), (remaining, self.end))
        start, end = (one_hot(index, self.max_T).to(table) @ table for index, table in pairs)
        return start + end if self.mix is None else linear(torch.cat([start, end], -1), self.mix)

    before = Positions.forward
    Positions.forward = multiply  # type: ignore[method-assign]
    try:
        yield
    finally:
        Positions.forward = before  # type: ignore[method-assign]


@torch.no_grad()
def sample_straightforward(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation from a model that is autoregressive across hidden, the straightforward way: eager, module after
    module, positions as one-hots, a full pass of each network per dimension."""
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.prior.hidden, Autoregressive)
    packing, prior = Packing(lengths), model.prior
    with plain_torch(), one_hot_positions():
        eps = torch.randn(packing.rows, prior.size)
        if prior.time == "af":
            z, _ = prior._serial(model.prior.hidden.forward_plain, eps, packing)
        else:
            z, _ = model.prior.hidden.forward_plain(eps, prior.context.whole(eps, packing))
        return packing.unpack(model.emission.sample(z, packing))


@torch.no_grad()
def sample_plain(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation without compiled kernels; the baseline's loop one module after the other."""
    with plain_torch():
        if isinstance(model, LSTMLanguageModel):
            packing = Packing(lengths)
            return packing.unpack(model._sample_plain(packing, 1.0, False, None))
        return model.sample(lengths)
