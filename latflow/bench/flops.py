"""Useful operations of a model."""

from __future__ import annotations

import torch

from latflow.flows import LSTM, MADE, HiddenFlow, Layer, LSTMContext
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel
from latflow.models.emission.bilstm import BiLSTMEmission
from latflow.models.posterior.bilstm import BiLSTMPosterior
from latflow.models.symbols import Alphabet


def count_flops(model: SequenceModel, steps: int, samples: int = 1) -> float:
    """Useful floating-point operations of log-probabilities of `steps` steps of x with `samples` samples each.

    A matrix of m × k applied to a row is 2mk operations, and only matrices count: 2 · rows · Σ mk. Rows are `steps` for
    the posterior and the baseline, `steps · samples` for prior and emission. Look-ups (symbols, positions) are free
    and of a masked matrix only the entries that may be non-zero count. A training step is three times that: the
    backward pass multiplies once for the gradient of the inputs and once for that of the weights.
    """

    def lstm(module: LSTM) -> int:
        return sum(weight.numel() for weight in (*module.input_weight, *module.recurrent_weight))

    def context(module: torch.nn.Module) -> int:
        if not isinstance(module, LSTMContext):
            return 0
        reading = module.reading
        return lstm(module.lstm) + (reading.weight.numel() if isinstance(reading, Layer) else 0)

    def network(module: torch.nn.Module) -> int:
        weights = module.matrices  # type: ignore[attr-defined]
        if isinstance(module, MADE):
            return sum(int(module.get_buffer(f"mask{k}").sum()) for k in range(len(weights)))  # type: ignore[arg-type]
        return sum(weight.numel() for weight in weights)  # type: ignore[union-attr]

    def scores(head: torch.nn.Linear, alphabet: Alphabet) -> int:
        """Two matrices one after the other, or multiplied out."""
        (e, f), v = head.weight.shape, alphabet.size
        return min(e * (f + v), f * v)

    if isinstance(model, LSTMLanguageModel):
        alphabet = model.alphabet
        per_step = context(model.context) + scores(model.head, alphabet)
        per_step += alphabet.embedding.numel() if model.spec.emission == "bernoulli" else 0
        return 2.0 * steps * per_step
    assert isinstance(model, LatentSequenceModel)
    hidden, posterior, emission = model.prior.hidden, model.posterior, model.emission
    assert isinstance(hidden, HiddenFlow)
    once = 0
    if isinstance(posterior, BiLSTMPosterior):
        once += lstm(posterior.lstm) + posterior.head.weight.numel()
        once += model.alphabet.embedding.numel() if model.spec.emission == "bernoulli" else 0
    each = context(model.prior.context) + sum(network(module) for module in hidden.networks)
    each += sum(w.numel() for w in (hidden.context_weight, hidden.skip_weight) if w is not None)
    if isinstance(emission, BiLSTMEmission):
        each += lstm(emission.lstm) + scores(emission.head, model.alphabet)
    return 2.0 * steps * (once + samples * each)
