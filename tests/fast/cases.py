"""Small models with a codebook."""

import torch
from torch import Tensor

from latflow.config import evolve
from latflow.data.base import DataSpec
from latflow.flows import LSTMContext
from latflow.models import LatentSequenceModel, build
from latflow.presets import find

SMALL = {
    "model.embedding_size": 5,
    "model.prior.context.units": 6,
    "model.prior.context.dropout": 0.0,
    "model.prior.context.input_dropout": 0.0,
}


def codebook_model(
    row: str, spec: DataSpec, dtype: torch.dtype, condition_size: int = 0, notes: str = "up"
) -> LatentSequenceModel:
    """A row of the codebook presets; weights random, codes near where they start."""
    corpus = "chords" if spec.emission == "bernoulli" else "hmm"
    config = evolve(find(f"{corpus}-{row}-codebook").config, {**SMALL, "model.posterior.notes": notes}).model
    model = build(config, spec)
    assert isinstance(model, LatentSequenceModel)
    old = model.prior.context
    assert isinstance(old, LSTMContext)
    if condition_size:
        model.prior.context = LSTMContext(old.reading, old.size, 1, spec.max_T, condition_size=condition_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            near = "codes" in name
            parameter.add_(0.2 * torch.randn_like(parameter) if near else 0.4 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def rows_of_codes(model: LatentSequenceModel, n: int) -> Tensor:
    """Rows z, some near codes and some between them."""
    return torch.randn(n, model.posterior.latent_size, dtype=model.alphabet.embedding.dtype)
