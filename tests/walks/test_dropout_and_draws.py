"""Where dropout acts and where it does not; the laws of the draws, with a law that is off shown to be refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import latflow
from latflow import data
from latflow.data.synthetic import draw_corpus
from latflow.models.symbols import Bernoulli, Categorical
from latflow.training.distributed import World
from latflow.training.loop import Trainer
from latflow.training.report import Reporter
from latflow.training.run import Run
from tests.training.tiny import config

LATENT = {
    "model__prior__context__dropout": 0.11,
    "model__prior__context__layers": 2,
    "model__prior__context__input_dropout": 0.12,
    "model__prior__context__recurrent_dropout": 0.16,
    "model__prior__hidden__dropout": 0.13,
    "model__prior__hidden__layers": 2,
    "model__prior__hidden__depth": 2,
    "model__posterior__dropout": 0.14,
    "model__posterior__layers": 2,
    "model__emission__dropout": 0.15,
    "model__emission__layers": 2,
}
PLACES = {0.11: 2, 0.12: 1, 0.13: 4, 0.14: 2, 0.15: 2, 0.16: 2}
"""Between two layers and on the output; on what is read; on 2 x 2 layers of hidden units; on U of two layers, once for
all steps."""
BASELINE = {
    "model__baseline__dropout": 0.2,
    "model__baseline__layers": 2,
    "model__baseline__recurrent_dropout": 0.3,
}


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
@pytest.mark.parametrize(
    ("preset", "changes", "places"),
    [
        ("hmm-af-scf", LATENT, PLACES),
        # On the embedded symbols, between the layers and on the output; on U of both layers.
        ("hmm-lstm", BASELINE, {0.2: 3, 0.3: 2}),
    ],
)
def test_dropout_acts_in_training_where_it_is_set_and_nowhere_in_validation(
    tmp_path, monkeypatch, preset, changes, places, fast
):
    settings = config(preset, **changes, data__train_size=8, data__eval_size=2, train__epochs=1)
    corpus = data.load(settings.data)
    trainer = Trainer(
        Run.create(tmp_path / "run", settings, corpus.spec), corpus, World(), Reporter(quiet=True)
    )
    real, seen = F.dropout, []

    def spy(input, p=0.5, training=True, inplace=False):
        result = real(input, p, training, inplace)
        if training and p:
            kept = result != 0
            assert torch.allclose(result[kept], input[kept] / (1 - p))
            seen.append(p)
        return result

    monkeypatch.setattr(F, "dropout", spy)
    validated = []
    whole = trainer.validate

    def validate():
        before = len(seen)
        found = whole()
        validated.append(len(seen) - before)
        return found

    monkeypatch.setattr(trainer, "validate", validate)
    if fast:
        trainer.fit()
    else:
        with latflow.fast.off():
            trainer.fit()
    assert trainer.state.updates == 1
    assert {p: seen.count(p) for p in seen} == places
    assert validated == [0]


@pytest.mark.parametrize("p", [0.11, 0.14])
def test_dropout_of_the_config_changes_the_loss_of_training(p, tmp_path):
    """What a user sees of it: another first loss, with the same weights and noise."""
    name = "model__prior__context__dropout" if p == 0.11 else "model__posterior__dropout"
    losses = []
    for share in (0.0, 0.9):
        settings = config("hmm-af-scf", data__train_size=8, data__eval_size=2, **{name: share})
        corpus = data.load(settings.data)
        run = Run.create(tmp_path / f"run{share}", settings, corpus.spec)
        trainer = Trainer(run, corpus, World(), Reporter(quiet=True))
        sums, _ = trainer.gradient(list(trainer.batches.epoch(0)), 1.0, 0, 0)
        losses.append(sums.loss)
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)


SCORES = (-3.0, -1.0, 0.0, 0.7, 2.0)


def largest_deviation(hits: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of the shares of hits (n, k) from their probabilities (k,), in standard deviations."""
    shares = hits.double().mean(0)
    return float(((shares - wanted) / (wanted * (1 - wanted) / len(hits)).sqrt()).abs().max())


def test_a_note_sounds_with_the_probability_of_its_score():
    """5 shares of 20 000 draws stay within 5 deviations; noise of 1.25 times the size would not."""
    alphabet = Bernoulli(len(SCORES), 1, tied=True)
    noise = alphabet.noise(20_000, torch.Generator().manual_seed(0))
    scores = torch.tensor(SCORES)

    def deviation(noise: torch.Tensor) -> float:
        return largest_deviation(alphabet.decide(scores + noise) == 1, scores.double().sigmoid())

    assert deviation(noise) < 5
    for off in (1.25 * noise, 2 * noise, noise + 0.2):
        assert deviation(off) > 5


def test_a_symbol_is_drawn_with_the_probability_of_its_score():
    alphabet = Categorical(len(SCORES), 1, tied=True)
    noise = alphabet.noise(20_000, torch.Generator().manual_seed(0))
    scores = torch.tensor(SCORES)

    def deviation(noise: torch.Tensor) -> float:
        drawn = F.one_hot(alphabet.decide(scores + noise), len(SCORES))
        return largest_deviation(drawn, scores.double().softmax(-1))

    assert deviation(noise) < 5
    for off in (1.25 * noise, 0.8 * noise, torch.randn_like(noise)):
        assert deviation(off) > 5


@pytest.mark.parametrize("name", ["hmm", "chords"])
def test_the_splits_of_a_drawn_set_are_drawn_apart(name):
    """Under one seed valid and test would be the same sequences, and half of the noise that of training."""
    corpus = draw_corpus(name, 40, 40)
    train, valid, test = (corpus.splits[split] for split in ("train", "valid", "test"))
    assert corpus.truth is not None
    for one, other in ((train, valid), (train, test), (valid, test)):
        assert not np.array_equal(one.lengths, other.lengths)
        starts = [{x[:16].tobytes() for x in part if len(x) >= 16} for part in (one, other)]
        assert len(starts[0]) > 10
        assert not starts[0] & starts[1]
    assert not math.isclose(corpus.truth["valid"].sum(), corpus.truth["test"].sum())


def test_every_epoch_and_step_has_noise_of_its_own(tmp_path):
    settings = config("hmm-af-scf", data__train_size=8, data__eval_size=2)
    corpus = data.load(settings.data)
    run = Run.create(tmp_path / "run", settings, corpus.spec)
    trainer = Trainer(run, corpus, World(), Reporter(quiet=True))
    batch = next(trainer.batches.epoch(0))
    losses = [trainer.gradient([batch], 1.0, *place)[0].loss for place in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3
