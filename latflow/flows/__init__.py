"""Normalizing flows over vectors and over sequences of vectors: tensors only, no data, no config, no model."""

from latflow.flows.base import Compose, Transform, standard_normal_log_prob
from latflow.flows.context import Context, LSTMContext, PositionContext
from latflow.flows.hidden import Autoregressive, Elementwise, HiddenFlow, SplitCoupling
from latflow.flows.lstm import LSTM
from latflow.flows.made import MADE, Conditioner
from latflow.flows.mixture import Mixture
from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.flows.scalar import Affine, NLSq, ScalarTransform
from latflow.flows.sequence import SequenceFlow
from latflow.flows.tied import TiedMixture

__all__ = [
    "LSTM",
    "MADE",
    "Affine",
    "Autoregressive",
    "Compose",
    "Conditioner",
    "Context",
    "Elementwise",
    "HiddenFlow",
    "LSTMContext",
    "Mixture",
    "NLSq",
    "Packing",
    "PositionContext",
    "Positions",
    "ScalarTransform",
    "SequenceFlow",
    "SplitCoupling",
    "TiedMixture",
    "Transform",
    "standard_normal_log_prob",
]
