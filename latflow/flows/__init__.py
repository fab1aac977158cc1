"""Normalizing flows over vectors and over sequences of vectors: equations in plain torch; no data, no config, no model.

What runs faster than it is written stands in `latflow.fast` and is chosen at one seam (`latflow.flows.seam`).
"""

from latflow.flows.context import Context, LSTMContext, PositionContext
from latflow.flows.distribution import FlowDistribution, SequenceDistribution
from latflow.flows.hidden import Autoregressive, Elementwise, HiddenFlow, SplitCoupling
from latflow.flows.mixture import Mixture
from latflow.flows.network import MADE, Conditioner
from latflow.flows.packing import Packing
from latflow.flows.positions import Positions
from latflow.flows.reading import Layer, Raw, Reading
from latflow.flows.recurrent import LSTM
from latflow.flows.scalar import Affine, NLSq, ScalarTransform
from latflow.flows.sequence import SequenceFlow, Time
from latflow.flows.tied import TiedMixture, TiedScalar
from latflow.flows.transform import Compose, Transform, standard_normal_log_prob

__all__ = [
    "LSTM",
    "MADE",
    "Affine",
    "Autoregressive",
    "Compose",
    "Conditioner",
    "Context",
    "Elementwise",
    "FlowDistribution",
    "HiddenFlow",
    "LSTMContext",
    "Layer",
    "Mixture",
    "NLSq",
    "Packing",
    "PositionContext",
    "Positions",
    "Raw",
    "Reading",
    "ScalarTransform",
    "SequenceDistribution",
    "SequenceFlow",
    "SplitCoupling",
    "TiedMixture",
    "TiedScalar",
    "Time",
    "Transform",
    "standard_normal_log_prob",
]
