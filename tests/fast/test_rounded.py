"""Products of numbers rounded to bfloat16: what is multiplied, in either direction, and by which means."""

import contextlib
import platform

import numpy as np
import pytest
import torch

import latflow.fast
from latflow.fast import compiled
from latflow.fast.products import CompiledRoundedProducts, RoundedProducts, products
from latflow.flows import LSTM, Packing
from latflow.flows.network import rounded_linear

pytest.importorskip("numba", reason="without numba there are no kernels")
import llvmlite.binding
import numba.core.config as numba_config

from latflow.fast.kernels import arranged, dots, tiles

FEATURES = llvmlite.binding.get_host_cpu_features()
MEANS = [
    pytest.param(
        tiles,
        id="tiles",
        marks=pytest.mark.skipif(not compiled._tiles(FEATURES), reason="this processor has no tiles (AMX)"),
    ),
    pytest.param(
        dots,
        id="dots",
        marks=pytest.mark.skipif(
            not FEATURES.get("avx512bf16"), reason="this processor has no dot products of pairs (AVX512-BF16)"
        ),
    ),
]
SHAPES = [
    (1, 1, 1),
    (16, 32, 16),
    (17, 33, 18),
    (32, 64, 32),
    (33, 31, 49),
    (48, 5, 16),
    (70, 40, 7),
    (9, 70, 100),
]
"""Rows, sums, columns: whole tiles, and every way of not being whole."""


def bits(x: torch.Tensor) -> np.ndarray:
    return x.bfloat16().view(torch.int16).numpy().view(np.uint16)


def untiled_left(tiled: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """A of tiles, and all that is beside it."""
    whole = tiled.transpose(0, 2, 1, 3).reshape(tiled.shape[0] * 16, -1)
    inside = whole[:rows, :columns].copy()
    whole[:rows, :columns] = 0
    return inside, whole


def untiled_right(tiled: np.ndarray, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    n, k = tiled.shape[:2]
    whole = tiled.reshape(n, k, 16, 16, 2).transpose(1, 2, 4, 0, 3).reshape(32 * k, 16 * n)
    inside = whole[:rows, :columns].copy()
    whole[:rows, :columns] = 0
    return inside, whole


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_tiles_hold_what_torch_rounds_to_and_zeros_beside_it(m, k, n):
    x, w = torch.randn(m, k), torch.randn(k, n)
    for fill, given in ((arranged.left, x), (arranged.left_of_transposed, x.t().contiguous())):
        room = arranged.tiles(m, k)
        room[:] = 7
        fill(given.numpy(), room)
        inside, beside = untiled_left(room, m, k)
        assert (inside == bits(x)).all()
        assert not beside.any()
    for fill, given in ((arranged.right, w), (arranged.right_of_transposed, w.t().contiguous())):
        room = arranged.tiles(n, k)
        room[:] = 7
        fill(given.numpy(), room)
        inside, beside = untiled_right(room, k, n)
        assert (inside == bits(w)).all()
        assert not beside.any()


def test_rounding_of_ties_overflow_and_what_is_no_number():
    """Ties go to even, the largest numbers to infinity as torch has it, a NaN of any kind stays one."""
    ties = torch.tensor([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, -0x80000000], dtype=torch.int32)
    x = torch.cat([ties.view(torch.float32), torch.tensor([3.4e38, -3.4e38, 1e-40, torch.inf, -torch.inf])])
    room = arranged.tiles(1, len(x))
    arranged.left(x[None].numpy(), room)
    assert (untiled_left(room, 1, len(x))[0] == bits(x[None])).all()
    nans = torch.tensor([0x7F800001, 0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)
    room = arranged.tiles(1, 3)
    arranged.left(nans[None].numpy(), room)
    found = torch.from_numpy(untiled_left(room, 1, 3)[0].view(np.int16)).view(torch.bfloat16)
    assert found.isnan().all()


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("add", [False, True])
def test_arranged_numbers_multiply(m, k, n, add, means):
    """To the rounding of float32 sums; nothing outside of c is written, whose rows are a part of longer ones."""
    x, w, around = torch.randn(m, k), torch.randn(k, n), torch.randn(m + 2, n + 3)
    before, c = around.clone(), around[1:-1, 1:-2]
    a, b = arranged.tiles(m, k), arranged.tiles(n, k)
    arranged.left(x.numpy(), a)
    arranged.right(w.numpy(), b)
    means.multiply(a, b, c.numpy(), add)
    expected = x.bfloat16().double() @ w.bfloat16().double() + (before[1:-1, 1:-2] if add else 0)
    torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-5)
    around[1:-1, 1:-2] = before[1:-1, 1:-2]
    assert torch.equal(around, before)


@pytest.mark.parametrize("means", MEANS)
def test_many_rows_and_long_sums_go_in_chunks(means):
    x, w = torch.randn(300, 2 * tiles.CACHED // 32), torch.randn(2 * tiles.CACHED // 32, 5)
    a, b, c = arranged.tiles(*x.shape), arranged.tiles(5, len(w)), torch.empty(300, 5)
    arranged.left(x.numpy(), a)
    arranged.right(w.numpy(), b)
    means.multiply(a, b, c.numpy(), False)
    expected = x.bfloat16().double() @ w.bfloat16().double()
    torch.testing.assert_close(c.double(), expected, rtol=1e-4, atol=1e-3)


def test_what_is_rounded_is_x_and_w_and_the_gradient():
    """Numbers whose rounding is seen: 1 + 2⁻⁹ is 1 in bfloat16, and 3 is 3."""
    x = torch.tensor([[1 + 2**-9, 3.0]], requires_grad=True)
    w = torch.tensor([[2 + 2**-8, 1.0], [1.0, 1.0]], requires_grad=True)
    b = torch.tensor([2**-9, 0.0], requires_grad=True)
    with latflow.fast.off():
        y = rounded_linear(x, w, b)
        assert y.tolist() == [[5 + 2**-9, 4.0]]  # the bias is not
        grads = torch.autograd.grad(y, [x, w, b], torch.tensor([[1 + 2**-9, 0.0]]))
    assert [grad.tolist() for grad in grads] == [
        [[2.0, 1.0]],
        [[1.0, 3.0], [0.0, 0.0]],
        [1 + 2**-9, 0.0],
    ]


def test_without_instructions_for_them_numbers_are_rounded_by_torch(monkeypatch):
    weight = torch.randn(8, 2)
    monkeypatch.setattr(compiled, "multiplies", lambda: None)
    with torch.no_grad():
        assert type(products(weight, 3, 4, True)) is RoundedProducts
    monkeypatch.setattr(compiled, "multiplies", lambda: "dots")
    with torch.no_grad():
        assert type(products(weight, 3, 4, True)) is CompiledRoundedProducts


@pytest.mark.parametrize(
    ("setting", "value"), [("CPU_NAME", "generic"), ("CPU_FEATURES", ""), ("ENABLE_AVX", False)]
)
def test_where_numba_compiles_for_another_processor_there_are_no_instructions(monkeypatch, setting, value):
    """NUMBA_CPU_NAME and the like: compiled all the same, they would end the process."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", lambda: {"avx512bf16": True})
    assert compiled.multiplies.__wrapped__() == "dots"
    monkeypatch.setattr(numba_config, setting, value)
    assert compiled.multiplies.__wrapped__() is None


@pytest.mark.parametrize(
    "multiplies",
    ["torch", *(pytest.param(mean.id, marks=mean.marks) for mean in MEANS)],
)
def test_an_lstm_of_rounded_products_is_the_definition(monkeypatch, multiplies):
    """By each means that this processor has; sequences of unequal lengths, more rows than are summed at a time."""
    monkeypatch.setattr(compiled, "multiplies", lambda: None if multiplies == "torch" else multiplies)
    torch.manual_seed(2)
    lstm, packing = LSTM(7, 40, 2, recurrent_dropout=0.25), Packing(torch.tensor([9] * 10 + [4] * 8 + [1]))
    lstm.rounded = True
    x, up, found = torch.randn(packing.rows, 7), torch.randn(packing.rows, 40), []
    for plain in (False, True):
        torch.manual_seed(0)
        with latflow.fast.off() if plain else contextlib.nullcontext():
            h = lstm(x, packing)
        found.append([h, *torch.autograd.grad(h, list(lstm.parameters()), up)])
    for ours, expected in zip(*found, strict=True):
        # Where a sum falls on the other side of a tie, the number it is rounded to for the next product is another: up
        # to 7e-4 of the largest entry over 24 seeds. A gradient that is not rounded is 1.2e-3 to 3e-3 off.
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-3 * float(expected.detach().abs().max()))


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize("gradients", [True, False])
def test_an_lstm_rounds_in_training_alone(fast, gradients):
    lstm, packing = LSTM(5, 8, 2), Packing(torch.tensor([12, 12, 12]))
    x = torch.randn(packing.rows, 5)
    with torch.set_grad_enabled(gradients), contextlib.nullcontext() if fast else latflow.fast.off():
        exact = lstm(x, packing)
        lstm.rounded = True
        difference = (lstm(x, packing) - exact).abs().max()
        assert 1e-5 < difference < 1e-2
        lstm.eval()
        assert torch.allclose(lstm(x, packing), exact, atol=1e-6)
