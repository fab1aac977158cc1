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
    TiedOptions,
)
from latflow.errors import LatflowError
from latflow.flows import (
    Affine,
    Autoregressive,
    Elementwise,
    HiddenFlow,
    Layer,
    LSTMContext,
    Mixture,
    NLSq,
    PositionContext,
    Raw,
    ScalarTransform,
    SplitCoupling,
    Time,
)
from latflow.flows.sequence import TIMES
from latflow.flows.tied import TiedMixture, TiedScalar
from latflow.models.codes import Codes, EmbeddedLogits, log_odds
from latflow.models.emission.bayes import BayesEmission
from latflow.models.emission.bilstm import BiLSTMEmission
from latflow.models.parts import Parts
from latflow.models.posterior.bilstm import BiLSTMPosterior
from latflow.models.posterior.codebook import CodebookPosterior
from latflow.models.reading import SymbolsReading

# Scalar maps.


def nlsq(options: NLSqOptions, parts: Parts) -> NLSq:
    return NLSq(options.alpha, options.raw_scale)


def affine(options: AffineOptions, parts: Parts) -> Affine:
    return Affine(options.raw_scale)


def mixture(options: MixtureOptions, parts: Parts) -> ScalarTransform:
    if not options.tied:
        return Mixture(options.components)
    posterior, hidden = parts.posterior, parts.config.prior.hidden
    if not isinstance(posterior, CodebookPosterior) or not posterior.codes.music:
        raise LatflowError(
            "model.prior.scalar.tied ties the mixture to a codebook of notes; it needs music and model.posterior "
            "codebook (for text and tokens the tied mixture is model.prior.hidden codebook)"
        )
    if hidden.layers != 1:
        raise LatflowError(
            f"model.prior.hidden.layers is {hidden.layers}; a mixture tied to the codebook is one layer, next to z"
        )
    return TiedScalar(posterior.codes.pairs, posterior.codes.turned(log_odds(parts.spec)))


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
        dropout=options.dropout,
    )


def autoregressive(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(Autoregressive, options, parts)


def split_coupling(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(SplitCoupling, options, parts)


def elementwise(options: LayeredOptions, parts: Parts) -> HiddenFlow:
    return _layered(Elementwise, options, parts)


def tied_mixture(options: TiedOptions, parts: Parts) -> TiedMixture:
    posterior = parts.posterior
    if not isinstance(posterior, CodebookPosterior) or posterior.codes.music:
        raise LatflowError(
            "model.prior.hidden codebook is the mixture of all codes of text or tokens; it needs model.posterior "
            "codebook (for music the tied mixture is model.prior.scalar mixture with tied: true)"
        )
    if options.embedded and parts.config.prior.reading.name != "symbols":
        raise LatflowError(
            "model.prior.hidden.embedded shares the embedding that the context reads symbols by; it needs "
            f"model.prior.reading symbols, not {parts.config.prior.reading.name}"
        )
    network = None
    if options.embedded:
        network = EmbeddedLogits(parts.alphabet, parts.context.size)
    return TiedMixture(posterior.codes, parts.context.size, log_odds(parts.spec), network)


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
        recurrent_dropout=options.recurrent_dropout,
        rank=parts.rank,
        cap=parts.config.position_cap,
        condition_size=parts.condition_size,
    )


def position_context(options: PositionOptions, parts: Parts) -> PositionContext:
    return PositionContext(
        options.units, parts.max_T, parts.rank, parts.config.position_cap, parts.condition_size
    )


def raw(options: NoOptions, parts: Parts) -> Raw:
    return Raw(parts.latent_size)


def layer(options: LayerOptions, parts: Parts) -> Layer:
    return Layer(parts.latent_size, options.units)


def symbols(options: NoOptions, parts: Parts) -> SymbolsReading:
    emission = parts.emission
    if not isinstance(emission, BayesEmission):
        raise LatflowError(
            "model.prior.reading symbols reads z_t as the emission does and needs one that looks at z_t alone: "
            "model.emission bayes"
        )
    if parts.config.prior.time.name == "iaf":
        raise LatflowError(
            "model.prior.reading symbols reads z_t, and with model.prior.time iaf the context sees eps_t, in which "
            "there are no symbols; take raw or layer"
        )
    return SymbolsReading(emission, parts.alphabet)


# Posterior and emission.


def codebook(options: CodebookOptions, parts: Parts) -> CodebookPosterior:
    codes = Codes(parts.spec, parts.config.latent_size, options.sigma, options.learned, options.notes)
    return CodebookPosterior(codes)


def bayes(options: NoOptions, parts: Parts) -> BayesEmission:
    posterior = parts.posterior
    if not isinstance(posterior, CodebookPosterior):
        raise LatflowError(
            "model.emission bayes is Bayes' rule on a codebook; it needs model.posterior codebook"
        )
    return BayesEmission(posterior.codes, log_odds(parts.spec))


def bilstm_posterior(options: BiLSTMPosteriorOptions, parts: Parts) -> BiLSTMPosterior:
    if parts.config.latent_size is None:
        raise LatflowError(
            "posterior bilstm has no latent size of its own; set model.latent_size (50 in the paper)"
        )
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
