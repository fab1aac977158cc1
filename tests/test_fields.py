"""Every field of the config has a test that shows its effect; a new field without one fails here."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from latflow import data
from latflow.axes import AXES
from latflow.config import Config, DataConfig, evolve, flatten
from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.models import build
from latflow.models.codes import log_odds
from latflow.training.distributed import World, choose_device
from latflow.training.fit import train
from latflow.training.loop import Trainer
from latflow.training.report import Reporter
from latflow.training.run import Run
from tests.breaks.patch import ROOT
from tests.training.tiny import TINY, config

WALK = "tests/walks/test_training_walk.py::test_a_training_is_the_one_written_by_hand"
SHAPES = "tests/test_fields.py::test_a_size_is_that_of_the_weights"
DROPOUT = "tests/walks/test_dropout_and_draws.py::" + (
    "test_dropout_acts_in_training_where_it_is_set_and_nowhere_in_validation"
)
VARIED = "tests/test_fields.py::test_music_is_varied_in_training_as_the_config_says"
LABELS = "tests/data/test_labels.py::"
TEXT = "tests/data/test_text.py::"
MIDI = "tests/data/test_midi.py::"
MODELS = "tests/models/test_models.py::"
CODEBOOK = "tests/models/test_codebook.py::"
LOOP = "tests/training/test_loop.py::"
AXIS = "tests/test_axes.py::test_every_name_of_a_table_is_accepted_with_its_own_options"

TESTS: dict[str, str] = {
    "seed": WALK,
    "data.name": TEXT + "test_unknown_names_are_refused",
    "data.data_dir": "tests/data/test_fetch.py::test_folders_are_searched_in_order",
    "data.max_length": TEXT + "test_long_lines_are_left_out_if_a_limit_is_set",
    "data.chunk": TEXT + "test_chunks_cut_everything_and_lose_nothing",
    "data.valid_fraction": "tests/test_fields.py::test_shares_and_seed_of_a_split",
    "data.test_fraction": "tests/test_fields.py::test_shares_and_seed_of_a_split",
    "data.split_seed": "tests/test_fields.py::test_shares_and_seed_of_a_split",
    "data.smooth_lengths": "tests/test_fields.py::test_lengths_are_smoothed_if_asked",
    "data.labels": LABELS + "test_the_first_folder_names_the_sequences_in_it",
    "data.unknown": "tests/data/test_unknown.py::test_the_vocabulary_is_that_of_training_and_a_mark_for_the_rest",
    "data.steps_per_beat": MIDI + "test_any_roll_survives_midi",
    "data.steps_per_second": MIDI + "test_the_tempo_counts_only_on_a_grid_of_seconds",
    "data.articulate": MIDI + "test_repeated_notes_are_kept_apart_if_asked",
    "data.transpose": VARIED,
    "data.transpose_zero": VARIED,
    "data.crop": VARIED,
    "data.train_size": "tests/test_fields.py::test_sizes_and_seed_of_a_drawn_set",
    "data.eval_size": "tests/test_fields.py::test_sizes_and_seed_of_a_drawn_set",
    "data.synthetic_seed": "tests/test_fields.py::test_sizes_and_seed_of_a_drawn_set",
    "model.kind": WALK,
    "model.latent_size": SHAPES,
    "model.embedding_size": SHAPES,
    "model.tie_embedding": MODELS + "test_embedding_is_tied_unless_asked_otherwise",
    "model.position_rank": SHAPES,
    "model.position_cap": SHAPES,
    "model.condition_size": "tests/test_fields.py::test_the_size_of_what_is_known_of_a_sequence",
    "model.baseline.layers": SHAPES,
    "model.baseline.units": SHAPES,
    "model.baseline.dropout": DROPOUT,
    "model.baseline.recurrent_dropout": DROPOUT,
    "model.baseline.unigram": "tests/test_fields.py::test_the_baseline_starts_with_the_frequencies_if_asked",
    **{f"model.{place}": AXIS for place in ("posterior", "emission")},
    **{f"model.prior.{place}": AXIS for place in ("time", "hidden", "scalar", "context", "reading")},
    **{
        f"train.{name}": WALK
        for name in [
            "epochs",
            "batch_size",
            "batch_by",
            "accumulate",
            "samples",
            "optimizer",
            "lr",
            "lr_decay",
            "clip",
            "kl_steps",
            "ema",
            "eval_samples",
            "eval_batch",
        ]
    },
    "train.products": LOOP + "test_products_are_rounded_in_training_and_nowhere_else",
    "train.lr_factor": LOOP + "test_learning_rate_drops_on_a_plateau_once_the_kl_weight_is_one",
    "train.patience": LOOP + "test_learning_rate_drops_on_a_plateau_once_the_kl_weight_is_one",
    "train.kl_zero": LOOP + "test_kl_weight_moves_inside_an_epoch",
    "train.kl_ramp": LOOP + "test_kl_weight_moves_inside_an_epoch",
    "train.early_stop": LOOP + "test_early_stop",
    "train.max_bad_steps": LOOP + "test_many_bad_steps_in_a_row_stop_the_run",
    "train.log_every": "tests/test_fields.py::test_a_line_every_so_many_steps",
    "train.checkpoint_minutes": LOOP + "test_no_checkpoint_is_made_between_bad_steps",
    "train.device": "tests/test_fields.py::test_the_device_is_the_one_named",
    "train.tensorboard": LOOP + "test_tensorboard",
    # Options of the choices, by axis and name.
    "scalar.nlsq.alpha": "tests/test_fields.py::test_alpha_bounds_the_slope",
    "scalar.nlsq.raw_scale": "tests/test_fields.py::test_raw_scales_multiply_what_the_network_gives",
    "scalar.affine.raw_scale": "tests/test_fields.py::test_raw_scales_multiply_what_the_network_gives",
    "scalar.mixture.components": SHAPES,
    "scalar.mixture.tied": CODEBOOK + "test_the_tied_mixture_over_notes_is_an_lstm_with_a_masked_network",
    **{
        f"hidden.{kind}.{size}": SHAPES
        for kind in ("af", "scf", "none")
        for size in ("layers", "depth", "units")
    },
    **{f"hidden.{kind}.skip": SHAPES for kind in ("af", "scf", "none")},
    **{f"hidden.{kind}.dropout": DROPOUT for kind in ("af", "scf", "none")},
    "hidden.codebook.embedded": CODEBOOK
    + "test_through_the_embedding_it_is_the_language_model_with_the_same_weights",
    "context.lstm.layers": SHAPES,
    "context.lstm.units": SHAPES,
    "context.lstm.dropout": DROPOUT,
    "context.lstm.input_dropout": DROPOUT,
    "context.lstm.recurrent_dropout": DROPOUT,
    "context.position.units": SHAPES,
    "reading.layer.units": SHAPES,
    "posterior.bilstm.layers": SHAPES,
    "posterior.bilstm.units": SHAPES,
    "posterior.bilstm.dropout": DROPOUT,
    "posterior.bilstm.scale": MODELS + "test_latent_scale_is_a_unit_of_z",
    "posterior.bilstm.gain": MODELS + "test_posterior_gain_moves_symbols_apart_at_the_start",
    "posterior.codebook.sigma": "tests/test_fields.py::test_codes_start_with_the_sigma_asked_for",
    "posterior.codebook.learned": CODEBOOK + "test_codes_that_are_not_learned_stay",
    "posterior.codebook.notes": CODEBOOK + "test_notes_from_above_are_the_mirror_of_notes_from_below",
    "emission.bilstm.layers": SHAPES,
    "emission.bilstm.units": SHAPES,
    "emission.bilstm.dropout": DROPOUT,
    "emission.bilstm.scale": MODELS + "test_latent_scale_is_a_unit_of_z",
}


def all_fields() -> set[str]:
    """Dotted fields, those of choices as axis.name.option for every name that comes with the package."""
    flat = {
        name
        for name in flatten(Config())
        if not name.startswith(("model.prior.", "model.posterior.", "model.em"))
    }
    flat |= {"model.embedding_size"}
    flat |= {f"model.prior.{f.name}" for f in fields(Config().model.prior)} | {
        "model.posterior",
        "model.emission",
    }
    for axis, table in AXES.items():
        for name, entry in table.items():
            if entry.origin is None:
                flat |= {f"{axis}.{name}.{f.name}" for f in fields(entry.options)}
    return flat


def test_every_field_has_a_test_and_every_test_is_there():
    assert TESTS.keys() == all_fields()
    names: dict[str, set[str]] = {}
    for test in set(TESTS.values()):
        file, _, name = test.partition("::")
        if file not in names:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            names[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names[file], test


SPEC = DataSpec("text", ("a", "b", "c"), (0, 3, 4, 5, 6))
CASES: list[tuple[dict[str, Any], str, tuple[int, ...]]] = [
    ({"model.latent_size": 5}, "posterior.head.weight", (10, 16)),
    ({"model.embedding_size": 7}, "alphabet.embedding", (3, 7)),
    ({"model.position_rank": 2}, "prior.context.positions.start", (4, 2)),
    ({"model.position_cap": 2}, "prior.context.positions.end", (3, 32)),
    ({"model.posterior.units": 5}, "posterior.lstm.recurrent_weight.0", (2, 20, 5)),
    ({"model.posterior.layers": 3}, "posterior.lstm.input_weight.2", (64, 16)),
    ({"model.emission.units": 5}, "emission.head.weight", (8, 13)),
    ({"model.emission.layers": 3}, "emission.lstm.bias.2", (64,)),
    ({"model.prior.context.units": 5}, "prior.hidden.context_weight", (16, 5)),
    ({"model.prior.context.layers": 3}, "prior.context.start_state.weight", (48, 8)),
    ({"model.kind": "lstm", "model.baseline.units": 5}, "head.weight", (8, 5)),
    ({"model.kind": "lstm", "model.baseline.layers": 3}, "context.lstm.bias.2", (32,)),
    (
        {"model.prior.reading": "layer", "model.prior.reading.units": 9},
        "prior.context.reading.weight",
        (9, 3),
    ),
    (
        {"model.prior.time": "none", "model.prior.context": "position", "model.prior.context.units": 9},
        "prior.context.positions.start",
        (4, 9),
    ),
    (
        {"model.prior.scalar": "mixture", "model.prior.scalar.components": 4},
        "prior.hidden.networks.0.biases.2",
        (36,),
    ),
    *(
        ({"model.prior.hidden": kind, **change}, name, shape)
        for kind, seen, moved in (("af", 3, 3), ("scf", 1, 2), ("none", 0, 3))
        for change, name, shape in (
            ({"model.prior.hidden.layers": 3}, "prior.hidden.context_weight", (24, 8)),
            ({"model.prior.hidden.depth": 3}, "prior.hidden.networks.0.matrices.3", (5 * moved, 8)),
            ({"model.prior.hidden.units": 11}, "prior.hidden.networks.0.matrices.0", (11, seen)),
            ({"model.prior.hidden.skip": True}, "prior.hidden.skip_weight", (2 * 5 * moved, 8)),
        )
    ),
]


@pytest.mark.parametrize(("changes", "name", "shape"), CASES)
def test_a_size_is_that_of_the_weights(changes, name, shape):
    """And the field is what makes it so: without it the weight has another shape, or is not there."""
    with_it = {k: v for k, v in TINY.items() if k.startswith("model.")}
    weights = [
        {
            k: tuple(v.shape)
            for k, v in build(evolve(Config(), {**with_it, **c}).model, SPEC).named_parameters()
        }
        for c in ({k: v for k, v in changes.items() if k.count(".") < 3 and isinstance(v, str)}, changes)
    ]
    assert weights[1][name] == shape
    assert weights[0].get(name) != shape


def test_alpha_bounds_the_slope():
    for alpha in (0.3, 0.9):
        settings = config(model__prior__scalar__alpha=alpha)
        scalar: Any = build(settings.model, SPEC).prior.hidden.scalar  # type: ignore[union-attr]
        raw = torch.zeros(20_001, 5, dtype=torch.float64)
        raw[:, 2] = 1e4
        _, log_slope = scalar.inverse(torch.linspace(-3, 3, 20_001, dtype=torch.float64), raw)
        assert log_slope.exp().min() == pytest.approx(1 - alpha, abs=1e-6)


def test_raw_scales_multiply_what_the_network_gives():
    raw, z = torch.zeros(1, 5, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    raw[:, 1] = 1.0
    nlsq = config(model__prior__scalar__raw_scale=(0.7, 0.3, 0.4))
    scalar: Any = build(nlsq.model, SPEC).prior.hidden.scalar  # type: ignore[union-attr]
    assert scalar.inverse(z, raw)[1].item() == pytest.approx(0.7)
    affine = evolve(config(model__prior__scalar="affine"), {"model.prior.scalar.raw_scale": 0.6})
    scalar = build(affine.model, SPEC).prior.hidden.scalar  # type: ignore[union-attr]
    assert scalar.forward(z, raw[:, :2])[1].item() == pytest.approx(0.6)


def test_codes_start_with_the_sigma_asked_for():
    changes = {"model.posterior": "codebook", "model.emission": "bayes", "model.latent_size": None}
    settings = evolve(config(), {**changes, "model.posterior.sigma": 0.2, "model.prior.hidden.units": 8})
    model = build(settings.model, SPEC)
    assert torch.allclose(model.posterior.codes.log_scales.exp(), torch.tensor(0.2))  # type: ignore[union-attr]


def test_the_size_of_what_is_known_of_a_sequence():
    labelled = replace(SPEC, labels=("x", "y"))
    model = build(config(model__condition_size=5).model, labelled)
    assert model.condition is not None
    assert model.condition.label is not None
    assert model.condition.label.shape == (2, 5)
    assert model.prior.context.condition.weight.shape[1] == 5  # type: ignore[union-attr]


def test_the_baseline_starts_with_the_frequencies_if_asked():
    counted = replace(SPEC, symbol_counts=(8, 1, 3))
    for unigram in (False, True):
        model = build(config("hmm-lstm", model__baseline__unigram=unigram).model, counted)
        assert torch.equal(model.alphabet.bias.detach(), log_odds(counted) if unigram else torch.zeros(3))


def trainer_of(settings: Config, folder: Any) -> Trainer:
    corpus = data.load(settings.data)
    return Trainer(Run.create(folder, settings, corpus.spec), corpus, World(), Reporter(quiet=True))


def test_music_is_varied_in_training_as_the_config_says(tmp_path):
    """Any shift up to 3 but 0, stretches of 5; and with a share of 1 that stays, none."""
    settings = config("chords-lstm", data__transpose=3, data__transpose_zero=0.0, data__crop=5)
    for name, share in (("a", 0.0), ("b", 1.0)):
        varied = evolve(settings, {"data.transpose_zero": share, "data.train_size": 30})
        trainer = trainer_of(varied, tmp_path / name)
        batches = [batch for epoch in range(4) for batch in trainer.batches.epoch(epoch)]
        shifts = {int(s) for batch in batches for s in batch.shift}  # type: ignore[union-attr]
        assert shifts == ({0} if share else {-3, -2, -1, 1, 2, 3})
        assert {int(T) for batch in batches for T in batch.lengths} == {5}


def test_shares_and_seed_of_a_split(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("".join(f"{i:05d}\n" for i in range(40)))
    own = DataConfig(f"text:{path}", valid_fraction=0.25, test_fraction=0.1)
    first, again, other = (data.load(c) for c in (own, own, replace(own, split_seed=1)))
    assert {name: len(part) for name, part in first.splits.items()} == {"train": 26, "valid": 10, "test": 4}
    assert first.contents() == again.contents()
    assert first.contents()["valid"] != other.contents()["valid"]


def test_lengths_are_smoothed_if_asked():
    settings = config().data
    plain, smooth = (data.load(replace(settings, smooth_lengths=s)).spec.length_counts for s in (False, True))
    assert len(smooth) == int(1.25 * (len(plain) - 1)) + 1
    assert smooth[1:] == tuple(c + 1 for c in [*plain[1:], *[0] * (len(smooth) - len(plain))])


def test_sizes_and_seed_of_a_drawn_set():
    settings = replace(config().data, train_size=30, eval_size=7)
    corpus, other = (data.load(c) for c in (settings, replace(settings, synthetic_seed=1)))
    assert {name: len(part) for name, part in corpus.splits.items()} == {"train": 30, "valid": 7, "test": 7}
    assert all(corpus.contents()[name] != other.contents()[name] for name in corpus.splits)


def test_a_line_every_so_many_steps(tmp_path):
    settings = config("hmm-lstm", data__train_size=40, data__eval_size=2, train__epochs=1, train__log_every=2)
    run, _ = train(settings, tmp_path / "run")
    assert [line["updates"] for line in run.metrics() if line["kind"] == "step"] == [2, 4]


def test_the_device_is_the_one_named():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(LatflowError, match="device 'meta' cannot be used"):
        choose_device("meta")
