"""What z is good for: encode, decode, reconstruct, and the way from one sequence to another."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
import torch
from scipy import stats

from latflow.axes import choose
from latflow.config import evolve
from latflow.data.base import NOTES, DataSpec, collate
from latflow.errors import LatflowError
from latflow.models import LatentSequenceModel, build
from tests.models.cases import PRIORS, config, music_spec, small_model, strings, text_spec

TEXTS = ["abcab", "b", "cc", "aaaa"]
PIECE = [[60, 64, 67], [], [21, 108], [60]]
SIGMA = 0.05
CODEBOOK = {
    "posterior": choose("posterior", "codebook", sigma=SIGMA, learned=False),
    "emission": "bayes",
    "latent_size": None,
}


def codebook(
    spec: DataSpec, name: str = "af-af", changes: Mapping[str, float] = MappingProxyType({})
) -> LatentSequenceModel:
    """A model whose codes are far apart, with a prior far from the identity."""
    base = evolve(config(name), {**CODEBOOK, "prior.hidden.units": 90, **changes})
    model = build(base, spec)
    assert isinstance(model, LatentSequenceModel)
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter.normal_(std=0.05)
    return model


def latent(name: str) -> LatentSequenceModel:
    model = small_model(name, text_spec(), spread=0.3)
    assert isinstance(model, LatentSequenceModel)
    return model


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", PRIORS)
def test_z_of_a_sequence_alone_and_in_any_batch_is_the_same(name):
    model = latent(name)
    together = model.encode(TEXTS)
    assert together.shape == (4, 5, model.prior.size)
    for text, z in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(z[: len(text)], model.encode(text)[0], rtol=1e-12, atol=1e-12)
        assert (z[len(text) :] == 0).all()


def test_sequences_are_given_as_people_have_them():
    model = latent("af-scf")
    expected = model.encode(strings(model.spec, TEXTS))
    arrays = [model.spec.encode(text) for text in TEXTS]
    assert torch.equal(model.encode(TEXTS), expected)
    assert torch.equal(model.encode(tuple(arrays)), expected)
    assert torch.equal(model.encode(arrays[0]), model.encode([TEXTS[0]]))
    music = codebook(music_spec())
    roll = music.spec.encode(PIECE)
    assert torch.equal(music.encode(roll), music.encode([PIECE]))
    tokens = codebook(DataSpec("tokens", (7, "on", "off"), (0, 1, 1, 1)))
    assert tokens.encode([[7, "on"], ["off"]]).shape == (2, 2, 2)


def test_a_draw_of_z_is_one_from_q():
    text = "abcabc" * 200
    model = codebook(text_spec(longest=len(text)))
    noise = (model.encode(text, sample=True) - model.encode(text)) / SIGMA
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3


@pytest.mark.parametrize("name", ["af-af", "iaf-scf", "af-only"])
def test_codes_that_are_apart_are_kept(name):
    """The mean of a code is nearest to itself, whatever the prior and the log-odds of the symbols say."""
    model = codebook(text_spec("abcdefgh", longest=40), name)
    draw = np.random.default_rng(0)
    texts = ["".join(draw.choice(list("abcdefgh"), size)) for size in (40, 3, 17, 1)]
    assert [model.spec.decode(x) for x in model.reconstruct(texts)] == texts


def test_notes_are_kept_too():
    model = codebook(music_spec())
    assert model.spec.size == NOTES
    assert [model.spec.decode(x) for x in model.reconstruct([PIECE, PIECE[2:]])] == [PIECE, PIECE[2:]]


def test_decode_draws_from_the_emission():
    """At a z between two codes both are drawn, as often as the emission says; its argmax is always one."""
    model = codebook(text_spec("ab", longest=2000), changes={"posterior.sigma": 1.0})
    z = torch.full((1, 2000, 1), 0.3)
    with torch.no_grad():
        scores = model.emission.scores(z[0, :1], model.alphabet, model.packing(strings(model.spec, ["a"])))
    (most,) = model.decode(z, torch.tensor([2000]))
    assert set(most) == {int(scores.argmax())}
    (drawn,) = model.decode(z, torch.tensor([2000]), argmax=False)
    assert stats.binomtest(int(drawn.sum()), 2000, float(scores.softmax(-1)[0, 1])).pvalue > 1e-3


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(("first", "last"), [("abcab", "cc"), ("b", "aaaa"), ("ab", "ca")])
def test_a_way_begins_and_ends_with_its_ends_and_its_lengths_lie_between(name, first, last):
    model = latent(name)
    way = model.between(first, last, steps=5)
    ends = [model.spec.decode(x) for x in (way[0], way[-1])]
    assert ends == [model.spec.decode(x) for x in model.reconstruct([first, last])]
    lengths = [len(x) for x in way]
    assert lengths == sorted(lengths, reverse=len(first) > len(last))
    assert all(abs(T - (len(first) + k / 4 * (len(last) - len(first)))) <= 0.5 for k, T in enumerate(lengths))


@pytest.mark.usefixtures("double")
def test_with_a_codebook_the_ends_are_the_two_sequences():
    model = codebook(text_spec("abcdefgh", longest=9))
    way = [model.spec.decode(x) for x in model.between("headache", "bad", steps=4)]
    assert (way[0], way[-1]) == ("headache", "bad")
    assert len(way) == 4


@pytest.mark.usefixtures("double")
def test_on_the_way_eps_stays_standard_normal_under_what_is_known(monkeypatch):
    """Half-way eps is (eps_1 + eps_2) / √2 under the flow whose condition is the mean of the two."""
    model = build(config("af-af"), replace(text_spec(), labels=("loud", "dull")))
    assert isinstance(model, LatentSequenceModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    ends = [collate([text], model.spec, [label]) for text, label in [("abca", "loud"), ("ccba", "dull")]]
    packings = [model.packing(end) for end in ends]
    eps = [
        model.prior.inverse_rows(model.encode(end)[0], packing)[0]
        for end, packing in zip(ends, packings, strict=True)
    ]
    seen, decode = [], model.decode
    monkeypatch.setattr(model, "decode", lambda z, lengths: seen.append(z) or decode(z, lengths))
    model.between(*ends, steps=3)
    between = packings[0]
    between.condition = torch.stack([packing.condition for packing in packings]).mean(0)  # type: ignore[arg-type]
    middle, _ = model.prior.inverse_rows(seen[0][1], between)
    torch.testing.assert_close(middle, (eps[0] + eps[1]) / math.sqrt(2), rtol=1e-9, atol=1e-9)


def test_what_is_wrong_is_said():
    model = latent("af-af")
    with pytest.raises(LatflowError, match="character 'x' at position 2 is not among the 3"):
        model.encode("axb")
    with pytest.raises(ValueError, match="sequence 1 has length 0"):
        model.reconstruct(["ab", ""])
    with pytest.raises(ValueError, match="length 7 is longer than the longest the model knows, 6"):
        model.encode("abcabca")
    with pytest.raises(ValueError, match="two ends at least, not 1"):
        model.between("a", "b", steps=1)
    with pytest.raises(ValueError, match="from one sequence to one, not from or to 2"):
        model.between(["a", "b"], "b", steps=3)
    with pytest.raises(ValueError, match="no sequences"):
        model.encode([])
