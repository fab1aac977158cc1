"""Probability: turns batches into log-probabilities and samples."""

from latflow.models.base import Importance, SequenceModel, Terms
from latflow.models.baseline import LSTMLanguageModel
from latflow.models.build import build, build_prior
from latflow.models.latent import LatentSequenceModel

__all__ = [
    "Importance",
    "LSTMLanguageModel",
    "LatentSequenceModel",
    "SequenceModel",
    "Terms",
    "build",
    "build_prior",
]
