"""The constructors that the tables of `latflow.axes` name: options and the parts there are -> a part."""

from __future__ import annotations

from latflow.axes import (
    AffineOptions,
    BiLSTMOptions,
    BiLSTMPosteriorOptions,
    CodebookOptions,
    LayeredOptions,
    LayerOptions,
    LSTMContextOptions,
    MixtureOptions,
    NLSqOptions,
    NoOptions,
    PositionOptions,
)
from latflow.errors import LatflowError
from latflow.flows import (
    Affine,
    Autoregressive,
    Elementwise,
    HiddenFlow,
    Layer,
    LSTMContext,
    NLSq,
    PositionContext,
    Raw,
    ScalarTransform,
    SplitCoupling,
    Time,
)
from latflow.flows.sequence import TIMES
from latflow.models.emission.bilstm import BiLSTMEmission
from latflow.models.parts import Parts
from latflow.models.posterior.bilstm import BiLSTMPosterior

# Scalar maps.


def nlsq(options: NLSqOptions, parts: Parts) -> NLSq:
    return NLSq(options.alpha, options.raw_scale)


def affine(options: AffineOptions, parts: Parts) -> Affine:
    return Affine(options.raw_scale)


# Across hidden.


def _layered(kind: type[HiddenFlow], options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return kind(
        parts.latent_size,
        options.layers,
        parts.scalar,
        context_size=parts.context.size,
        units=options.units,
        depth=options.depth,
        skip=options.skip,
    )


def autoregressive(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(Autoregressive, options, parts)


def split_coupling(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(SplitCoupling, options, parts)


def elementwise(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(Elementwise, options, parts)


# Across time.


def time_af(options: NoOptions, parts: Parts) -> Time:
    return TIMES["af"]


def time_iaf(options: NoOptions, parts: Parts) -> Time:
    return TIMES["iaf"]


def time_none(options: NoOptions, parts: Parts) -> Time:
    return TIMES["none"]


# Contexts and what they read.


def lstm_context(options: LSTMContextOptions, parts: Parts) -> LSTMContext:
    return LSTMContext(
        parts.reading,
        options.units,
        options.layers,
        parts.max_T,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
        rank=parts.rank,
        condition_size=parts.condition_size,
    )


def position_context(options: PositionOptions, parts: Parts) -> PositionContext:
    return PositionContext(options.units, parts.max_T, parts.rank, parts.condition_size)


def raw(options: NoOptions, parts: Parts) -> Raw:
    return Raw(parts.latent_size)


def layer(options: LayerOptions, parts: Parts) -> Layer:
    return Layer(parts.latent_size, options.units)


# Posterior and emission.


def bilstm_posterior(options: BiLSTMPosteriorOptions, parts: Parts) -> BiLSTMPosterior:
    if parts.config.latent_size is None:
        raise LatflowError("posterior bilstm has no latent size of its own; set model.latent_size (50 in the paper)")
    return BiLSTMPosterior(
        parts.config.embedding_size,
        parts.config.latent_size,
        options.units,
        options.layers,
        parts.max_T,
        dropout=options.dropout,
        rank=parts.rank,
        scale=options.scale,
        gain=options.gain,
    )


def bilstm_emission(options: BiLSTMOptions, parts: Parts) -> BiLSTMEmission:
    return BiLSTMEmission(
        parts.config.embedding_size,
        parts.latent_size,
        options.units,
        options.layers,
        parts.max_T,
        dropout=options.dropout,
        rank=parts.rank,
        scale=options.scale,
    )
