"""What a model expects next, against enumeration of all strings of a tiny model; T known and T open."""

from __future__ import annotations

import math

import numpy as np
import pytest

import latflow
from latflow.errors import LatflowError
from latflow.use import Evidence, given, score
from latflow.use.ahead import next_symbol, surprise
from latflow.use.walkers import stepwise
from tests.use.test_given import SPEC, TEXT, enumerated, tiny

SAMPLES = 8_000


def prefix_p(row: str, prefix: str, T: int) -> tuple[float, float]:
    """p(x_<t = prefix | T) as the sum over all strings that begin so, and its relative error."""
    _, p, error = enumerated(row, prefix.ljust(T, "?"))
    return float(p.sum()), error


def open_p(row: str, prefix: str) -> tuple[float, float]:
    """The same where T is 3 or 4, as 3 : 1 in p(T)."""
    (three, e3), (four, e4) = prefix_p(row, prefix, 3), prefix_p(row, prefix, 4)
    return 0.75 * three + 0.25 * four, max(e3, e4)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("row", TEXT)
def test_surprise_is_that_of_enumeration(row):
    """Up to five standard errors of the enumeration and a hundredth for the weights here; the baseline is exact."""
    model, x = tiny(row), SPEC.encode("abca")
    found = surprise(model, x, samples=SAMPLES)
    for t in range(1, 5):
        p, error = prefix_p(row, "abca"[:t], 4)
        allowed = 1e-9 if row == "lstm" else 5 * error + 0.01
        assert -found[:t].sum() == pytest.approx(math.log(p), abs=allowed)
    x = SPEC.encode("ab")
    found = surprise(model, x, ended=False, samples=SAMPLES)
    for t in (1, 2):
        p, error = open_p(row, "ab"[:t])
        allowed = 1e-9 if row == "lstm" else 5 * error + 0.01
        assert -found[:t].sum() == pytest.approx(math.log(p), abs=allowed)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("row", TEXT)
def test_the_next_symbol_has_the_distribution_of_enumeration(row):
    model = tiny(row)
    for text, at, ended in (("abca", 2, True), ("ab", 1, False), ("ab", 2, False)):
        found = next_symbol(model, SPEC.encode(text), at, ended=ended, samples=SAMPLES).p
        assert float(found.sum()) == pytest.approx(1)
        begin = text[:at]
        pairs = [prefix_p(row, begin + s, len(text)) if ended else open_p(row, begin + s) for s in "abc"]
        total = sum(p for p, _ in pairs)
        for mine, (p, error) in zip(found.tolist(), pairs, strict=True):
            assert mine == pytest.approx(p / total, abs=1e-9 if row == "lstm" else 5 * error + 0.01)


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_symbol_is_as_surprising_as_it_was_said(ended):
    """Two ways to one number: the symbol that stands there, in the distribution and among the steps."""
    model = latflow.load("pydoc")
    x = model.spec.encode("The value of the expression is returned")
    steps = surprise(model, x, ended=ended)
    for at in (0, 9, 20):
        p = float(next_symbol(model, x, at, ended=ended).p[x[at]])
        assert -math.log(p) == pytest.approx(steps[at], abs=0.02)


def test_a_model_of_whole_texts_has_the_terms_of_its_bound():
    model = latflow.load("pydoc-2d")
    assert not stepwise(model)
    x = model.spec.encode("The class of an object is returned.")
    (row,) = score(model, [x], samples=8)
    assert surprise(model, x, samples=8) / math.log(2) == pytest.approx(row["bound_steps"], abs=1e-4)
    p = next_symbol(model, x, 16).p
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert float(p[x[16]]) > 0.02  # "o" after "an "
    with pytest.raises(LatflowError, match="step 36; there are 35"):
        next_symbol(model, x, 35, ended=False)


def test_what_there_is_no_next_of_is_refused():
    music = latflow.load("jsb")
    with pytest.raises(LatflowError, match="a set of notes"):
        next_symbol(music, np.zeros((4, 88), np.uint8), 0)
    with pytest.raises(LatflowError, match="length 201; this model knows lengths from 1 to 200"):
        surprise(latflow.load("pydoc"), np.zeros(201, np.int64))


@pytest.mark.usefixtures("double")
def test_the_most_likely_given_what_is_known_hangs_on_no_draw():
    """The baseline's argmax is the most likely next symbol: the same for every seed, and what its scores say."""
    model = tiny("lstm")
    evidence = Evidence.prefix(SPEC, "a", 4)
    first, other = (
        given(model, evidence, 1, particles=1, argmax=True, seed=seed).samples[0] for seed in (0, 5)
    )
    assert first.tolist() == other.tolist()
    for t in (1, 2, 3):
        assert int(next_symbol(model, first, t).p.argmax()) == first[t]
