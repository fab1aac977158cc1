"""What is chosen for a user's own data: larger models and fewer passes for more of it, the KL weight 1 at once."""

from __future__ import annotations

import numpy as np
import pytest

from latflow.config import DataConfig
from latflow.data.base import Corpus, DataSpec, Sequences
from latflow.models import build
from latflow.training.optimize import kl_weight
from latflow.training.recommend import described, recommended


def corpus(n: int, length: int, music: bool = False) -> Corpus:
    lengths = np.full(n, length)
    if music:
        spec = DataSpec("music", (), (0,) * length + (n,))
        splits = Sequences(np.zeros((n * length, 11), np.uint8), lengths, music=True)
    else:
        spec = DataSpec("text", tuple("abc"), (0,) * length + (n,))
        splits = Sequences(np.zeros(n * length, np.uint8), lengths, music=False)
    name = "midi:here" if music else "text:here"
    return Corpus(name, spec, {"train": splits, "valid": splits[:1], "test": splits[:1]}, "made up")


def test_a_model_of_own_music_begins_with_the_highest_note():
    found = recommended(DataConfig(name="x"), corpus(60, 100, music=True))
    assert found.model.posterior.notes == "down"


def test_music_has_the_less_dropout_on_recurrent_weights_the_more_there_is_of_it():
    found = [recommended(DataConfig(name="x"), corpus(n, 100, music=True)).model for n in (60, 600, 6000)]
    assert [model.prior.context.recurrent_dropout for model in found] == [0.4, 0.3, 0.0]
    assert [model.baseline.recurrent_dropout for model in found] == [0.4, 0.3, 0.0]


@pytest.mark.parametrize("music", [False, True])
def test_more_data_has_larger_models_and_fewer_passes(music):
    sizes = [(60, 100), (600, 100), (6000, 100), (60_000, 100)]
    configs = [recommended(DataConfig(name="x"), corpus(n, length, music)) for n, length in sizes]
    units = [c.model.prior.context.units for c in configs]
    epochs = [c.train.epochs for c in configs]
    assert units == sorted(units)
    assert units[0] < units[-1]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > 50 > 5 > epochs[-1]
    for config, (n, _) in zip(configs, sizes, strict=True):
        steps = config.train.epochs * -(-n // config.train.batch_size)
        assert 2_000 < steps < 15_000


@pytest.mark.parametrize("music", [False, True])
def test_the_kl_weight_is_one_from_the_first_step_and_the_model_can_be_built(music):
    given = corpus(60, 50, music)
    config = recommended(DataConfig(name="x"), given)
    assert kl_weight(config.train, 0, 15) == 1.0
    model = build(config.model, given.spec)
    assert not model.exact
    assert model.length.bounded is not music  # a piece may be longer than those of training
    assert (config.data.transpose, config.train.lr_decay) == ((6, 0) if music else (0, config.train.epochs))


def test_long_pieces_are_cropped_and_large_sets_have_large_batches():
    assert recommended(DataConfig(name="x"), corpus(60, 900, music=True)).data.crop == 200
    assert recommended(DataConfig(name="x"), corpus(60, 300, music=True)).data.crop == 0
    large = recommended(DataConfig(name="x"), corpus(2_000_000, 2))
    assert large.train.batch_size == 128
    assert large.train.epochs == 1


def test_the_choice_is_said_in_a_line():
    given = corpus(600, 100)
    text = described(recommended(DataConfig(name="text:here"), given), given)
    assert text.startswith("text:here: 600 training sequences, 60,000 characters: a codebook flow")
    assert "up to 60 epochs, until 15 in a row are no better" in text
    assert "\n" not in text


def test_the_line_is_of_what_the_options_make_of_it(tmp_path, monkeypatch, capsys):
    """Not of what would have been trained without them."""
    from latflow.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("some lines\nto learn\nfrom here\n" * 20, encoding="utf-8")
    small = ["--model.baseline.units", "7", "--train.epochs", "1", "--train.batch_size", "30"]
    assert main(["train", "text:my.txt", "--model.kind", "lstm", *small]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert "the LSTM baseline, 7 units, dropout 0.3, batches of 30, 1 epoch (" in said
    assert "flow" not in said


def test_a_flow_that_options_made_another_is_not_called_a_codebook():
    from latflow.config import evolve

    given = corpus(600, 100)
    chosen = recommended(DataConfig(name="text:here"), given)
    paper = {"model.posterior": "bilstm", "model.emission": "bilstm", "model.prior.reading": "raw"}
    other = evolve(chosen, {**paper, "model.latent_size": 4, "model.prior.hidden": "af"})
    assert "codebook" not in described(other, given)
