"""Small models of every kind: the seven latent rows of the paper's Tables 1 and 2, and the baseline."""

from dataclasses import replace

import torch

from latflow.config import LSTMConfig, ModelConfig, PriorConfig
from latflow.data.base import Batch, DataSpec
from latflow.models import SequenceModel, build

PRIORS = {
    "af-af": ("af", "af", "nlsq"),
    "af-scf": ("af", "scf", "nlsq"),
    "iaf-scf": ("iaf", "scf", "nlsq"),
    "af-only": ("none", "af", "nlsq"),
    "af-af-affine": ("af", "af", "affine"),
    "af-none-nlsq": ("af", "none", "nlsq"),
    "af-none-affine": ("af", "none", "affine"),
}
MODELS = [*PRIORS, "lstm"]


def config(
    name: str, units: int = 8, latent_size: int = 3, layers: int = 1, flow_layers: int = 2
) -> ModelConfig:
    lstm = LSTMConfig(layers=layers, units=units)
    base = ModelConfig(
        latent_size=latent_size, embedding_size=units, posterior=lstm, emission=lstm, baseline=lstm,
        prior=PriorConfig(layers=flow_layers, network_units=8, lstm_layers=layers, lstm_units=units, dropout=0.0),
    )  # fmt: skip
    if name == "lstm":
        return replace(base, kind="lstm")
    time, hidden, scalar = PRIORS[name]
    return replace(base, prior=replace(base.prior, time=time, hidden=hidden, scalar=scalar))


def text_spec(symbols: str = "abc", longest: int = 6) -> DataSpec:
    return DataSpec("text", tuple(symbols), (0,) + (1,) * longest)


def music_spec(longest: int = 6) -> DataSpec:
    return DataSpec("music", (), (0,) + (1,) * longest)


def small_model(name: str, spec: DataSpec, spread: float = 0.0, **sizes: int) -> SequenceModel:
    model = build(config(name, **sizes), spec)
    if spread:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=spread)
    return model


def batch_of(x: torch.Tensor, lengths: list[int]) -> Batch:
    n = len(lengths)
    return Batch(x, torch.tensor(lengths), torch.arange(n), torch.ones(n))


def strings(spec: DataSpec, texts: list[str]) -> Batch:
    x = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for i, text in enumerate(texts):
        x[i, : len(text)] = torch.from_numpy(spec.encode(text))
    return batch_of(x, [len(text) for text in texts])


TINY = ModelConfig(
    latent_size=3,
    embedding_size=6,
    prior=PriorConfig(lstm_units=6, network_units=8, layers=2),
    posterior=LSTMConfig(1, 6),
    emission=LSTMConfig(1, 6),
    baseline=LSTMConfig(2, 6),
)
"""A model of every part, as small as it goes."""
