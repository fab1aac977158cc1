"""Products with a large U, arranged once for all steps of a pass."""

import pytest
import torch

import latflow.fast
from latflow.fast import products as module
from latflow.fast.products import LARGE, LONG, PackedProducts, Products, products
from latflow.flows import LSTM, Packing

PACKS = pytest.mark.skipif(not module._has_packing(), reason="this torch has no oneDNN")
U = torch.empty(1024, LARGE // 1024)


@PACKS
@pytest.mark.parametrize(
    ("weight", "steps", "packed"),
    [
        (U, LONG, True),
        (U, LONG - 1, False),
        (U[:-1], LONG, False),
        (U.double(), LONG, False),
        (U.to("meta"), LONG, False),
    ],
    ids=["large", "short", "small", "double", "elsewhere"],
)
def test_where_it_pays_and_can_be_done(weight, steps, packed):
    assert type(products(weight, 3, steps, False)) is (PackedProducts if packed else Products)


def test_without_onednn_products_are_plain(monkeypatch):
    monkeypatch.setattr(module, "_has_packing", lambda: False)
    assert type(products(U, 3, LONG, False)) is Products


@PACKS
@pytest.mark.parametrize("rows", [1, 2, 7, 32, 40])
def test_the_same_products(rows):
    """Arranged for 32 rows, asked for fewer and more: sums of 256 and 1024 terms in another order."""
    weight = torch.randn(1024, 256)
    plain, packed = Products(weight), PackedProducts(weight, 32)
    h, grad, gates, out = (torch.randn(rows, n) for n in (256, 1024, 1024, 256))
    expected = gates.double() + h.double() @ weight.double().t()
    for ways in (plain, packed):
        sums = gates.clone()
        ways.add(h, sums)
        torch.testing.assert_close(sums.double(), expected, rtol=0, atol=1e-4)
        ways.back(grad, out)
        torch.testing.assert_close(out.double(), grad.double() @ weight.double(), rtol=0, atol=3e-4)
        gradient = ways.gradient(grad, h).double()
        torch.testing.assert_close(gradient, grad.double().t() @ h.double(), rtol=0, atol=1e-4)


@PACKS
@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_a_wide_lstm_is_the_definition(dropped):
    lstm = LSTM(3, 256, 1, recurrent_dropout=dropped)
    packing = Packing(torch.tensor([LONG + 3, LONG, 5, 1]))
    x, up = torch.randn(packing.rows, 3), torch.randn(packing.rows, 256)
    found = []
    for off in (False, True):
        torch.manual_seed(0)
        with latflow.fast.off() if off else torch.enable_grad():
            h = lstm(x, packing)
        found.append([h, *torch.autograd.grad(h, list(lstm.parameters()), up)])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=2e-5 * float(expected.detach().abs().max()))
