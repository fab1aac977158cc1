"""Config and data spec to model: the only translator, the only place that dispatches on names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from latflow.config import ModelConfig, PriorConfig
from latflow.data.base import DataSpec
from latflow.flows import (
    Affine,
    Autoregressive,
    Context,
    Elementwise,
    HiddenFlow,
    LSTMContext,
    NLSq,
    PositionContext,
    ScalarTransform,
    SequenceFlow,
    SplitCoupling,
)
from latflow.models.base import SequenceModel
from latflow.models.baseline import LSTMLanguageModel
from latflow.models.emission import Emission
from latflow.models.latent import LatentSequenceModel
from latflow.models.posterior import Posterior
from latflow.models.symbols import Alphabet, Bernoulli, Categorical

HIDDEN: Mapping[str, type[HiddenFlow]] = {"af": Autoregressive, "scf": SplitCoupling, "none": Elementwise}
ALPHABETS: Mapping[str, type[Alphabet]] = {"categorical": Categorical, "bernoulli": Bernoulli}

V = TypeVar("V")


def build(config: ModelConfig, spec: DataSpec) -> SequenceModel:
    """The model that a config describes, for data of this spec, with fresh weights."""
    max_T, rank = spec.max_T, config.position_rank
    alphabet = choose(ALPHABETS, "emission", spec.emission)(
        spec.size, config.embedding_size, tied=config.tie_embedding
    )
    if config.kind == "lstm":
        c = config.baseline
        context = LSTMContext(config.embedding_size, c.units, c.layers, max_T, dropout=c.dropout, rank=rank)
        return LSTMLanguageModel(spec, alphabet, context, dropout=c.dropout)
    if config.kind != "latent":
        raise ValueError(f"model.kind must be one of 'latent', 'lstm', not {config.kind!r}")
    q, e, h, scale = config.posterior, config.emission, config.latent_size, config.latent_scale
    return LatentSequenceModel(
        spec,
        build_prior(config.prior, h, max_T, rank),
        Posterior(
            config.embedding_size,
            h,
            q.units,
            q.layers,
            max_T,
            dropout=q.dropout,
            rank=rank,
            scale=scale,
            gain=config.posterior_gain,
        ),
        Emission(alphabet, h, e.units, e.layers, max_T, dropout=e.dropout, rank=rank, scale=scale),
    )


def build_prior(config: PriorConfig, latent_size: int, max_T: int, rank: int | None = None) -> SequenceFlow:
    """p(z | T), a point on the three axes."""
    scalars: Mapping[str, ScalarTransform] = {
        "nlsq": NLSq(config.alpha, config.raw_scale),
        "affine": Affine(config.raw_scale[0]),
    }
    units = config.lstm_units

    def lstm() -> Context:
        return LSTMContext(
            latent_size,
            units,
            config.lstm_layers,
            max_T,
            dropout=config.dropout,
            rank=rank,
            input_units=config.input_units,
        )

    contexts: Mapping[str, Callable[[], Context]] = {
        "af": lstm,
        "iaf": lstm,
        "none": lambda: PositionContext(units, max_T, rank),
    }
    context = choose(contexts, "prior.time", config.time)()
    hidden = choose(HIDDEN, "prior.hidden", config.hidden)(
        latent_size,
        config.layers,
        choose(scalars, "prior.scalar", config.scalar),
        context_size=units,
        units=config.network_units,
        depth=config.network_layers,
    )
    return SequenceFlow(hidden, context, config.time)


def choose(table: Mapping[str, V], axis: str, name: str) -> V:
    """The entry of that name, or an error that names the axis and what it takes."""
    if name not in table:
        raise ValueError(f"{axis} must be one of {', '.join(map(repr, table))}, not {name!r}")
    return table[name]
