"""Presets are the paper's rows: they differ by what the rows differ by, and by nothing else."""

from __future__ import annotations

import json
import re

import pytest

from latflow.config import Config, evolve, flatten, from_dict, to_dict
from latflow.errors import LatflowError
from latflow.presets import PRESETS, find

MUSIC = ("nottingham", "piano-midi", "musedata", "jsb")
TEXT_ROWS = (
    "lstm",
    "af-only",
    "af-af",
    "af-scf",
    "iaf-scf",
    "af-af-affine",
    "af-none-nlsq",
    "af-none-affine",
)
MUSIC_ROWS = ("lstm", "af-af", "af-scf", "iaf-scf")

# What a row says in the paper (Tables 1 to 3, section 6), against AF / AF of the same data.
ROW = {
    "af-af": {},
    "af-scf": {"model.prior.hidden": "scf"},
    "iaf-scf": {"model.prior.time": "iaf", "model.prior.hidden": "scf"},
    "af-only": {"model.prior.time": "none", "model.prior.context": "position"},
    "af-af-affine": {"model.prior.scalar": "affine", "model.prior.scalar.raw_scale": 0.4},
    "af-none-nlsq": {"model.prior.hidden": "none"},
    "af-none-affine": {
        "model.prior.hidden": "none",
        "model.prior.scalar": "affine",
        "model.prior.scalar.raw_scale": 0.4,
    },
}
# "3 layers are used for the IAF / SCF models, for character-level language modeling"; dropout "in the prior of the
# AF / AF and AF / SCF models" (supplement E).
IAF = {"model.prior.context.dropout": 0.0}
# A batch of IAF is twice as large, its ramp as many sentences long. AF-only needs shorter gradients.
SMALL_TEXT_ALSO = {
    "iaf-scf": {"train.batch_size": 16, "train.kl_steps": (0, 1500)},
    "af-only": {"train.clip": 0.25, "model.prior.reading": "raw"},
}
TEXT_IAF = {"model.prior.hidden.layers": 3, **IAF}


def difference(name: str, base: Config) -> dict[str, object]:
    """Fields with another value; of another choice its name alone, for its options are its own."""
    ours, theirs = flatten(find(name).config), flatten(base)
    changed = {field: value for field, value in ours.items() if value != theirs.get(field)}
    new = {field for field in changed if field not in theirs and field.rpartition(".")[0] in changed}
    return {field: value for field, value in changed.items() if field not in new}


@pytest.mark.parametrize("row", ROW)
def test_rows_on_text(row):
    expected = ROW[row] | (TEXT_IAF if row == "iaf-scf" else {})
    assert difference(f"ptb-{row}", find("ptb-af-af").config) == expected


@pytest.mark.parametrize("row", ["af-af", "af-scf", "iaf-scf"])
@pytest.mark.parametrize("corpus", MUSIC)
def test_rows_on_music(corpus, row):
    expected = ROW[row] | (IAF if row == "iaf-scf" else {})
    assert difference(f"{corpus}-{row}", find(f"{corpus}-af-af").config) == expected


@pytest.mark.parametrize("corpus", ["ptb", *MUSIC])
def test_baseline(corpus):
    """Another model and another optimizer on the same data."""
    changed = difference(f"{corpus}-lstm", find(f"{corpus}-af-af").config)
    schedule = {"train.samples", "train.kl_zero", "train.kl_ramp", "train.batch_size", "train.accumulate"}
    assert {"model.kind", "train.optimizer", "train.lr"} <= changed.keys()
    assert changed.keys() <= {"model.kind", "train.optimizer", "train.lr"} | schedule
    config = find(f"{corpus}-lstm").config
    assert (config.train.optimizer, config.train.lr, config.train.batch_size) == ("sgd", 20.0, 15)
    assert config.model.baseline.dropout == 0.1
    assert (config.model.baseline.units, config.model.baseline.layers) == (500, 2)


def test_the_papers_sizes_and_schedule():
    """Supplement E."""
    text = find("ptb-af-af").config
    m, t = text.model, text.train
    assert (m.latent_size, m.embedding_size, m.tie_embedding) == (50, 500, True)
    assert {m.prior.context.units, m.posterior.units, m.emission.units} == {500}
    assert {m.prior.context.layers, m.posterior.layers, m.emission.layers} == {2}
    assert (m.prior.hidden.layers, m.prior.context.dropout, m.prior.scalar.name) == (5, 0.2, "nlsq")
    assert (t.samples, t.lr, t.clip, t.batch_size, t.patience) == (10, 1e-3, 0.25, 15, 1)
    assert (t.kl_zero, t.kl_ramp, t.kl_steps, t.lr_factor, t.ema) == (4, 10, None, 0.25, 0)
    for corpus, batch in zip(MUSIC, ((5, 1), (1, 8), (1, 8), (5, 1)), strict=True):
        music = find(f"{corpus}-af-af").config
        assert music.model == text.model
        assert (music.train.batch_size, music.train.accumulate) == batch
        assert (music.train.kl_zero, music.train.kl_ramp, music.train.samples, music.train.patience) == (
            20,
            15,
            1,
            2,
        )


def test_every_row_has_its_number_and_its_small_preset():
    rows = [f"ptb-{row}" for row in TEXT_ROWS] + [f"{corpus}-{row}" for corpus in MUSIC for row in MUSIC_ROWS]
    for name in rows:
        assert PRESETS[name].paper is not None
        assert PRESETS[f"{name}-small"].paper is None
    named = {name: preset.paper.nll for name, preset in PRESETS.items() if preset.paper}
    assert len(named) == 24
    numbers = {name: named[name] for name in ("ptb-af-af", "ptb-af-none-nlsq", "musedata-af-scf", "jsb-lstm")}
    assert numbers == {"ptb-af-af": 1.42, "ptb-af-none-nlsq": 1.57, "musedata-af-scf": 6.95, "jsb-lstm": 8.17}


@pytest.mark.parametrize("row", [row for row in TEXT_ROWS if row not in ("lstm", "af-af")])
def test_small_rows_differ_as_the_rows_do(row):
    found = difference(f"ptb-{row}-small", find("ptb-af-af-small").config)
    assert found == {**ROW[row], **SMALL_TEXT_ALSO.get(row, {})}


@pytest.mark.parametrize("row", ["lstm", "af-af"])
def test_long_rows_have_more_passes_and_nothing_else(row):
    found = difference(f"ptb-{row}-long", find(f"ptb-{row}-small").config)
    assert found == {"train.epochs": 14, "train.lr_decay": 14}


# Training sequences of each corpus, as `latflow data stats` counts them.
SIZES = {"ptb": 41740, "nottingham": 694, "piano-midi": 87, "musedata": 524, "jsb": 229}


@pytest.mark.parametrize("corpus", SIZES)
def test_small_presets_keep_the_steps_of_the_warm_up(corpus):
    """A thousand steps to the full KL weight or more (docs/log.md says why), and that well before the end."""
    train = find(f"{corpus}-af-af-small").config.train
    assert train.kl_steps is not None
    steps = train.epochs * -(-SIZES[corpus] // (train.batch_size * train.accumulate))
    assert sum(train.kl_steps) >= 1000
    assert sum(train.kl_steps) <= 0.75 * steps


@pytest.mark.parametrize("name", PRESETS)
def test_round_trip(name):
    config = PRESETS[name].config
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"modle": {}}, "unknown field modle"),
        ({"model": {"prior": {"layerz": 3}}}, "unknown field model.prior.layerz"),
        (
            {"model": {"prior": {"layers": "3"}}},
            "model.prior.hidden.layers is '3'; it must be a whole number",
        ),
        (
            {"model": {"prior": {"layers": True}}},
            "model.prior.hidden.layers is True; it must be a whole number",
        ),
        ({"model": {"prior": {"time": "maf"}}}, "model.prior.time is 'maf'; accepted: af, iaf, none"),
        (
            {"model": {"prior": {"raw_scale": [1, 2]}}},
            "model.prior.scalar.raw_scale is [1, 2]; it must be a list of 3",
        ),
        ({"model": 3}, "model must be a mapping"),
        ({"train": {"lr": float("nan")}}, "train.lr is nan; accepted: 0 to 1e+06"),
        ({"train": {"batch_size": 0}}, "train.batch_size is 0; accepted: 1 or more"),
        ({"train": {"kl_steps": [-1, 5]}}, "train.kl_steps is -1"),
        ({"model": {"prior": {"dropout": 1.5}}}, "model.prior.context.dropout is 1.5; accepted: 0 to 1"),
    ],
)
def test_bad_configs_are_refused_by_name(raw, message):
    with pytest.raises(LatflowError, match=re.escape(message)):
        from_dict(raw)


def test_evolve_refuses_unknown_fields():
    with pytest.raises(LatflowError, match="no field 'layerz'"):
        evolve(Config(), {"model.prior.layerz": 3})


def test_unknown_preset_names_the_nearest():
    with pytest.raises(LatflowError, match="near: ptb-af-af"):
        find("ptb-afaf")
