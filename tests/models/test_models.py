"""Models as their users meet them: they learn, they draw, they are blind to padding, and they say what is wrong."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from latflow.axes import AXES
from latflow.config import ModelConfig, evolve
from latflow.errors import LatflowError
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, LSTMLanguageModel, build
from latflow.models.emission.bilstm import BiLSTMEmission
from tests.models.cases import (
    MODELS,
    OF_MUSIC,
    PRIORS,
    batch_of,
    config,
    music_spec,
    small_model,
    strings,
    text_spec,
)

TEXTS = ["abcabc", "aabb", "cab", "ccba", "b", "acacac", "bbb", "cabba"]


def fit(model, batch, steps, kl_weight, rate=0.02):
    optimiser = torch.optim.Adam(model.parameters(), rate)
    losses = []
    for step in range(steps):
        loss = -(model.terms(batch, samples=2).elbo(kl_weight(step)) / (batch.lengths + 1)).mean()
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["text", "music"])
def test_a_few_steps_lower_the_loss_without_nan(name, kind):
    if kind == "text":
        model = small_model(name, text_spec())
        batch = strings(model.spec, TEXTS)
    else:
        model = small_model(name, music_spec())
        batch = batch_of((torch.rand(4, 5, 88) < 0.05).float(), [5, 3, 5, 1])
    losses = fit(model, batch, 15, lambda step: 1.0)
    assert all(map(math.isfinite, losses))
    assert sum(losses[-3:]) < sum(losses[:3])


@pytest.mark.parametrize("name", PRIORS)
def test_overfits_eight_strings_to_a_reconstruction_near_zero(name):
    model = small_model(name, text_spec(), units=32, latent_size=4)
    batch = strings(model.spec, TEXTS)
    fit(model, batch, 60, lambda step: 0.0)
    per_symbol = model.terms(batch, samples=20).reconstruction.sum() / batch.lengths.sum()
    assert per_symbol < 0.02


def test_baseline_overfits_eight_strings():
    """What remains is the choice of the string given its length: 1/2 for lengths 3, 4 and 6, certain for 1 and 5."""
    model = small_model("lstm", text_spec(), units=32)
    batch = strings(model.spec, TEXTS)
    fit(model, batch, 150, lambda step: 1.0)
    conditional = model.terms(batch).reconstruction.sum().detach()
    assert float(conditional) == pytest.approx(6 * math.log(2), abs=0.15)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", MODELS)
def test_a_sequence_alone_and_in_any_batch_is_the_same(name):
    """Every part that turns x or z into numbers, with other symbols behind the end of the shorter sequences."""
    model = small_model(name, text_spec(), spread=0.3)
    batch = strings(model.spec, ["abca", "b", "cc"])
    noisy = replace(batch, x=batch.x.clone())
    noisy.x[1, 1:], noisy.x[2, 2:] = 2, 1
    if isinstance(model, LSTMLanguageModel):
        together = model.terms(noisy).log_emission
        for i, text in enumerate(["abca", "b", "cc"]):
            alone = model.terms(strings(model.spec, [text])).log_emission
            assert torch.allclose(together[i, 0, : len(text)], alone[0, 0], atol=1e-12)
            assert (together[i, 0, len(text) :] == 0).all()
        return
    assert isinstance(model, LatentSequenceModel)
    z = torch.randn(3, 4, model.prior.size)

    def parts(x, z, lengths):
        packing = Packing(lengths)
        rows = packing.pack(x)
        q = model.posterior(rows, model.alphabet, packing)
        p = model.prior.log_prob_rows(packing.pack(z), packing)
        e = model.emission.log_prob(rows, packing.pack(z), model.alphabet, packing)
        return [packing.unpack(part) for part in (*q, p, e)]

    together = parts(noisy.x, z, batch.lengths)
    for i, T in enumerate([4, 1, 2]):
        alone = parts(batch.x[i : i + 1, :T], z[i : i + 1, :T], torch.tensor([T]))
        for a, b in zip(together, alone, strict=True):
            assert torch.allclose(a[i, :T], b[0], atol=1e-12)


@pytest.mark.parametrize("name", PRIORS)
def test_terms_do_not_depend_on_padding_or_order(name):
    """Terms of each sequence, averaged over many samples, agree between batches within their standard errors."""
    model = small_model(name, text_spec(), spread=0.3)
    texts = ["abca", "b", "cc"]
    with torch.no_grad():
        together = model.terms(strings(model.spec, texts[::-1]), samples=4000).log_weights.flip(0)
        for i, text in enumerate(texts):
            alone = model.terms(strings(model.spec, [text]), samples=4000).log_weights[0]
            error = math.sqrt((together[i].var() + alone.var()) / 4000)
            assert abs(float(together[i].mean() - alone.mean())) < 4.5 * error


@pytest.mark.usefixtures("double")
def test_baseline_samples_follow_its_probabilities():
    model = small_model("lstm", text_spec("abc", longest=2), spread=0.7)
    x = model.sample(torch.full((6000,), 2))
    seen = torch.bincount(3 * x[:, 0] + x[:, 1], minlength=9)
    texts = [a + b for a in "abc" for b in "abc"]
    expected = 2 * (-model.nll(strings(model.spec, texts))).exp().detach()  # p(T = 2) = 1/2
    assert stats.chisquare(seen.numpy(), (6000 * expected / expected.sum()).numpy()).pvalue > 1e-3


@pytest.mark.usefixtures("double")
def test_latent_samples_follow_the_importance_sampled_probabilities():
    model = small_model("af-af", text_spec("ab", longest=2), spread=0.3, latent_size=2)
    x = model.sample(torch.full((6000,), 2))
    seen = torch.bincount(2 * x[:, 0] + x[:, 1], minlength=4)
    nll = model.nll(strings(model.spec, ["aa", "ab", "ba", "bb"]), samples=20_000, chunk=5_000)
    expected = 2 * (-nll).exp()
    assert float(expected.sum()) == pytest.approx(1, abs=0.02)
    assert stats.chisquare(seen.numpy(), (6000 * expected / expected.sum()).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("argmax", [False, True])
def test_samples_have_the_asked_lengths_and_repeat_under_a_generator(name, argmax):
    for spec in (text_spec(), music_spec()) if name in OF_MUSIC else (text_spec(),):
        model = small_model(name, spec, spread=0.3)
        lengths = torch.tensor([2, 5, 1])
        draws = [model.sample(lengths, 0.9, argmax, torch.Generator().manual_seed(1)) for _ in range(2)]
        assert torch.equal(*draws)
        x = draws[0]
        assert x.shape[:2] == (3, 5)
        assert ((x >= 0) & (x < max(2, len(spec.symbols)))).all()
        assert (x[0, 2:] == 0).all()


def test_lengths_are_drawn_from_p_of_T():
    model = small_model("lstm", replace(text_spec(), length_counts=(0, 3, 0, 1)))
    lengths = model.length.sample(4000)
    assert set(lengths.tolist()) == {1, 3}
    assert stats.binomtest(int((lengths == 1).sum()), 4000, 0.75).pvalue > 1e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: replace(b, x=b.x + 1), "3 at sequence 0, step 2: a symbol is a whole number from 0 to 2"),
        (lambda b: replace(b, x=b.x * 0.5), "0.5 at sequence 0, step 1: a symbol is a whole number"),
        (
            lambda b: replace(b, lengths=torch.tensor([4, 9])),
            "length 9 of sequence 1 does not fit x with 4 steps",
        ),
        (lambda b: replace(b, lengths=torch.tensor([4, 0])), "sequence 1 has length 0"),
        (lambda b: replace(b, lengths=torch.tensor([4])), "2 sequences, but 1 lengths"),
        (lambda b: replace(b, x=b.x[..., None]), r"x must be of shape \(b, t\) for text"),
        (
            lambda b: replace(b, lengths=torch.tensor([4, 3])),
            "length 3 of sequence 1 has no probability under p\\(T\\)",
        ),
    ],
)
def test_bad_input_is_named(name, change, message):
    model = small_model(name, replace(text_spec(), length_counts=(0, 1, 1, 0, 1)))
    with pytest.raises(ValueError, match=message):
        model.terms(change(strings(model.spec, ["abca", "b"])))


def test_nan_and_impossible_notes_are_named():
    model = small_model("af-scf", music_spec())
    x = torch.zeros(2, 3, 88)
    x[1, 2, 5] = math.nan
    with pytest.raises(ValueError, match="NaN in sequence 1"):
        model.terms(batch_of(x, [3, 3]))
    for value in (2, 0.5):
        x[1, 2, 5] = value
        with pytest.raises(ValueError, match=rf"{float(value)} at sequence 1, step 2: a note is 0 or 1"):
            model.terms(batch_of(x, [3, 3]))


@pytest.mark.parametrize("axis", ["time", "hidden", "scalar", "context", "reading"])
def test_unknown_names_are_listed_with_what_is_accepted(axis):
    accepted = ", ".join(AXES[axis])
    with pytest.raises(LatflowError, match=f"prior.{axis} is 'sideways'; accepted: {accepted}"):
        evolve(config("af-af"), {f"prior.{axis}": "sideways"})


def test_whole_numbers_of_any_width_are_taken():
    spec = text_spec()
    model, batch = small_model("lstm", spec), strings(spec, ["ab", "abc"])
    expected = model.nll(batch)
    narrow = replace(batch, x=batch.x.to(torch.int32), lengths=batch.lengths.to(torch.int16))
    assert torch.equal(model.nll(narrow), expected)
    with pytest.raises(ValueError, match="samples and chunk must be at least 1, not 4 and 0"):
        model.nll(batch, samples=4, chunk=0)


def test_sampling_refuses_what_it_cannot_do():
    model = small_model("af-af", text_spec())
    with pytest.raises(ValueError, match="length 7 is longer than the longest the model knows, 6"):
        model.sample(torch.tensor([7]))
    with pytest.raises(ValueError, match="temperature must be a number of at least 0, not -1"):
        model.sample(torch.tensor([2]), temperature=-1.0)
    with pytest.raises(LatflowError, match="z leaves the range of its numbers"):
        model.sample(torch.tensor([2]), temperature=1e300)


def test_paper_sizes_are_the_defaults():
    """Supplement E: 500 units, two layers, H = 50, J = 5, two hidden layers of 100, tied embedding."""
    c = ModelConfig()
    assert (c.latent_size, c.embedding_size, c.tie_embedding) == (50, 500, True)
    assert (c.posterior.scale, c.emission.scale, c.posterior.gain, c.prior.reading.name) == (1, 1, 1, "raw")
    assert (c.prior.hidden.layers, c.prior.hidden.depth, c.prior.hidden.units) == (5, 2, 100)
    for lstm in (c.posterior, c.emission, c.baseline):
        assert (lstm.layers, lstm.units) == (2, 500)
    assert (c.prior.context.layers, c.prior.context.units, c.prior.scalar.alpha) == (2, 500, 0.95)


def test_latent_scale_is_a_unit_of_z():
    """With the weights that read z in that unit too, posterior and emission say the same of z as in a unit of 1."""
    torch.manual_seed(0)
    one = small_model("af-af", text_spec(), spread=0.5)
    tenth = build(evolve(config("af-af"), {"posterior.scale": 0.1, "emission.scale": 0.1}), text_spec())
    assert isinstance(one, LatentSequenceModel)
    assert isinstance(tenth, LatentSequenceModel)
    tenth.load_state_dict(one.state_dict())
    assert isinstance(tenth.emission, BiLSTMEmission)
    with torch.no_grad():
        tenth.emission.lstm.input_weight[0] *= 10
    batch = strings(one.spec, TEXTS)
    packing = Packing(batch.lengths)
    rows = packing.pack(batch.x)
    mean, log_std = one.posterior(rows, one.alphabet, packing)
    scaled_mean, scaled_log_std = tenth.posterior(rows, one.alphabet, packing)
    torch.testing.assert_close(scaled_mean, 0.1 * mean)
    torch.testing.assert_close(scaled_log_std.exp(), 0.1 * log_std.exp())
    z = torch.randn_like(mean)
    scaled = tenth.emission.log_prob(rows, 0.1 * z, one.alphabet, packing)
    plain = one.emission.log_prob(rows, z, one.alphabet, packing)
    torch.testing.assert_close(scaled, plain, rtol=1e-4, atol=1e-5)


def test_posterior_gain_moves_symbols_apart_at_the_start():
    batch = strings(text_spec(), TEXTS)
    packing = Packing(batch.lengths)
    found = []
    for gain in (1.0, 15.0):
        torch.manual_seed(0)
        model = build(evolve(config("af-af"), {"posterior.gain": gain}), text_spec())
        assert isinstance(model, LatentSequenceModel)
        found.append(model.posterior(packing.pack(batch.x), model.alphabet, packing))
    torch.testing.assert_close(found[1][0], 15 * found[0][0])
    torch.testing.assert_close(found[1][1], found[0][1])


def test_embedding_is_tied_unless_asked_otherwise():
    tied = small_model("af-af", text_spec())
    untied = build(replace(config("af-af"), tie_embedding=False), text_spec())
    assert isinstance(tied, LatentSequenceModel)
    assert isinstance(untied, LatentSequenceModel)
    assert tied.alphabet.output is None
    assert untied.alphabet.output is not None
    extra = sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters())
    assert extra == 3 * 8
