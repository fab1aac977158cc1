"""The truth of the synthetic sets is the truth."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from latflow.config import DataConfig
from latflow.data import load
from latflow.data.synthetic import HiddenMarkov, chord_music, hmm_language


def small(music: bool, seed: int = 0) -> HiddenMarkov:
    rng = np.random.default_rng(seed)
    rows = lambda *shape: (lambda a: a / a.sum(-1, keepdims=True))(rng.random(shape))  # noqa: E731
    return HiddenMarkov(rows(3), rows(3, 3), rng.uniform(0.05, 0.95, (3, 88)) if music else rows(3, 4), music)


def by_paths(model: HiddenMarkov, x: np.ndarray) -> float:
    """log p(x) by summing over every hidden path, without any recursion."""
    total = 0.0
    for path in product(range(len(model.initial)), repeat=len(x)):
        p = model.initial[path[0]]
        for before, after in pairwise(path):
            p *= model.transition[before, after]
        for s, step in zip(path, x, strict=True):
            e = model.emission[s]
            p *= np.prod(np.where(step, e, 1 - e)) if model.music else e[step]
        total += p
    return float(np.log(total))


@pytest.mark.parametrize("model", [small(False), hmm_language()], ids=["small", "hmm"])
def test_all_strings_of_a_length_add_up_to_1(model: HiddenMarkov) -> None:
    for length in (1, 2, 3):
        strings = [np.array(x) for x in product(range(model.emission.shape[1]), repeat=length)]
        assert np.exp(model.log_probs(strings)).sum() == pytest.approx(1, abs=1e-12)


def test_all_chords_of_few_free_notes_add_up_to_1() -> None:
    model = small(True)
    emission = np.full((3, 88), 1e-300)  # notes that never sound: their 2^84 combinations weigh nothing
    emission[:, :4] = model.emission[:, :4]
    few = HiddenMarkov(model.initial, model.transition, emission, music=True)
    steps = [np.pad(np.array(bits, np.uint8), (0, 84)) for bits in product((0, 1), repeat=4)]
    for length in (1, 2):
        sequences = [np.stack(x) for x in product(steps, repeat=length)]
        assert np.exp(few.log_probs(sequences)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("music", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_forward_algorithm_is_the_sum_over_paths(music: bool, length: int) -> None:
    model = small(music)
    x = model.sample(np.random.default_rng(length), length)
    assert x.shape == ((length, 88) if music else (length,))
    assert model.log_prob(x) == pytest.approx(by_paths(model, x), rel=1e-12)


@pytest.mark.parametrize(
    "pattern", [[0, -1, 2, -1], [-1, -1, 3, 1], [-1, 2, -1, -1], [1, 0, 2, 3], [-1, -1, -1, -1]]
)
def test_the_posterior_of_free_symbols_is_that_of_enumeration(pattern: list[int]) -> None:
    model, x = small(False), np.array(pattern)
    strings = np.array(list(product(*(range(4) if s < 0 else [s] for s in pattern))))
    p = np.exp(model.log_probs(strings))
    found, log_p = model.posterior(x.clip(0), x >= 0)
    assert log_p == pytest.approx(np.log(p.sum()), abs=1e-12)
    expected = np.stack([[p[strings[:, t] == s].sum() for s in range(4)] for t in range(4)]) / p.sum()
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_posterior_of_free_notes_is_that_of_enumeration() -> None:
    model = small(True)
    x = model.sample(np.random.default_rng(2), 3)
    known, free = np.ones(x.shape, bool), [(0, 7), (1, 7), (1, 80), (2, 0)]
    known[tuple(zip(*free, strict=True))] = False
    rolls = np.repeat(x[None], 16, 0)
    for roll, bits in zip(rolls, product((0, 1), repeat=4), strict=True):
        roll[tuple(zip(*free, strict=True))] = bits
    p = np.exp(model.log_probs(rolls) - model.log_prob(x))
    found, log_p = model.posterior(x, known)
    assert log_p == pytest.approx(np.log(p.sum()) + model.log_prob(x), abs=1e-9)
    np.testing.assert_allclose(found, (p[:, None, None] * rolls).sum(0) / p.sum(), atol=1e-12)


def test_nothing_follows_from_the_impossible() -> None:
    with pytest.raises(ValueError, match="probability 0"):
        hmm_language().posterior(np.zeros(2, np.int64), np.ones(2, bool))


def test_impossible_strings_and_long_ones() -> None:
    model = hmm_language()
    assert model.log_prob(np.zeros(2, np.int64)) == -np.inf  # a word cannot be empty: no two spaces
    long = model.sample(np.random.default_rng(0), 5000)
    assert -3 * 5000 < model.log_prob(long) < -5000  # exp of it would have underflowed long ago
    with pytest.raises(ValueError, match="sum to 1"):
        HiddenMarkov(np.ones(2), np.eye(2), np.eye(2))


def test_samples_have_the_frequencies_of_the_model() -> None:
    model = small(False)
    rng = np.random.default_rng(5)
    n = 4000
    counts = np.zeros((4, 4))
    for _ in range(n):
        a, b = model.sample(rng, 2)
        counts[a, b] += 1
    pairs = [np.array(pair) for pair in product(range(4), repeat=2)]
    p = np.exp(model.log_probs(pairs)).reshape(4, 4)
    # Pearson's statistic has 15 degrees of freedom: it exceeds 45 once in 13,000 seeds.
    assert ((counts - n * p) ** 2 / (n * p)).sum() < 45


@pytest.mark.parametrize(("name", "model"), [("hmm", hmm_language()), ("chords", chord_music())])
def test_the_truth_belongs_to_its_sequence(name: str, model: HiddenMarkov) -> None:
    corpus = load(DataConfig(name, train_size=40, eval_size=10))
    assert corpus.truth is not None
    for split, sequences in corpus.splits.items():
        assert len(corpus.truth[split]) == len(sequences) == (40 if split == "train" else 10)
        for x, truth in zip(sequences, corpus.truth[split], strict=True):
            assert truth == pytest.approx(-model.log_prob(x), rel=1e-12)
            assert np.isfinite(truth)


@pytest.mark.parametrize("name", ["hmm", "chords"])
def test_sets_repeat_under_a_seed_and_every_test_length_has_support(name: str) -> None:
    for size in (1, 7, 60):
        config = DataConfig(name, train_size=size, eval_size=20, synthetic_seed=4)
        one, two = load(config), load(config)
        other = load(DataConfig(name, train_size=size, eval_size=20, synthetic_seed=5))
        assert one.spec == two.spec
        assert (one.splits["test"].flat == two.splits["test"].flat).all()
        assert one.splits["test"].flat.tobytes() != other.splits["test"].flat.tobytes()
        assert all(one.spec.length_counts[length] for length in one.splits["test"].lengths)


def test_a_guess_without_memory_is_far_from_the_truth() -> None:
    """The sets are worth learning: the best model of single steps loses a third of a nat at least."""
    for name, gap in (("hmm", 0.33), ("chords", 5.0)):
        corpus = load(DataConfig(name, train_size=300, eval_size=50))
        assert corpus.truth is not None
        steps = np.concatenate(list(corpus.splits["train"]))
        sounding = steps.mean(axis=0)
        p = np.bincount(steps) / len(steps) if name == "hmm" else np.stack([sounding, 1 - sounding])
        memoryless = -(p[p > 0] * np.log(p[p > 0])).sum()
        assert memoryless - corpus.truth["train"].sum() / len(steps) > gap
