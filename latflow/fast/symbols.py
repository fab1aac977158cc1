"""Twins of the reading `symbols` step by step: one compiled call, and behind it an LSTM that reads gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from latflow.fast import compiled
from latflow.fast.recurrent import GateStep
from latflow.flows import LSTMContext, Packing
from latflow.flows.context import Carried
from latflow.flows.recurrent import State
from latflow.models.reading import SymbolsReading


def reader(reading: SymbolsReading, table: Tensor) -> Callable[[Tensor], Tensor]:
    """What is expected of a row z_t: of notes ±1, of symbols a row of the table."""
    emission, codes = reading.model[0], reading.model[0].codes
    means, log_scales, logits = (
        part.detach().double() for part in (codes.means, codes.log_scales, emission.logits)
    )
    if codes.music:
        constants = codes.turned(logits) - log_scales[1] + log_scales[0]
    else:
        constants, means, log_scales = logits - log_scales.sum(-1), means.t(), log_scales.t()
    prepared = [part.contiguous().numpy() for part in (means, (-log_scales).exp(), constants)]
    values, least = table.detach().contiguous().numpy(), torch.finfo(table.dtype).eps * 2.0**-10

    def read(z: Tensor) -> Tensor:
        kernels = compiled.tied_kernels(z)
        assert kernels is not None, "read where gradients are wanted, by what was prepared without"
        rows = z.contiguous().numpy()
        if codes.music:
            return codes.turned(torch.from_numpy(kernels.expected_notes(rows, *prepared)))
        return torch.from_numpy(kernels.expected_symbols(rows, *prepared, values, least))

    return read


@SymbolsReading.stepper.twin(
    lambda reading: compiled.tied_kernels(reading.model[1].embedding, reading.model[0].logits) is not None
)
def compiled_stepper(reading: SymbolsReading) -> Callable[[Tensor], Tensor]:
    return reader(reading, reading.model[1].embedding)


def _reads_symbols(context: LSTMContext, packing: Packing) -> bool:
    """Whether a symbol's share of the first gates, a row of a table, may be read in the place of its embedding: where
    there are more rows than symbols, and nothing stands between the two."""
    reading = context.reading
    return (
        type(reading) is SymbolsReading
        and not reading.model[0].codes.music
        and not (context.training and context.input_dropout)
        and packing.rows >= reading.model[1].size
        and compiled.tied_kernels(*context.lstm.parameters(), reading.model[1].embedding) is not None
    )


@LSTMContext.start.twin(_reads_symbols)
def start_with_gates(context: LSTMContext, packing: Packing) -> tuple[Tensor, Carried]:
    """The embedding and W are multiplied out once: what a step reads is its share of the gates."""
    first, carried = LSTMContext.start.definition(context, packing)
    reading, step, lstm = context.reading, carried.advance, context.lstm
    assert isinstance(reading, SymbolsReading)
    assert isinstance(step, GateStep)
    matrix = lstm.input_weight[0]
    condition = None if carried.condition is None else F.linear(carried.condition, matrix)
    read = reader(reading, F.linear(reading.model[1].embedding, matrix, lstm.bias[0]))

    def advance(gates: Tensor, state: State, features: Tensor | None) -> tuple[Tensor, State]:
        return step(None, state, gates if features is None else gates + features)

    return first, carried._replace(read=read, advance=advance, condition=condition)
