"""The likelihood against independent truths: numerical integration over z, and enumeration of all strings."""

import itertools
import math

import pytest
import torch

from latflow.flows import Packing
from latflow.models import LatentSequenceModel
from latflow.models.posterior.bilstm import BiLSTMPosterior
from tests.models.cases import MODELS, PRIORS, batch_of, small_model, strings, text_spec

pytestmark = pytest.mark.usefixtures("double")
SPEC = text_spec("ab", longest=3)


def quadrature(model: LatentSequenceModel, text: str, points: int = 241) -> float:
    """log p(x | T) = log ∫ p(z | T) p(x | z, T) dz by the trapezoidal rule, for H = 1 and T at most 2."""
    T = len(text)
    axis = torch.linspace(-12, 12, points)
    grid = torch.stack(torch.meshgrid(*[axis] * T, indexing="ij"), -1).view(-1, T, 1)
    packing = Packing(torch.full((len(grid),), T))
    x = torch.from_numpy(model.spec.encode(text)).expand(len(grid), T)
    with torch.no_grad():
        z = packing.pack(grid)
        emission = model.emission.log_prob(packing.pack(x), z, model.alphabet, packing)
        joint = model.prior.log_prob_rows(z, packing) + emission
        density = packing.unpack(joint).sum(-1).exp().view([points] * T)
        for _ in range(T):
            density = torch.trapezoid(density, axis)
    return math.log(float(density))


def integrable(name: str) -> LatentSequenceModel:
    model = small_model(name, SPEC, spread=0.35, latent_size=1, units=4)
    assert isinstance(model, LatentSequenceModel)
    return model


@pytest.mark.parametrize("name", PRIORS)
def test_probabilities_of_all_strings_of_a_length_sum_to_one(name):
    model = integrable(name)
    for T in (1, 2):
        total = sum(math.exp(quadrature(model, "".join(s))) for s in itertools.product("ab", repeat=T))
        assert abs(total - 1) < 1e-4


@pytest.mark.parametrize("name", PRIORS)
def test_importance_sampled_nll_converges_to_the_integral(name):
    """Within four standard errors of the estimate itself, which are small with 20,000 samples."""
    model = integrable(name)
    for text in ("b", "ab"):
        total, log_length = model.importance(strings(SPEC, [text]), samples=20_000, chunk=5_000)
        effective = float(total.effective_samples())
        assert effective > 500
        expected = -quadrature(model, text) + math.log(3)
        error = float(total.nll() - log_length) - expected
        assert abs(error) < 4 * math.sqrt(1 / effective - 1 / 20_000)


def test_baseline_probabilities_of_all_strings_sum_to_one():
    model = small_model("lstm", text_spec("abc", longest=4), spread=0.5)
    for T in (1, 2, 4):
        texts = ["".join(s) for s in itertools.product("abc", repeat=T)]
        log_p = -model.nll(strings(model.spec, texts))
        assert abs(float(log_p.exp().sum()) - 1 / 4) < 1e-12  # p(T) = 1/4 for each length


def test_baseline_over_notes_is_a_distribution_too():
    """Two steps of two notes that may sound and 86 that cannot: all 16 rolls."""
    from tests.models.cases import music_spec

    model = small_model("lstm", music_spec(2), spread=0.3)
    with torch.no_grad():
        model.alphabet.bias[2:] = -1e9
    rolls = torch.zeros(16, 2, 88)
    rolls[:, :, :2] = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4))).view(16, 2, 2)
    log_p = -model.nll(batch_of(rolls, [2] * 16))
    assert abs(float(log_p.exp().sum()) - 1 / 2) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_one_sample_of_importance_is_the_elbo(name):
    model = small_model(name, text_spec(), spread=0.3)
    batch = strings(model.spec, ["abca", "b", "ccc"])
    torch.manual_seed(1)
    terms = model.terms(batch, samples=1)
    torch.manual_seed(1)
    assert torch.allclose(model.nll(batch, samples=1), -terms.elbo())


@pytest.mark.parametrize("name", PRIORS)
def test_more_samples_never_loosen_the_bound_in_expectation(name):
    """E NLL_K falls with K (Burda et al. 2015): from the same samples, grouped by 1, 4, 16, 64."""
    model = small_model(name, text_spec(), spread=0.35)
    with torch.no_grad():
        log_weights = model.terms(strings(model.spec, ["abcab"]), samples=6400).log_weights[0]
    bounds = [-(log_weights.view(-1, k).logsumexp(-1) - math.log(k)).mean() for k in (1, 4, 16, 64)]
    assert bounds[0] > bounds[1] > bounds[2] > bounds[3]


def test_chunks_merge_to_the_whole():
    model = small_model("af-af", text_spec(), spread=0.3)
    batch = strings(model.spec, ["abca", "b"])
    for chunk in (7, 20):
        total, _ = model.importance(batch, samples=20, chunk=chunk)
        assert total.samples == 20
        assert ((total.effective_samples() >= 1) & (total.effective_samples() <= 20)).all()
    # Equal weights are worth all of their samples, one that carries everything is worth one.
    from latflow.models import Importance

    assert float(Importance.of(torch.full((1, 8), -3.0)).effective_samples()) == pytest.approx(8)
    assert float(Importance.of(torch.tensor([[0.0, -900.0, -900.0]])).effective_samples()) == pytest.approx(1)
    halves = Importance.of(torch.tensor([[1.0, 2.0]])) + Importance.of(torch.tensor([[3.0]]))
    whole = Importance.of(torch.tensor([[1.0, 2.0, 3.0]]))
    assert torch.allclose(halves.nll(), whole.nll())
    assert torch.allclose(halves.effective_samples(), whole.effective_samples())


def test_samples_of_weight_zero_count_and_spoil_nothing():
    """As where a density leaves the range of the numbers."""
    from latflow.models import Importance

    zero = -math.inf
    some = Importance.of(torch.tensor([[0.0, zero]])) + Importance.of(torch.tensor([[zero]]))
    assert float(some.nll()) == pytest.approx(math.log(3))
    assert float(some.effective_samples()) == pytest.approx(1)
    none = Importance.of(torch.tensor([[zero]])) + Importance.of(torch.tensor([[zero]]))
    assert float(none.nll()) == math.inf
    assert float(none.effective_samples()) == 0


def test_the_kl_is_that_of_its_definition():
    """With q and p known Gaussians, the sampled KL converges to the closed form."""
    model = small_model("af-none-affine", SPEC, latent_size=1, units=4)
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.posterior, BiLSTMPosterior)
    with torch.no_grad():  # p(z) = N(0, 1) at each step, q = N(m, s²)
        for parameter in [*model.prior.parameters(), *model.posterior.parameters()]:
            parameter.zero_()
        m, s = 0.7, 0.5
        model.posterior.head.bias.copy_(torch.tensor([m, 2 * math.log(s)]))
        terms = model.terms(strings(SPEC, ["ab"]), samples=40_000)
    exact = 2 * (-math.log(s) + (s**2 + m**2 - 1) / 2)
    samples = terms.kl.sum(-1)
    assert abs(float(samples.mean()) - exact) < 4 * float(samples.std()) / math.sqrt(40_000)
