"""Config and data spec to model: the only translator."""

from __future__ import annotations

from collections.abc import Mapping

from latflow.config import ModelConfig
from latflow.data.base import DataSpec
from latflow.flows import LSTMContext, Raw
from latflow.models.base import SequenceModel
from latflow.models.baseline import LSTMLanguageModel
from latflow.models.codes import log_odds
from latflow.models.condition import Condition
from latflow.models.latent import LatentSequenceModel
from latflow.models.parts import Parts
from latflow.models.symbols import Alphabet, Bernoulli, Categorical

ALPHABETS: Mapping[str, type[Alphabet]] = {"categorical": Categorical, "bernoulli": Bernoulli}


def build(config: ModelConfig, spec: DataSpec) -> SequenceModel:
    """The model that a config describes, for data of this spec, with fresh weights."""
    # A codebook and Bayes' rule on it need no embedding, but for one of symbols that the context reads.
    coded = config.kind == "latent" and (config.posterior.name, config.emission.name) == ("codebook", "bayes")
    alphabet = ALPHABETS[spec.emission](
        spec.size,
        config.embedding_size,
        tied=config.tie_embedding,
        embedded=not (coded and (spec.kind == "music" or config.prior.reading.name != "symbols")),
        scored=not coded,
    )
    alphabet.never = spec.unknown_index
    condition = Condition.of(spec, config.condition_size)
    condition_size = 0 if condition is None else config.condition_size
    if config.kind == "lstm":
        c = config.baseline
        context = LSTMContext(
            Raw(config.embedding_size),
            c.units,
            c.layers,
            spec.max_T,
            dropout=c.dropout,
            recurrent_dropout=c.recurrent_dropout,
            rank=config.position_rank,
            cap=config.position_cap,
            condition_size=condition_size,
        )
        if c.unigram:
            alphabet.start_at(log_odds(spec))
        baseline = LSTMLanguageModel(spec, alphabet, context, condition, dropout=c.dropout)
        baseline.length.bounded = config.position_cap is None
        return baseline
    parts = Parts(config, spec, alphabet, condition_size)
    model = LatentSequenceModel(spec, parts.prior, parts.posterior, alphabet, parts.emission, condition)
    model.length.bounded = config.position_cap is None or not coded
    return model
