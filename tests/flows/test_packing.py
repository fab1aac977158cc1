"""Packed rows: there and back, nobody's neighbour by mistake, and errors that name the length."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from latflow.flows import Packing
from latflow.flows.packing import check_lengths

lengths_strategy = st.lists(st.integers(1, 7), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(lengths=lengths_strategy, samples=st.integers(1, 3))
def test_rows_hold_every_step_once_in_order(lengths, samples):
    packing = Packing(torch.tensor(lengths), samples)
    assert packing.rows == sum(lengths) * samples
    seen = sorted(zip(packing.sequence.tolist(), packing.step.tolist(), strict=True))
    assert seen == sorted((i, t) for i, T in enumerate(lengths) for t in range(T) for _ in range(samples))
    assert packing.step.tolist() == sorted(packing.step.tolist())
    for row in range(packing.rows):
        i, t = int(packing.sequence[row]), int(packing.step[row])
        assert int(packing.remaining[row]) == lengths[i] - 1 - t
        before, after = int(packing.previous[row]), int(packing.next[row])
        assert (before == packing.rows) == (t == 0)
        assert (after == packing.rows) == (t == lengths[i] - 1)
        if t > 0:
            assert (int(packing.sequence[before]), int(packing.step[before])) == (i, t - 1)
            assert (before - row) % samples == (packing.at(t - 1).start - packing.at(t).start) % samples
            assert int(packing.next[before]) == row


@settings(max_examples=60, deadline=None)
@given(lengths=lengths_strategy, samples=st.integers(1, 3))
def test_pack_and_unpack_are_inverse_and_zero_the_rest(lengths, samples):
    packing = Packing(torch.tensor(lengths), samples)
    shape = (len(lengths), max(lengths), 2) if samples == 1 else (len(lengths), samples, max(lengths), 2)
    padded = torch.randn(shape)
    rows = packing.pack(padded)
    assert torch.equal(packing.pack(packing.unpack(rows)), rows)
    inside = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    inside = inside[..., None] if samples == 1 else inside[:, None, :, None]
    assert torch.equal(packing.unpack(rows), torch.where(inside, padded, torch.zeros(())))


def test_shifts_and_their_gradients():
    packing = Packing(torch.tensor([2, 3, 1]))
    padded = torch.arange(1.0, 10.0, dtype=torch.float64).view(3, 3)
    rows = packing.pack(padded)
    assert packing.unpack(packing.before(rows)).tolist() == [[0, 1, 0], [0, 4, 5], [0, 0, 0]]
    assert packing.unpack(packing.after(rows)).tolist() == [[2, 0, 0], [5, 6, 0], [0, 0, 0]]
    first = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64)  # longest sequence first
    assert packing.unpack(packing.before(rows, first)).tolist() == [[-2, 1, 0], [-1, 4, 5], [-3, 0, 0]]
    rows.requires_grad_()
    assert gradcheck(packing.before, (rows, first.requires_grad_()))
    assert gradcheck(packing.after, (rows,))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([3, 0]), "sequence 1 has length 0"),
        (torch.tensor([2, -4]), "sequence 1 has length -4"),
        (torch.tensor([2.5]), "whole numbers, not torch.float32"),
        (torch.tensor([], dtype=torch.int64), "non-empty vector"),
        (torch.tensor([[1]]), "one per sequence, not of shape \\(1, 1\\)"),
    ],
)
def test_bad_lengths_are_named(lengths, message):
    with pytest.raises(ValueError, match=message):
        check_lengths(lengths)
