"""Draws given what is known where posterior and emission look at the whole sequence, against enumeration: p(x) of every
string of a tiny model is the mean of p(x | z) over many z of its prior."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch

import latflow
from latflow.cli import main
from latflow.errors import LatflowError, LatflowWarning
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, build
from latflow.use import Evidence, given, score_given
from latflow.use.given import Given
from latflow.use.walkers import stepwise
from latflow.use.whole import WIDER, Whole
from tests.models.cases import config, music_spec
from tests.use.test_given import SPEC, agree, unbiased

pytestmark = [
    pytest.mark.usefixtures("double"),
    pytest.mark.filterwarnings("ignore:.*effectively different:latflow.errors.LatflowWarning"),
]
TRUTH = 40_000
"""Draws of z behind p(x)."""
PARTICLES = 2000
RUN = 2000
"""Particles of one of 20 estimates of p(x_known)."""
ROWS = ("af-af", "iaf-scf", "af-only")


@cache
def tiny(row: str, kind: str = "text") -> LatentSequenceModel:
    """With random weights that are large enough for x_t to hang on every z, and q on every x; q wider than
    the prior, for nobody has trained it."""
    torch.manual_seed(11)
    model = build(config(row, units=5, latent_size=2), SPEC if kind == "text" else music_spec(2))
    assert isinstance(model, LatentSequenceModel)
    for name, parameter in model.named_parameters():
        part = name.split(".")[0]
        spread = {"prior": 0.3, "posterior": 0.4, "emission": 0.8, "alphabet": 0.9}[part]
        torch.nn.init.normal_(parameter, std=spread if kind == "text" else 0.6 * spread)
    with torch.no_grad():
        model.posterior.head.bias[2:] = 1.0  # type: ignore[union-attr]
    return model.eval()


@cache
def emissions(row: str, T: int, kind: str = "text") -> torch.Tensor:
    """Scores of all steps (TRUTH, T, v) for z ~ p(z | T)."""
    model, packing = tiny(row, kind), Packing(torch.full((TRUTH,), T))
    torch.manual_seed(3)
    with torch.no_grad():
        z = model.prior.sample_rows(packing)
        return packing.unpack(model.emission.scores(z, model.alphabet, packing))


def enumerated(row: str, pattern: str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The strings that fit a pattern, p(x | T) of each, and the standard error of their sum relative to it."""
    places = [range(3) if symbol == "?" else ["abc".index(symbol)] for symbol in pattern]
    x = torch.tensor(list(itertools.product(*places)))
    products = torch.ones(TRUTH, len(x))
    for t, p in enumerate(emissions(row, len(pattern)).softmax(-1).unbind(1)):
        products = products * p[:, x[:, t]]
    total = products.sum(-1)
    return x, products.mean(0), float(total.std() / total.mean()) / math.sqrt(TRUTH)


def test_the_tiny_model_looks_at_the_whole_sequence():
    """Or nothing below would show anything: z_t moves p(x_s) and x_s moves q(z_t) of other steps."""
    model = tiny("af-af")
    assert not stepwise(model)
    packing = Packing(torch.tensor([3]))
    z = torch.zeros(3, 2, requires_grad=True)
    scores = model.emission.scores(z, model.alphabet, packing)
    (grad,) = torch.autograd.grad(scores[1, 0], z)
    assert (grad.abs().sum(-1) > 1e-3).all()
    means = [model.posterior.mode(torch.tensor(x), model.alphabet, packing) for x in ([0, 1, 2], [0, 1, 1])]
    assert (means[0] - means[1]).abs()[:2].max() > 1e-2
    p = enumerated("af-af", "???")[1]
    alone = [torch.stack([p.view(3, 3, 3).sum([d for d in range(3) if d != t])]) for t in range(3)]
    product = (alone[0].T * alone[1]).view(3, 3, 1) * alone[2].view(1, 1, 3)
    assert (product - p.view(3, 3, 3)).abs().sum() > 0.1  # symbols hang on one another


def counted(result: Given, x: torch.Tensor) -> torch.Tensor:
    drawn = torch.from_numpy(np.stack(result.samples))
    counts = torch.stack([(drawn == one).all(-1).sum() for one in x]).double()
    assert counts.sum() == len(drawn)
    return counts


@pytest.mark.parametrize(
    ("row", "pattern"), [*((row, "??b?") for row in ROWS), ("af-af", "a?c?"), ("iaf-scf", "a?c?")]
)
def test_free_symbols_have_the_posterior_of_enumeration(row, pattern):
    model, (x, p, error) = tiny(row), enumerated(row, pattern)
    evidence = Evidence.template(SPEC, pattern)
    result = given(model, evidence, PARTICLES, particles=PARTICLES)
    agree(p, counted(result, x), result.effective_samples, error)
    runs = [given(model, evidence, 1, particles=RUN, seed=seed).log_p for seed in range(20)]
    unbiased(runs, math.log(float(p.sum())), error)


@pytest.mark.parametrize("row", ROWS)
def test_a_guess_keeps_what_is_decided_and_knows_its_density(row):
    """What contexts see is what the flow's own inverse has, and log p of a known step that of the whole prior."""
    model, evidence = tiny(row), Evidence.template(SPEC, "a?cb")
    torch.manual_seed(2)
    whole = Whole(model, evidence, torch.full((3,), 4), 1.0)
    whole.guess(0)
    first = whole.z.clone()
    whole.guess(2)
    assert torch.equal(whole.z[:, :2], first[:, :2])
    assert (whole.z[:, 2:] != first[:, 2:]).all()
    rows, packing = whole.packing.pack(whole.z), whole.packing
    seen = model.prior.time.seen(model.prior, rows, packing)
    torch.testing.assert_close(packing.pack(whole.seen), seen)
    log_p = packing.unpack(model.prior.log_prob_rows(rows, packing))
    assert (whole.log_ratio[:, :2] == 0).all()  # kept, and so weighed before
    torch.manual_seed(2)
    again = Whole(model, evidence, torch.full((3,), 4), 1.0)
    again.guess(0)
    mean, log_std = model.posterior(packing.pack(again.filled(again.scores, False)), model.alphabet, packing)
    q = torch.distributions.Normal(packing.unpack(mean), WIDER * packing.unpack(log_std).exp())
    log_q = q.log_prob(whole.z).sum(-1)
    torch.testing.assert_close(whole.log_ratio[:, 2:], (log_p - log_q)[:, 2:])


def test_a_wrong_posterior_would_be_seen():
    """The same bound rules out draws that nothing weighs, and steps that know nothing of one another."""
    (x, p, error), scores = enumerated("af-af", "?b??"), emissions("af-af", 4).softmax(-1)
    result = given(tiny("af-af"), Evidence.template(SPEC, "?b??"), 3 * PARTICLES)
    counts = counted(result, x)
    unweighed = torch.stack([scores[:, [0, 2, 3], one[[0, 2, 3]]].prod(-1).mean() for one in x])
    alone = torch.stack([scores.mean(0)[range(4), one].prod() for one in x])
    agree(p, counts, result.effective_samples, error)
    for wrong in (unweighed, alone):
        with pytest.raises(AssertionError):
            agree(wrong, counts, result.effective_samples, error)


def test_everything_known_is_a_score_and_nothing_known_a_sample():
    model = tiny("af-af")
    result = given(model, Evidence.template(SPEC, "????"), 5)
    assert [len(x) for x in result.samples] == [4] * 5
    assert result.log_p == 0
    _, p, error = enumerated("af-af", "aca")
    known = Evidence.template(SPEC, "aca")
    assert [x.tolist() for x in given(model, known, 2).samples] == [[0, 2, 0]] * 2
    runs = [given(model, known, 1, particles=RUN, seed=seed).log_p for seed in range(20)]
    unbiased(runs, math.log(float(p)), error)
    row = score_given(model, known, particles=RUN, seed=4)
    assert row["nll_given_length"] == pytest.approx(-runs[4] / math.log(2))


@pytest.mark.parametrize("row", ["af-af", "iaf-scf"])
def test_a_continuation_is_what_rejection_finds(row):
    """Two samples of the same 27 continuations, compared by a chi-square of two samples."""
    model = tiny(row)
    torch.manual_seed(5)
    x = model.sample(torch.full((30_000,), 4))
    powers = torch.tensor([9, 3, 1])
    result = given(model, Evidence.prefix(SPEC, "b", length=4), PARTICLES, particles=PARTICLES)
    theirs = (x[x[:, 0] == 1][:, 1:] @ powers).bincount(minlength=27).double()
    ours = (torch.from_numpy(np.stack(result.samples))[:, 1:] @ powers).bincount(minlength=27).double()
    ours = ours * result.effective_samples / ours.sum()
    a, b = (theirs.sum() / ours.sum()).sqrt(), (ours.sum() / theirs.sum()).sqrt()
    there = ours + theirs > 0
    statistic = ((a * ours - b * theirs).square()[there] / (ours + theirs)[there]).sum()
    assert statistic < 26 + 4 * math.sqrt(52) + 8


def test_an_open_end_has_the_length_that_its_beginning_speaks_for():
    """p(T | x_known, T > 2) ∝ p(T) p(x_known | T): for the three and the four steps that there are."""
    model, total, errors = tiny("af-af"), [], []
    for pattern in ("ac?", "ac??"):
        _, p, error = enumerated("af-af", pattern)
        total.append(SPEC.length_counts[len(pattern)] / 4 * float(p.sum()))
        errors.append(error)
    evidence = Evidence.prefix(SPEC, "ac")
    result = given(model, evidence, PARTICLES, particles=PARTICLES)
    assert all(len(x) in (3, 4) and x[:2].tolist() == [0, 2] for x in result.samples)
    counts = torch.tensor([len(x) for x in result.samples]).bincount(minlength=5)[3:].double()
    agree(torch.tensor(total), counts, result.effective_samples, max(errors))
    runs = [given(model, evidence, 1, particles=RUN, seed=seed).log_p for seed in range(20)]
    unbiased(runs, math.log(sum(total)), max(errors))


def test_free_notes_beside_known_ones_have_the_posterior_of_enumeration():
    """Of two steps six notes are known, one of them sounding; two free ones in each are looked at."""
    model, seen = tiny("af-af", "music"), ((0, 30), (0, 31), (1, 5), (1, 87))
    roll, known = np.zeros((2, 88), np.uint8), np.zeros((2, 88), bool)
    known[0, [3, 40, 41]] = known[1, [3, 40, 41]] = True
    roll[1, 40] = 1
    scores = emissions("af-af", 2, "music")
    weight = torch.where(torch.from_numpy(roll) > 0, scores, -scores).sigmoid()
    weight = weight[:, torch.from_numpy(known)].prod(-1)
    notes = torch.stack([scores[:, t, note].sigmoid() for t, note in seen], -1)
    rolls = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)))
    p = torch.stack([weight @ torch.where(one > 0, notes, 1 - notes).prod(-1) for one in rolls]) / TRUTH
    error = float(weight.std() / weight.mean()) / math.sqrt(TRUTH)
    evidence = Evidence(roll, known)
    result = given(model, evidence, PARTICLES, particles=PARTICLES)
    drawn = torch.from_numpy(np.stack(result.samples))
    assert (drawn[:, torch.from_numpy(known)] == torch.from_numpy(roll[known])).all()
    found = torch.stack([drawn[:, t, note] for t, note in seen], -1)
    counts = torch.stack([(found == one).all(-1).sum() for one in rolls]).double()
    agree(p, counts, result.effective_samples, error)
    without = torch.stack([torch.where(one > 0, notes, 1 - notes).prod(-1).sum() for one in rolls])
    with pytest.raises(AssertionError):
        agree(without, counts, result.effective_samples, error)
    runs = [given(model, evidence, 1, particles=RUN, seed=seed).log_p for seed in range(20)]
    unbiased(runs, math.log(float(p.sum())), error)


def test_a_gap_of_the_shipped_model_is_filled_and_few_draws_are_told(capsys):
    """Few particles: what is known stands in all, log p is near that of many, and the command says how many count."""
    model = latflow.load("pydoc-2d")
    evidence = Evidence.template(model.spec, "The val?? of the list.")
    result = given(model, evidence, 4, particles=60)
    assert all(
        text[:7] + text[9:] == "The val of the list." for text in map(model.spec.decode, result.samples)
    )
    assert result.log_p == pytest.approx(-15.4, abs=2.5)
    assert sum("ue" in model.spec.decode(x)[7:9] for x in result.samples) >= 1
    assert result.resampled >= 2
    with pytest.warns(LatflowWarning, match="of which .* are effectively different"):
        given(model, evidence, 60, particles=60)
    main(["sample", "pydoc-2d", "--template", "The val?? of", "-n", "2", "--particles", "20"])
    out, err = capsys.readouterr()
    assert [line[:7] + line[9:] for line in out.splitlines()] == ["The val of"] * 2
    assert "effective samples of 20 particles" in err


def test_impossible_evidence_and_ways_through_time_that_nobody_knows_are_told():
    torch.manual_seed(1)
    model = build(config("af-af"), SPEC).eval()
    with torch.no_grad():
        model.alphabet.bias[2] = -math.inf
    with pytest.raises(LatflowError, match=r"impossible: what is known of step 2 .* -inf"):
        given(model, Evidence.template(SPEC, "?c??"))
    with torch.no_grad():
        model.alphabet.bias[2] = -30
    with pytest.warns(LatflowWarning, match=r"very unlikely: .* least likely is step 2"):
        given(model, Evidence.template(SPEC, "?c??"), particles=50)
    model.prior.time = object()  # type: ignore[assignment, union-attr]
    with pytest.raises(LatflowError, match="no way to go step by step is known for object"):
        given(model, Evidence.template(SPEC, "a???"))
