"""Codebook latents: codes that start apart, Bayes' rule, and the discrete models that the tied mixtures contain."""

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats

import latflow.fast
from latflow.config import ModelConfig, PriorConfig, evolve
from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.flows import HiddenFlow, Packing, TiedMixture
from latflow.models import LatentSequenceModel, LSTMLanguageModel, build
from latflow.models.codes import Codes, EmbeddedLogits, log_odds
from latflow.models.emission.bayes import BayesEmission
from tests.models.cases import TIED_NOTES, batch_of, config, music_spec, small_model, strings, text_spec

pytestmark = pytest.mark.usefixtures("double")


def counted(spec: DataSpec, counts: tuple[int, ...], steps: int = 0) -> DataSpec:
    return replace(spec, symbol_counts=counts, train_steps=steps or sum(counts))


# The codes.


def test_codes_are_the_binary_digits_of_the_rank_by_frequency():
    spec = counted(text_spec("abcde"), (1, 9, 5, 7, 3))
    codes = Codes(spec, None, sigma=0.25)
    bits = ((codes.means + 1) / 2).long()
    assert codes.size == 3
    assert (bits @ torch.tensor([1, 2, 4])).tolist() == [4, 0, 2, 1, 3]  # b is the most frequent, a the least
    torch.testing.assert_close(codes.log_scales.exp(), torch.full((5, 3), 0.25))


@pytest.mark.parametrize("size", [3, 4, 7])
def test_codes_of_different_symbols_differ(size):
    codes = Codes(text_spec("abcdefgh"), size)
    distance = (codes.means[:, None] - codes.means).abs().amax(-1)
    assert (distance + 2 * torch.eye(8) == 2).all()


def test_a_code_too_short_or_not_a_number_a_note_is_refused_in_words():
    with pytest.raises(LatflowError, match=r"latent_size is 2; codes of 5 symbols .* 3 numbers at least"):
        Codes(text_spec("abcde"), 2)
    with pytest.raises(LatflowError, match="latent_size is 12; a codebook of music has one number a note"):
        Codes(music_spec(), 12)


def test_notes_have_a_row_for_off_and_one_for_on():
    codes = Codes(music_spec(), None, sigma=0.5)
    x = (torch.rand(3, 88) < 0.2).double()
    mean, log_std = codes.of(x)
    torch.testing.assert_close(mean, 2 * x - 1)
    torch.testing.assert_close(log_std.exp(), torch.full_like(x, 0.5))


@pytest.mark.parametrize("fast", [True, False])
def test_notes_from_above_are_the_mirror_of_notes_from_below(fast):
    """The same weights, what belongs to notes turned round: the same terms and draws of rolls turned round."""
    spec, changes = counted(music_spec(4), tuple(range(88)), steps=90), {"posterior.notes": "down"}
    settings = evolve(config("af-af-codebook"), TIED_NOTES)
    up, down = (build(evolve(settings, more), spec).double().eval() for more in ({}, changes))
    starts = [model.prior.hidden.scalar.start(88)[:, 0] for model in (up, down)]  # type: ignore[union-attr]
    assert torch.equal(starts[0], starts[1].flip(0))
    weights = {
        name: value if "codes" in name else 0.3 * torch.randn_like(value)
        for name, value in up.state_dict().items()
    }
    up.load_state_dict(weights)
    for name in ("emission.logits", "prior.context.lstm.input_weight.0"):
        weights[name] = weights[name].flip(-1)
    down.load_state_dict(weights)
    rolls = (torch.rand(2, 4, 88) < 0.2).double()
    found = []
    with torch.no_grad(), nullcontext() if fast else latflow.fast.off():
        for model, x in ((up, rolls), (down, rolls.flip(-1))):
            torch.manual_seed(0)
            terms = model.terms(batch_of(x, [4, 3]), samples=2)
            drawn = model.sample(torch.tensor([4, 3]), generator=torch.Generator().manual_seed(1))
            found.append((terms.log_weights, drawn))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1].flip(-1))
    assert not torch.equal(found[0][1], found[1][1])


def test_only_music_has_an_order_of_notes():
    with pytest.raises(LatflowError, match=r"posterior\.notes is down; only music has notes, text none"):
        Codes(text_spec(), None, notes="down")


def test_start_of_the_logits_is_the_unigram():
    spec = counted(text_spec("abc"), (0, 3, 6))
    torch.testing.assert_close(log_odds(spec).softmax(-1), torch.tensor([0.5, 3.5, 6.5]) / 10.5)
    music = counted(music_spec(), tuple([3] + [0] * 87), steps=9)
    torch.testing.assert_close(log_odds(music).sigmoid()[:2], torch.tensor([3.5 / 10, 0.5 / 10]))


# Bayes' rule.


def test_the_emission_is_bayes_rule_over_symbols():
    model = small_model("af-af-codebook", text_spec("abc"), spread=0.5)
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.emission, BayesEmission)
    z, packing = torch.randn(4, 2), Packing(torch.tensor([4]))
    codes, prior = model.emission.codes, model.emission.logits.softmax(-1)
    q = torch.distributions.Normal(codes.means, codes.log_scales.exp())
    joint = q.log_prob(z[:, None]).sum(-1).exp() * prior
    expected = joint / joint.sum(-1, keepdim=True)
    for v in range(3):
        found = model.emission.log_prob(torch.full((4,), v), z, model.alphabet, packing).exp()
        torch.testing.assert_close(found, expected[:, v])


def test_the_emission_is_bayes_rule_for_each_note():
    model = small_model("af-af-codebook", music_spec(), spread=0.3)
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.emission, BayesEmission)
    z, packing = torch.randn(2, 88), Packing(torch.tensor([2]))
    x = (torch.rand(2, 88) < 0.5).double()
    codes, odds = model.emission.codes, model.emission.logits.sigmoid()
    off, on = (
        torch.distributions.Normal(m, s.exp()) for m, s in zip(codes.means, codes.log_scales, strict=True)
    )
    p_on, p_off = on.log_prob(z).exp() * odds, off.log_prob(z).exp() * (1 - odds)
    expected = torch.where(x > 0, p_on, p_off) / (p_on + p_off)
    found = model.emission.log_prob(x, z, model.alphabet, packing)
    torch.testing.assert_close(found, expected.log().sum(-1))


def test_the_reading_is_the_expected_embedding():
    model = small_model("af-af-codebook", text_spec("abc"), spread=0.5)
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.emission, BayesEmission)
    z = torch.randn(5, 2)
    p = model.emission.at(z).softmax(-1)
    expected = sum(p[:, v : v + 1] * model.alphabet.embedding[v] for v in range(3))
    torch.testing.assert_close(model.prior.context.reading(z), expected)  # type: ignore[union-attr]


# With codes that are apart the tied mixtures are discrete models.

APART = math.log(0.02)
"""σ of codes at ±1: fifty of them between two codes, so that one belongs to another with probability e^-1250."""


def separated(model: LatentSequenceModel) -> LatentSequenceModel:
    with torch.no_grad():
        model.posterior.codes.log_scales.fill_(APART)  # type: ignore[union-attr]
    return model


def test_the_tied_mixture_over_text_is_the_lstm_language_model():
    """-log p(x | T) of the flow is the cross entropy of the softmax over its logits, the LSTM fed with true symbols."""
    torch.manual_seed(0)
    model = build(config("af-af-codebook"), counted(text_spec("abcde", 6), (5, 4, 3, 2, 1)))
    assert isinstance(model, LatentSequenceModel)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "codes" not in name:
                parameter.normal_(std=0.5)
    separated(model)
    texts = ["abcde", "ea", "c", "dbdbdb"]
    batch = strings(model.spec, texts)
    packing = Packing(batch.lengths)
    x = packing.pack(batch.x)
    # The discrete twin, by hand: an LSTM over embedded symbols, a linear layer, a softmax.
    reading = model.prior.context.reading
    model.prior.context.reading = TrueSymbols(model.alphabet.embedding)  # type: ignore[assignment]
    context = model.prior.context.whole(F.one_hot(x, 5).double(), packing)
    model.prior.context.reading = reading
    assert isinstance(model.prior.hidden, TiedMixture)
    discrete = -F.cross_entropy(model.prior.hidden.logits(context), x, reduction="none")
    expected = packing.unpack(discrete).sum(-1)
    terms = model.terms(batch, samples=3, given_length=True)
    torch.testing.assert_close(terms.log_weights, expected[:, None].expand(-1, 3), rtol=1e-12, atol=1e-10)


def test_through_the_embedding_it_is_the_language_model_with_the_same_weights():
    """Every weight of the flow's context, head and embedding put into the baseline: the same -log p(x | T)."""
    torch.manual_seed(0)
    spec = counted(text_spec("abcde", 6), (5, 4, 3, 2, 1))
    sizes = {
        "prior.hidden.embedded": True,
        "baseline.units": 7,
        "baseline.layers": 1,
        "prior.context.units": 7,
    }
    sizes |= {"prior.context.layers": 1, "baseline.dropout": 0.0}
    coded = evolve(config("af-af-codebook"), sizes)
    flow, baseline = build(coded, spec), build(evolve(coded, {"kind": "lstm"}), spec)
    assert isinstance(flow, LatentSequenceModel)
    assert isinstance(baseline, LSTMLanguageModel)
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            if "codes" not in name:
                parameter.normal_(std=0.5)
    separated(flow)
    hidden = flow.prior.hidden
    assert isinstance(hidden, TiedMixture)
    assert isinstance(hidden.network, EmbeddedLogits)
    baseline.context.load_state_dict(flow.prior.context.state_dict())
    baseline.head.load_state_dict(hidden.network.head.state_dict())
    with torch.no_grad():
        baseline.alphabet.embedding.copy_(flow.alphabet.embedding)
        baseline.alphabet.bias.copy_(hidden.bias)
    batch = strings(spec, ["abcde", "ea", "c", "dbdbdb"])
    expected = baseline.terms(batch, samples=1, given_length=True).log_weights
    found = flow.terms(batch, samples=3, given_length=True).log_weights
    torch.testing.assert_close(found, expected.expand(-1, 3), rtol=1e-12, atol=1e-10)


def test_an_embedding_that_nothing_reads_is_not_shared():
    coded = evolve(config("af-af-codebook"), {"prior.hidden.embedded": True, "prior.reading": "raw"})
    with pytest.raises(LatflowError, match=r"needs model\.prior\.reading symbols, not raw"):
        build(coded, text_spec("abcde", 6))


def test_the_tied_mixture_over_notes_is_an_lstm_with_a_masked_network():
    """RNN-NADE's kind: the log-odds of a note are the network's output given the notes below it and the past."""
    torch.manual_seed(0)
    spec = counted(music_spec(4), tuple([1] * 88), steps=20)
    model = build(evolve(config("af-af-codebook"), TIED_NOTES), spec)
    assert isinstance(model, LatentSequenceModel)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "codes" not in name:
                parameter.normal_(std=0.2)
    separated(model)
    rolls = (torch.rand(3, 4, 88) < 0.2).double()
    batch = batch_of(rolls, [4, 2, 3])
    packing = Packing(batch.lengths)
    x = packing.pack(rolls)
    hidden = model.prior.hidden
    assert isinstance(hidden, HiddenFlow)
    reading = model.prior.context.reading
    model.prior.context.reading = TrueSymbols(torch.eye(88))  # type: ignore[assignment]
    context = model.prior.context.whole(2 * x - 1, packing)
    model.prior.context.reading = reading
    # Notes at their codes, ±1, and not around them: what is left of σ moves the logits, by less than σ.
    logits = hidden.raw(0, 2 * x - 1, hidden.project(context)[0], hidden.weights()[0])[..., 0]
    discrete = -F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
    expected = packing.unpack(discrete).sum(-1)
    gaps = []
    for sigma in (APART, APART - math.log(10)):
        with torch.no_grad():
            model.posterior.codes.log_scales.fill_(sigma)  # type: ignore[union-attr]
        found = model.terms(batch, samples=400, given_length=True).log_weights.mean(-1)
        gaps.append(float((found - expected).abs().max().detach()))
    assert gaps[0] < 0.05 * float(expected.detach().abs().max())
    assert gaps[1] < 0.3 * gaps[0]  # and goes to zero with σ


class TrueSymbols(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, y):
        return y @ self.table


# Samples, refusals, training.


@pytest.mark.parametrize("name", ["af-af-codebook", "af-af-mixture-codebook", "iaf-af-codebook"])
def test_samples_follow_the_importance_sampled_probabilities(name):
    """And would not, were the model another by a few per cent: the probabilities of a model nearby are rejected."""
    model = small_model(name, text_spec("ab", longest=2), spread=0.3)
    x = model.sample(torch.full((6000,), 2))
    seen = torch.bincount(2 * x[:, 0] + x[:, 1], minlength=4).numpy()
    texts = ["".join(s) for s in itertools.product("ab", repeat=2)]
    expected = 2 * (-model.nll(strings(model.spec, texts), samples=20_000, chunk=5_000)).exp()
    assert float(expected.sum()) == pytest.approx(1, abs=0.02)
    p = (expected / expected.sum()).numpy()
    assert stats.chisquare(seen, 6000 * p).pvalue > 1e-3
    off = p * [1.15, 0.95, 1.05, 0.85]
    assert stats.chisquare(seen, 6000 * off / off.sum()).pvalue < 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"emission": "bayes"}, "model.emission bayes .* needs model.posterior codebook"),
        ({"prior.reading": "symbols"}, "reading symbols .* model.emission bayes"),
        ({"prior.hidden": "codebook"}, "hidden codebook .* needs model.posterior codebook"),
        ({"prior.scalar": "mixture", "prior.scalar.tied": True}, "needs music and model.posterior codebook"),
        (
            {"posterior": "codebook", "emission": "bayes", "prior.reading": "symbols", "prior.time": "iaf"},
            "the context sees eps_t, in which there are no symbols",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused_in_words(changes, message):
    with pytest.raises(LatflowError, match=message):
        build(evolve(config("af-af"), changes), text_spec())


def test_a_tied_mixture_of_notes_is_one_layer():
    several = {**TIED_NOTES, "prior.hidden.layers": 2}
    with pytest.raises(
        LatflowError, match=r"hidden\.layers is 2; a mixture tied to the codebook is one layer"
    ):
        build(evolve(config("af-af-codebook"), several), music_spec())


def test_codes_that_are_not_learned_stay():
    model = build(evolve(config("af-af-codebook"), {"posterior.learned": False}), text_spec())
    assert not [name for name, _ in model.named_parameters() if "codes" in name]
    assert "posterior.codes.means" in model.state_dict()


def test_no_weight_is_left_without_a_gradient():
    for name, spec in (("af-af-codebook", text_spec()), ("af-af-codebook", music_spec())):
        model = small_model(name, spec, spread=0.1)
        x = torch.randint(0, 3, (2, 5)) if spec.kind == "text" else (torch.rand(2, 5, 88) < 0.1).double()
        model.terms(batch_of(x, [5, 3])).elbo().sum().backward()
        assert [n for n, p in model.named_parameters() if p.grad is None] == []


def test_the_default_for_python_users_reads_names():
    c = ModelConfig(
        latent_size=None, posterior="codebook", emission="bayes", prior=PriorConfig(reading="symbols")
    )
    assert isinstance(build(c, text_spec()), LatentSequenceModel)
