"""Supplement A: what the program claims about discrete flows."""

import importlib.util
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[1] / "examples" / "discrete_flow.py"
SPEC = importlib.util.spec_from_file_location("discrete_flow", PATH)
assert SPEC is not None
assert SPEC.loader is not None
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


def test_the_fitted_permutation_is_the_best_of_all():
    rng = np.random.default_rng(0)
    p, base = rng.dirichlet(np.ones(6)), example.geometric(6, 0.6)
    fitted = example.cross_entropy(p, example.best_permutation(p, base))
    every = (example.cross_entropy(p, base[list(order)]) for order in permutations(range(6)))
    assert fitted == pytest.approx(min(every), abs=1e-12)


def test_a_flow_only_reorders_the_base():
    p, base = np.array([0.1, 0.6, 0.3]), example.geometric(3, 0.5)
    fitted = example.best_permutation(p, base)
    assert sorted(fitted) == pytest.approx(sorted(base))
    assert fitted.argmax() == 1
    uniform = example.best_permutation(p, example.geometric(3, 1.0))
    assert uniform == pytest.approx([1 / 3] * 3)


def test_counting_beats_every_permutation_of_a_geometric_base_on_first_letters():
    train, test = example.first_letters()
    assert all(len(letter) == 1 for letter in train)
    uniform, half, best, counting, truth = example.one_dimension(train, test).values()
    assert truth <= counting < best < min(uniform, half)


def test_xor_takes_the_dependence_of_a_noisy_copy_away_but_not_every_dependence():
    none, xor, best, truth = example.two_dimensions(example.COPY).values()
    assert xor == pytest.approx(truth, abs=1e-9)
    assert best == pytest.approx(truth, abs=1e-9)
    assert none > truth + 0.4
    *_, best, truth = example.two_dimensions(example.UNEVEN).values()
    assert best > truth + 0.05


def test_xor_is_invertible():
    assert len(set(example.XOR)) == 4
    again = example.pushed(example.pushed(example.COPY, example.XOR), example.XOR)
    assert again == pytest.approx(example.COPY)


def test_the_program_prints_its_tables(capsys):
    example.main()
    text = capsys.readouterr().out
    assert text.count("bits per") == 3
