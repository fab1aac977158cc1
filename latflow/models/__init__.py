"""Probability: turns batches into log-probabilities and samples."""

from latflow.flows.seam import provide
from latflow.models.base import Importance, SequenceModel, Terms
from latflow.models.baseline import LSTMLanguageModel
from latflow.models.build import build
from latflow.models.latent import Draw, LatentSequenceModel
from latflow.models.parts import Emission, GaussianPosterior, Parts, Posterior
from latflow.models.symbols import Alphabet

__all__ = [
    "Alphabet",
    "Draw",
    "Emission",
    "GaussianPosterior",
    "Importance",
    "LSTMLanguageModel",
    "LatentSequenceModel",
    "Parts",
    "Posterior",
    "SequenceModel",
    "Terms",
    "build",
]

provide("latflow.fast.sequences")
provide("latflow.fast.symbols")
