"""The LSTM on packed rows, with looked-up positions, against nn.LSTM fed with one-hots, values and gradients."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import latflow.fast
from latflow.flows import LSTM, Layer, LSTMContext, Packing, Positions, Raw

pytestmark = pytest.mark.usefixtures("double")
LENGTHS = torch.tensor([3, 5, 1, 4])
MAX_T = 7


def twin(ours: LSTM, positions: Positions, input_size: int) -> nn.LSTM:
    """nn.LSTM with the same weights, whose input is x and the two one-hots."""
    theirs = nn.LSTM(
        input_size + 2 * MAX_T, ours.units, ours.layers, batch_first=True, bidirectional=ours.directions == 2
    )
    start, end = positions.start.chunk(ours.directions, -1), positions.end.chunk(ours.directions, -1)
    with torch.no_grad():
        for layer in range(ours.layers):
            for direction in range(ours.directions):
                suffix = f"l{layer}" + ("_reverse" if direction else "")
                matrix = ours.input_weight[layer].chunk(ours.directions)[direction]
                if layer == 0:
                    matrix = torch.cat([matrix, start[direction].T, end[direction].T], 1)
                getattr(theirs, f"weight_ih_{suffix}").copy_(matrix)
                getattr(theirs, f"weight_hh_{suffix}").copy_(ours.recurrent_weight[layer][direction])
                getattr(theirs, f"bias_ih_{suffix}").copy_(ours.bias[layer].chunk(ours.directions)[direction])
                getattr(theirs, f"bias_hh_{suffix}").zero_()
    return theirs


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_same_as_nn_lstm_with_one_hot_positions(bidirectional, layers):
    ours = LSTM(4, 6, layers, bidirectional=bidirectional)
    positions = Positions(MAX_T, ours.gate_size, 0.5)
    theirs = twin(ours, positions, 4)
    x = torch.randn(4, 5, 4, requires_grad=True)
    packing = Packing(LENGTHS)
    result = packing.unpack(ours(packing.pack(x), packing, positions(packing.step, packing.remaining)))

    t = torch.arange(5).expand(4, 5)
    hot = torch.cat([x, F.one_hot(t, MAX_T), F.one_hot((LENGTHS[:, None] - 1 - t).clamp(min=0), MAX_T)], -1)
    packed = nn.utils.rnn.pack_padded_sequence(hot, LENGTHS, batch_first=True, enforce_sorted=False)
    expected = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    assert torch.allclose(result, expected, atol=1e-14)

    weight = torch.randn_like(result)
    mine = [x, positions.start, ours.recurrent_weight[0], ours.bias[layers - 1]]
    d_x, d_start, d_recurrent, d_bias = torch.autograd.grad((result * weight).sum(), mine)
    last = f"l{layers - 1}"
    names = ["weight_ih_l0", "weight_hh_l0", f"bias_ih_{last}"]
    e_x, e_input, e_recurrent, e_bias = torch.autograd.grad(
        (expected * weight).sum(), [x] + [getattr(theirs, name) for name in names]
    )
    assert torch.allclose(d_x, e_x, atol=1e-13)
    width = 4 * ours.units
    assert torch.allclose(d_start[:, :width].T, e_input[:, 4 : 4 + MAX_T], atol=1e-13)
    assert torch.allclose(d_recurrent[0], e_recurrent, atol=1e-13)
    assert torch.allclose(d_bias[:width], e_bias, atol=1e-13)


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("input_units", [0, 4])
def test_context_whole_and_stepwise_are_the_same(rank, input_units):
    context = LSTMContext(Layer(3, input_units) if input_units else Raw(3), 5, 2, MAX_T, rank=rank)
    packing = Packing(LENGTHS)
    y = torch.randn(packing.rows, 3)
    whole = context.whole(y, packing)
    step, state = context.start(packing)
    for t in range(packing.steps):
        assert torch.allclose(step, whole[packing.at(t)], atol=1e-14)
        step, state = context.step(y[packing.at(t)], t, packing, state)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_recurrent_dropout_is_one_u_for_all_steps_and_sequences(fast):
    """In training, an LSTM with the entries of U that a draw has left; its gradient to those alone; otherwise none."""
    lstm, packing, p = LSTM(4, 6, 1, recurrent_dropout=0.4), Packing(LENGTHS), 0.4
    x, begin = torch.randn(packing.rows, 4), [(torch.randn(4, 6), torch.randn(4, 6))]
    torch.manual_seed(1)
    left = F.dropout(lstm.recurrent_weight[0], p).detach()
    thinned = LSTM(4, 6, 1)
    thinned.load_state_dict({**lstm.state_dict(), "recurrent_weight.0": left})
    with contextlib.nullcontext() if fast else latflow.fast.off():
        expected = thinned(x, packing, start=begin)
        torch.manual_seed(1)
        result = lstm(x, packing, start=begin)
        assert torch.allclose(result, expected, atol=1e-14)
        torch.manual_seed(1)
        state, stepper = begin, lstm.stepper()
        for t in range(packing.steps):
            n = packing.active[t]
            h, state = stepper(x[packing.at(t)], [(h[:n], c[:n]) for h, c in state], None)
            assert torch.allclose(h, expected[packing.at(t)], atol=1e-14)
        (gradient,) = torch.autograd.grad(result.square().sum(), [lstm.recurrent_weight[0]])
        (wanted,) = torch.autograd.grad(expected.square().sum(), [thinned.recurrent_weight[0]])
        kept = left != 0
        assert torch.allclose(gradient, wanted * kept / (1 - p), atol=1e-13)
        assert 0 < kept.sum() < kept.numel()
        lstm.eval()
        plain = LSTM(4, 6, 1)
        plain.load_state_dict(lstm.state_dict())
        assert torch.equal(lstm(x, packing, start=begin), plain(x, packing, start=begin))


def test_gradients_reach_the_start_through_the_state():
    context = LSTMContext(Raw(3), 5, 2, MAX_T)
    packing = Packing(LENGTHS)
    y = torch.randn(packing.rows, 3)
    names = list(dict(context.named_parameters()))

    def whole(*weights):
        return torch.func.functional_call(
            _Whole(context), {f"context.{n}": w for n, w in zip(names, weights, strict=True)}, (y, packing)
        )

    weights = [w.detach().clone().requires_grad_() for w in context.parameters()]
    assert torch.autograd.gradcheck(whole, tuple(weights), fast_mode=True)


class _Whole(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.context = context

    def forward(self, y, packing):
        return self.context.whole(y, packing)


def test_first_context_depends_on_the_length():
    context = LSTMContext(Raw(3), 5, 2, MAX_T)
    first, _ = context.start(Packing(torch.tensor([4, 3])))
    assert not torch.allclose(first[0], first[1])


@pytest.mark.parametrize("grad", [True, False])
def test_autocast_is_refused_in_words(grad):
    lstm, packing = LSTM(4, 6, 1), Packing(LENGTHS)
    with torch.set_grad_enabled(grad), torch.autocast("cpu"):
        with pytest.raises(RuntimeError, match=r"leave torch\.autocast off"):
            lstm(torch.randn(packing.rows, 4), packing)
        with pytest.raises(RuntimeError, match=r"leave torch\.autocast off"):
            lstm.stepper()
