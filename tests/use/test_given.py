"""Draws given what is known, against enumeration of p(x): every string of a tiny model, its probability by importance
samples in float64."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from latflow.beyond import CODEBOOK, MUSIC_ROWS, TEXT_ROWS
from latflow.config import Config, ModelConfig, evolve
from latflow.data.base import DataSpec
from latflow.errors import LatflowError, LatflowWarning
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, SequenceModel, build
from latflow.use import Evidence, given
from tests.models.cases import batch_of, music_spec

pytestmark = [
    pytest.mark.usefixtures("double"),
    pytest.mark.filterwarnings("ignore:.*effectively different:latflow.errors.LatflowWarning"),
]
TEXT = ["af-af", "iaf-af", "af-only", "lstm"]
MUSIC = ["af-af", "af-af, down", "af-none-mixture", "lstm"]
SPEC = DataSpec("text", tuple("abc"), (0, 0, 0, 3, 1))
TRUTH = 40_000
"""Draws of z behind p(x) of a latent model."""
DRAWS = 1000
SMALL = {
    "model.embedding_size": 4,
    "model.prior.context.units": 5,
    "model.baseline.units": 5,
    "model.baseline.dropout": 0.0,
}


def small_config(row: Mapping[str, Any]) -> ModelConfig:
    return evolve(evolve(evolve(Config(), CODEBOOK), row), SMALL).model


@cache
def tiny(row: str, kind: str = "text") -> SequenceModel:
    """With random weights, so that every symbol hangs on those before it, and codes that overlap a little."""
    torch.manual_seed(7)
    rows = TEXT_ROWS if kind == "text" else MUSIC_ROWS
    name, _, notes = row.partition(", ")
    config = small_config({**rows[name], **({"model.posterior.notes": notes} if notes else {})})
    if config.prior.hidden.name != "codebook":
        config = evolve(config, {"prior.hidden.units": 10 if kind == "text" else 88})
    model = build(config, SPEC if kind == "text" else music_spec(2))
    tied = config.prior.hidden.name == "codebook" or row == "lstm"
    spread = (0.4 if tied else 0.1) if kind == "text" else 0.15
    for name, parameter in model.named_parameters():
        if "codes" not in name:
            torch.nn.init.normal_(parameter, std=spread)
    if row != "lstm" and kind == "text":
        # Wide enough for q to cover what random weights make of the prior; a trained model sees to that itself.
        with torch.no_grad():
            model.posterior.codes.log_scales.fill_(math.log(0.45 if tied else 1.5))  # type: ignore[union-attr]
    return model.eval()


@cache
def emissions(row: str, T: int) -> torch.Tensor:
    """p(x_t | z_t) of every symbol (n, T, 3) for draws z ~ p(z | T): p(x | T) is the mean of products of them."""
    model, packing = tiny(row), Packing(torch.full((TRUTH,), T))
    assert isinstance(model, LatentSequenceModel)
    torch.manual_seed(3)
    with torch.no_grad():
        z = model.prior.sample_rows(packing)
        return packing.unpack(model.emission.scores(z, model.alphabet, packing).softmax(-1))


def enumerated(row: str, pattern: str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The strings that fit a pattern, p(x | T) of each, and the standard error of their sum relative to it."""
    places = [range(3) if symbol == "?" else ["abc".index(symbol)] for symbol in pattern]
    x = torch.tensor(list(itertools.product(*places)))
    if row == "lstm":
        batch = batch_of(x, [len(pattern)] * len(x))
        *_, (_, weights) = tiny(row).draws(batch, [1], given_length=True)
        return x, (-weights.nll()).exp(), 0.0
    products = torch.ones(TRUTH, len(x))
    for t, p in enumerate(emissions(row, len(pattern)).unbind(1)):
        products = products * p[:, x[:, t]]
    total = products.sum(-1)
    return x, products.mean(0), float(total.std() / total.mean()) / math.sqrt(TRUTH)


def agree(weights: torch.Tensor, counts: torch.Tensor, effective: float, error: float) -> None:
    """Pearson's statistic with as many draws as are effective, the error of the truth counted in. Beyond the bound of
    k + 4 sqrt(2 k) + 8 for k degrees of freedom once in 10,000 or more seldom."""
    assert error < 0.03
    p, found = weights / weights.sum(), counts / counts.sum()
    degrees, draws = len(p) - 1, 1 / (1 / effective + error**2)
    assert ((found - p).square() / p).sum() * draws < degrees + 4 * math.sqrt(2 * degrees) + 8


def unbiased(estimates: list[float], truth: float, error: float) -> None:
    """The mean of Z over runs is p(x_known), within four standard errors of both."""
    ratios = (torch.tensor(estimates) - truth).exp()
    bound = 4 * math.hypot(float(ratios.std()) / math.sqrt(len(ratios)), error)
    assert abs(float(ratios.mean()) - 1) < bound + 1e-9
    assert bound < 0.1  # a bound that would let everything pass proves nothing


@pytest.mark.parametrize(
    ("row", "pattern"),
    [*((row, "a?c?") for row in TEXT), ("af-af", "??b?"), ("af-af", "???c"), ("lstm", "???c")],
)
def test_free_symbols_have_the_posterior_of_enumeration(row, pattern):
    model, (x, p, error) = tiny(row), enumerated(row, pattern)
    evidence = Evidence.template(SPEC, pattern)
    result = given(model, evidence, DRAWS, particles=DRAWS)
    drawn = torch.from_numpy(np.stack(result.samples))
    counts = torch.stack([(drawn == one).all(-1).sum() for one in x])
    assert counts.sum() == DRAWS
    agree(p, counts.double(), result.effective_samples, error)
    runs = [given(model, evidence, 1, particles=400, seed=seed).log_p for seed in range(20)]
    unbiased(runs, math.log(float(p.sum())), error)
    assert result.steps.sum() == pytest.approx(result.log_p)


@pytest.mark.filterwarnings("ignore:very unlikely:latflow.errors.LatflowWarning")
@pytest.mark.parametrize("row", MUSIC)
def test_free_notes_beside_known_ones_have_the_posterior_of_enumeration(row):
    """Four notes of two steps are free, all else is known: below, between and above them."""
    model, free = tiny(row, "music"), ((0, 30), (0, 31), (1, 5), (1, 87))
    roll = np.zeros((2, 88), np.uint8)
    roll[0, [3, 40]] = roll[1, [6, 41]] = 1
    known = np.ones(roll.shape, bool)
    rolls = torch.from_numpy(roll).double().repeat(16, 1, 1)
    for column, (place, note) in zip(
        zip(*itertools.product((0.0, 1.0), repeat=4), strict=True), free, strict=True
    ):
        known[place, note] = False
        rolls[:, place, note] = torch.tensor(column)
    torch.manual_seed(3)
    *_, (_, weights) = model.draws(batch_of(rolls, [2] * 16), [1000], 500, given_length=True)
    log_p = -weights.nll()
    p = (log_p - log_p.max()).exp()
    error = 0.0 if model.exact else float((p * weights.effective_samples().rsqrt()).norm() / p.sum())
    result = given(model, Evidence(roll, known), DRAWS, particles=DRAWS)
    drawn = torch.from_numpy(np.stack(result.samples)).double()
    counts = torch.stack([(drawn == one).all(-1).all(-1).sum() for one in rolls]).double()
    assert counts.sum() == DRAWS
    agree(p, counts, result.effective_samples, error)
    runs = [given(model, Evidence(roll, known), 1, particles=400, seed=seed).log_p for seed in range(20)]
    unbiased(runs, float(log_p.logsumexp(0)), error)


@pytest.mark.parametrize("row", ["af-af", "iaf-af", "lstm"])
def test_a_continuation_is_what_rejection_finds(row):
    """Two samples of the same 27 continuations, compared by a chi-square of two samples."""
    model, n = tiny(row), 30_000
    torch.manual_seed(5)
    x = model.sample(torch.full((n,), 4))
    accepted = x[x[:, 0] == 1][:, 1:]
    result = given(model, Evidence.prefix(SPEC, "b", length=4), DRAWS, particles=DRAWS)
    drawn = torch.from_numpy(np.stack(result.samples))[:, 1:]
    powers = torch.tensor([9, 3, 1])
    ours, theirs = ((rows @ powers).bincount(minlength=27).double() for rows in (drawn, accepted))
    ours = ours * result.effective_samples / ours.sum()
    a, b = (theirs.sum() / ours.sum()).sqrt(), (ours.sum() / theirs.sum()).sqrt()
    there = ours + theirs > 0
    statistic = ((a * ours - b * theirs).square()[there] / (ours + theirs)[there]).sum()
    assert statistic < 26 + 4 * math.sqrt(52) + 8


@pytest.mark.parametrize("row", ["af-af", "lstm"])
def test_an_open_end_has_the_length_that_its_beginning_speaks_for(row):
    """p(T | x_known, T > 2) ∝ p(T) p(x_known | T): for the three and the four steps that there are."""
    model, total, errors = tiny(row), [], []
    for pattern in ("ac?", "ac??"):
        _, p, error = enumerated(row, pattern)
        total.append(SPEC.length_counts[len(pattern)] / 4 * float(p.sum()))
        errors.append(error)
    result = given(model, Evidence.prefix(SPEC, "ac"), DRAWS, particles=DRAWS)
    assert all(len(x) in (3, 4) and x[:2].tolist() == [0, 2] for x in result.samples)
    counts = torch.tensor([len(x) for x in result.samples]).bincount(minlength=5)[3:].double()
    agree(torch.tensor(total), counts, result.effective_samples, max(errors))
    runs = [
        given(model, Evidence.prefix(SPEC, "ac"), 1, particles=600, seed=seed).log_p for seed in range(20)
    ]
    unbiased(runs, math.log(sum(total)), max(errors))


def test_nothing_known_is_a_sample_and_everything_known_a_score():
    model = tiny("af-af")
    result = given(model, Evidence.template(SPEC, "????"), 5)
    assert [len(x) for x in result.samples] == [4] * 5
    assert result.log_p == 0
    assert {len(x) for x in given(model, Evidence.prefix(SPEC, ""), 50).samples} == {3, 4}
    _, p, error = enumerated("af-af", "abca")
    known = given(model, Evidence.template(SPEC, "abca"), 2, particles=DRAWS)
    assert [model.spec.decode(x) for x in known.samples] == ["abca"] * 2
    assert known.log_p == pytest.approx(math.log(float(p)), abs=4 * math.hypot(error, DRAWS**-0.5))


def test_a_seed_gives_the_same_draws_and_few_effective_ones_are_told():
    model, evidence = tiny("af-af"), Evidence.template(SPEC, "?c?a")
    one, two = (given(model, evidence, 6, particles=50, seed=3) for _ in range(2))
    assert [x.tolist() for x in one.samples] == [x.tolist() for x in two.samples]
    assert one.log_p == two.log_p
    assert 1 <= one.effective_samples <= one.particles == 50
    with pytest.warns(LatflowWarning, match="effectively different"):
        given(model, evidence, 50, particles=50)


def test_ancestors_that_are_shared_are_one_draw():
    from latflow.use.particles import Particles

    cloud = Particles(4, 2, 0.5, torch.device("cpu"))
    cloud.mark(0)
    index = cloud.weigh(0, torch.tensor([0.0, -50.0, -50.0, -50.0]))
    assert index is not None
    assert index.tolist() == [0, 0, 0, 0]
    cloud.mark(1)
    assert cloud.effective_draws(2).tolist() == pytest.approx([1, 4])
    assert float(cloud.log_z.sum()) == pytest.approx(-math.log(4))


def test_impossible_and_unlikely_evidence_is_told():
    model = build(small_config(TEXT_ROWS["lstm"]), SPEC).eval()
    with torch.no_grad():
        model.alphabet.bias[2] = -math.inf
    with pytest.raises(LatflowError, match=r"impossible: what is known of step 2 .* -inf"):
        given(model, Evidence.template(SPEC, "?c??"))
    with torch.no_grad():
        model.alphabet.bias[2] = -30
    with pytest.warns(
        LatflowWarning, match=r"very unlikely: .* log p = -\d\d\.\d nats .* least likely is step 2"
    ):
        given(model, Evidence.template(SPEC, "?c??"))


@pytest.mark.filterwarnings("ignore:very unlikely:latflow.errors.LatflowWarning")
def test_what_cannot_be_done_is_refused_in_words():
    model = tiny("af-af")
    with pytest.raises(
        LatflowError, match=r"length 5; this model knows lengths from 1 to 4.*model.position_cap"
    ):
        given(model, Evidence.prefix(SPEC, "ab", length=5))
    with pytest.raises(LatflowError, match=r"length 5; this model"):
        given(model, Evidence.prefix(SPEC, "abca"))
    with pytest.raises(LatflowError, match="0 samples by 5 particles"):
        given(model, Evidence.template(SPEC, "a?"), 0, particles=5)
    with pytest.raises(LatflowError, match="temperature nan"):
        given(model, Evidence.template(SPEC, "a?"), temperature=math.nan)
    music = build(small_config(MUSIC_ROWS["af-scf"]), music_spec(2))
    roll, known = np.zeros((2, 88), np.uint8), np.zeros((2, 88), bool)
    known[0, :40] = True
    with pytest.raises(LatflowError, match="Keep or free whole steps"):
        given(music, Evidence(roll, known))
    roll[0, [30, 40]], known[0] = 1, True
    assert len(given(music, Evidence(roll, known), 2).samples) == 2


def test_temperature_drives_what_is_drawn_and_not_what_is_known():
    model, evidence = tiny("lstm"), Evidence.template(SPEC, "ab??")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LatflowWarning)
        cold = given(model, evidence, 20, temperature=0.0)
    assert len({tuple(x) for x in cold.samples}) == 1
    assert cold.log_p == pytest.approx(given(model, evidence, 20).log_p)


def test_particles_grow_where_few_draws_stay_different(monkeypatch):
    """A known symbol of small probability behind a free one: of few particles hardly one survives."""
    model = tiny("af-af")
    evidence = Evidence.template(SPEC, "?c?c")
    module = importlib.import_module("latflow.use.given")  # the function has the module's name
    monkeypatch.setattr(module, "FIRST", {"text": 4})
    found = given(model, evidence, 4)
    assert found.effective_samples >= 4
    assert found.particles in (16, 64, 256, 1024)
    with pytest.warns(LatflowWarning, match="effectively different"):
        assert given(model, evidence, 4, particles=4).particles == 4
