"""Numbers mean what their convention says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from latflow import data
from latflow.data.base import DataSpec
from latflow.models import build
from latflow.training.evaluate import CHUNK, Rows, evaluate, summarize
from tests.training.tiny import config

TEXT = DataSpec("text", ("a", "b"), (0, 1, 1, 1))
MUSIC = DataSpec("music", (), (0, 1, 1, 1))


def nats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


ROWS = Rows(
    reconstruction=nats(1.0, 4.0),
    kl=nats(2.0, 3.0),
    length=nats(0.5, 0.7),
    effective_samples=nats(3.0, 5.0),
    nll={1: nats(3.0, 7.0), 5: nats(2.5, 6.0)},
)


def test_convention_by_hand():
    """Σ nats / Σ (T + 1), apart and together, in bits for text and in nats for music."""
    lengths = np.array([1, 3])
    for spec, unit in ((TEXT, math.log(2)), (MUSIC, 1.0)):
        found = summarize(spec, ROWS, lengths)
        assert found.steps == 6
        assert found.nll == pytest.approx((2.5 + 6.0 + 1.2) / 6 / unit)
        assert found.nll_at == pytest.approx({1: 11.2 / 6 / unit, 5: 9.7 / 6 / unit})
        assert found.reconstruction == pytest.approx(5 / 6 / unit)
        assert found.kl == pytest.approx(5 / 6 / unit)
        assert found.length == pytest.approx(1.2 / 6 / unit)
        assert found.negative_elbo == pytest.approx(11.2 / 6 / unit)
        assert found.effective_samples == 4.0


def test_standard_error_is_the_spread_of_repeated_samples():
    """Over many sets of sequences drawn alike, the ratio scatters as the error of one set says."""
    rng = np.random.default_rng(0)
    results, errors = [], []
    for _ in range(400):
        lengths = rng.integers(1, 30, 200)
        rows = Rows.zeros(200, [1])
        rows.nll[1][:] = torch.from_numpy(rng.normal(lengths * 2.0, np.sqrt(lengths)))
        found = summarize(MUSIC, rows, lengths)
        results.append(found.nll)
        errors.append(found.nll_error)
    # 400 draws know a standard deviation to 1 / sqrt(800) = 3.5 %; four of those.
    assert np.std(results) == pytest.approx(np.mean(errors), rel=0.15)


def test_equals_the_model_of_one_batch():
    """The baseline is exact: the result is the sum of its terms, whatever the batches."""
    settings = config("hmm-lstm")
    corpus = data.load(settings.data)
    model = build(settings.model, corpus.spec).eval()
    test = corpus.splits["test"]
    assert corpus.truth is not None
    found = evaluate(model, test, samples=50, batch_size=3, truth=corpus.truth["test"])
    (batch,) = data.Batches(test, len(test), shuffle=False).epoch(0)
    with torch.no_grad():
        nats = float(model.nll(batch).double().sum())
    assert found.nll == pytest.approx(nats / (test.lengths + 1).sum() / math.log(2), rel=1e-5)
    assert (found.samples, found.kl, found.effective_samples) == (1, 0.0, pytest.approx(1.0))
    assert found.truth is not None
    assert found.truth.gap == pytest.approx(found.nll - found.truth.nll)
    with pytest.raises(ValueError, match=r"the truth has shape \(1,\), but there are 20 sequences"):
        evaluate(model, test, truth=corpus.truth["test"][:1])


def test_bound_is_tighter_than_the_elbo_and_terms_add_up():
    """A log of a mean is never below the mean of the logs, with the very same samples."""
    settings = config()
    corpus = data.load(settings.data)
    found = evaluate(build(settings.model, corpus.spec), corpus.splits["test"], samples=12)
    assert list(found.nll_at) == [1, 2, 5, 10, 12]
    assert found.nll == found.nll_at[12] < found.negative_elbo
    assert found.negative_elbo == pytest.approx(found.reconstruction + found.kl + found.length)
    assert 1 <= found.effective_samples <= 12


def test_memory_is_bounded_whatever_k(monkeypatch):
    """No more than CHUNK steps x samples are computed at once, and all K samples are."""
    settings = config(data__eval_size=4)
    corpus = data.load(settings.data)
    model = build(settings.model, corpus.spec)
    largest, count, real = 0, 0, model.terms

    def watched(batch, samples=1, given_length=False):
        nonlocal largest, count
        largest, count = max(largest, batch.x.shape[:2].numel() * samples), count + samples
        return real(batch, samples)

    monkeypatch.setattr(model, "terms", watched)
    monkeypatch.setattr("latflow.training.evaluate.CHUNK", 200)
    evaluate(model, corpus.splits["test"], samples=100, batch_size=4)
    assert count == 100
    assert largest <= 200
    assert CHUNK > 200


def test_leaves_generator_and_mode_alone():
    settings = config()
    corpus = data.load(settings.data)
    model = build(settings.model, corpus.spec).train()
    before = torch.get_rng_state()
    first = evaluate(model, corpus.splits["test"], samples=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert evaluate(model, corpus.splits["test"], samples=3) == first
    assert evaluate(model, corpus.splits["test"], samples=3, seed=1) != first
