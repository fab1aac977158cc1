"""What is done with a trained model: the same for the same seed, in any mode and thread, and shared whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import latflow
from latflow import data
from latflow.errors import LatflowError
from latflow.models import build
from latflow.training import train
from latflow.use import sample, score
from tests.training.tiny import config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run, _ = train(config(train__epochs=2), tmp_path_factory.mktemp("runs") / "run")
    return run


@pytest.mark.parametrize("preset", ["hmm-lstm", "hmm-af-scf"])
def test_scores_and_samples_know_no_dropout(preset):
    settings = config(preset, model__prior__context__dropout=0.5, model__baseline__dropout=0.5)
    model = build(settings.model, data.load(settings.data).spec)
    given = [model.spec.encode("kate son dalo")]
    found = {}
    for mode in (True, False):
        model.train(mode)
        found[mode] = [row["nll"] for row in score(model, given, samples=2)], sample(model, 2)[1].tolist()
        assert model.training == mode
    assert found[True] == found[False]


def test_equal_sequences_have_equal_scores(trained):
    a, b = np.arange(12) % 5, np.arange(9) % 4
    rows = list(score(trained.model(), [a, b, a, b, a], samples=3))
    assert [row["index"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["nll"] == rows[2]["nll"] == rows[4]["nll"]
    assert rows[1]["nll"] == rows[3]["nll"] != rows[0]["nll"]


def test_a_frozen_part_stays_as_it_was(trained):
    model = trained.model().train()
    model.get_submodule("prior").eval()
    sample(model, 1)
    assert model.training
    assert not model.get_submodule("prior").training
    with pytest.raises(LatflowError, match="0 samples"):
        list(score(model, [], samples=0))


def test_a_seed_gives_the_same_draws_in_any_thread(trained):
    model = trained.model()
    with ThreadPoolExecutor(3) as pool:
        drawn = list(pool.map(lambda _: [x.tolist() for x in sample(model, 3, length=8, seed=1)], range(12)))
    assert all(x == drawn[0] for x in drawn)


def test_save_shares_a_model(tmp_path):
    settings = config()
    spec = data.load(settings.data).spec
    model = build(settings.model, spec)
    latflow.save(model, tmp_path / "shared", settings)
    loaded = latflow.load(tmp_path / "shared")
    assert loaded.spec == spec
    for ours, theirs in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(LatflowError, match="exists already"):
        latflow.save(model, tmp_path / "shared", settings)
    with pytest.raises(
        LatflowError, match=r"did not build this model: .*\(16, 8\) in the model, \(18, 8\) by"
    ):
        latflow.save(model, tmp_path / "other", config(model__prior__hidden__units=9))
    assert not (tmp_path / "other").exists()
