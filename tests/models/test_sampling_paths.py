"""The baseline's fast sampling loop against the straightforward one, from the same noise."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from latflow.bench.flops import count_flops
from latflow.bench.measure import SMALL, configure, random_batch
from latflow.bench.reference import (
    one_hot_positions,
    sample_by_cells,
    sample_plain,
    sample_straightforward,
)
from latflow.config import LSTMConfig
from latflow.data.base import DataSpec
from latflow.fast import compiled, off
from latflow.fast.sequences import behind
from latflow.flows import Layer, LSTMContext, Packing, Positions
from latflow.models import LatentSequenceModel, LSTMLanguageModel, build
from latflow.models.emission.bilstm import BiLSTMEmission
from tests.models.cases import TINY, small_model, text_spec

SPECS = [DataSpec("text", tuple("abcde"), (0, *[1] * 9)), DataSpec("music", (), (0, *[1] * 9))]


@pytest.mark.parametrize("spec", SPECS, ids=["text", "music"])
@pytest.mark.parametrize("available", [False, True], ids=["torch", "numba"])
@pytest.mark.parametrize("argmax", [False, True])
def test_the_fast_loop_of_the_baseline_draws_what_the_plain_one_draws(spec, available, argmax, monkeypatch):
    if available:
        pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "AVAILABLE", available)
    model = build(replace(TINY, kind="lstm"), spec).double().eval()
    assert isinstance(model, LSTMLanguageModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    packing = Packing(torch.tensor([4, 9, 1]))
    with torch.no_grad():
        found = model._sample(packing, 0.7, argmax, torch.Generator().manual_seed(3))
        with off():
            expected = model._sample(packing, 0.7, argmax, torch.Generator().manual_seed(3))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["AF/AF", "AF-only"])
def test_the_straightforward_way_draws_what_the_fast_one_draws(name):
    model = build(configure(name, TINY), SPECS[0]).eval()
    lengths = torch.tensor([9, 9])  # one length: the rows of the noise stand in the same order
    torch.manual_seed(5)
    expected = sample_straightforward(model, lengths)
    torch.manual_seed(5)
    assert torch.equal(model.sample(lengths), expected)


@pytest.mark.parametrize("spec", SPECS, ids=["text", "music"])
def test_the_baseline_by_torchs_own_modules_draws_what_the_fast_loop_draws(spec):
    model = build(replace(TINY, kind="lstm", baseline=LSTMConfig(2, 6, 0.0)), spec).double().eval()
    assert isinstance(model, LSTMLanguageModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    lengths = torch.full((20,), 8)
    found = []
    for way in (model.sample, partial(sample_plain, model), partial(sample_by_cells, model)):
        torch.manual_seed(4)
        found.append(way(lengths))
    assert torch.equal(found[1], found[0])
    assert torch.equal(found[2], found[0])


def test_generation_without_kernels_has_the_same_shape():
    model = build(configure("IAF/SCF", TINY), SPECS[0]).eval()
    lengths = torch.tensor([2, 5])
    assert sample_plain(model, lengths).shape == model.sample(lengths).shape == (2, 5)


@pytest.mark.parametrize("rank", [None, 3])
def test_positions_by_one_hots_are_those_looked_up(rank):
    positions, packing = Positions(7, 5, 0.5, rank), Packing(torch.tensor([3, 7]))
    expected = positions(packing.step, packing.remaining)
    with one_hot_positions():
        assert torch.allclose(positions(packing.step, packing.remaining), expected, atol=1e-6)


def test_flops_are_counted_by_the_formula():
    spec = SPECS[0]
    model = build(configure("LSTM", SMALL.config), spec)
    gates = 4 * 128 * (128 + 128)
    assert count_flops(model, 10) == 2 * 10 * (gates + 5 * 128)
    latent = build(configure("AF/SCF", SMALL.config), spec)
    assert count_flops(latent, 20, 3) == 2 * count_flops(latent, 10, 3)
    assert random_batch(spec, 2, 4).x.shape == (2, 4)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("symbols", "multiplied_out"), [("abc", True), ("abcdefghijklmnopqrstuvwxyz", False)]
)
def test_matrices_multiplied_out_give_the_scores_of_one_after_the_other(symbols, multiplied_out):
    """Step t reads z_t, the past up to t-1, the future from t+1; for few symbols head and embedding are one matrix."""
    model = small_model("af-af", text_spec(symbols), spread=0.5)
    assert isinstance(model, LatentSequenceModel)
    emission, packing = model.emission, Packing(torch.tensor([6, 2, 5, 6, 6, 6]))
    assert isinstance(emission, BiLSTMEmission)
    matrix, _, _ = behind(model.alphabet, emission.head, packing.rows)
    assert (matrix is not emission.head.weight) == multiplied_out
    z = torch.randn(packing.rows, 3)
    found = emission.scores(z, model.alphabet, packing)
    with off():
        torch.testing.assert_close(found, emission.scores(z, model.alphabet, packing))


@pytest.mark.parametrize("spec", SPECS, ids=["text", "music"])
@pytest.mark.parametrize("argmax", [False, True])
def test_an_entry_layer_of_the_embeddings_size_is_not_skipped_in_sampling(spec, argmax):
    """A table of gates stands for an LSTM that reads embedded symbols; one that reads them through a layer has none,
    though the sizes would fit."""
    alphabet = build(replace(TINY, kind="lstm"), spec).alphabet
    size = alphabet.embedding.shape[1]
    layer = Layer(size, size)
    model = LSTMLanguageModel(spec, alphabet, LSTMContext(layer, 6, 2, spec.max_T)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    packing = Packing(torch.tensor([4, 9, 1, 9, 8, 9]))
    draws = []
    with torch.no_grad():
        draws.append(model._sample(packing, 0.7, argmax, torch.Generator().manual_seed(3)))
        with off():
            draws.append(model._sample(packing, 0.7, argmax, torch.Generator().manual_seed(3)))
        torch.nn.init.zeros_(layer.weight)  # the layer is felt
        draws.append(model._sample(packing, 0.7, argmax, torch.Generator().manual_seed(3)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
