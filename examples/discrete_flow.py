"""Why not a flow over the symbols themselves? Supplement A of the paper, as a program.

A flow y = f(x) over a finite set has no volume to change: p_Y(y) = p_X(f⁻¹(y)), so the probabilities of y are those of
x in another order. Part 1 fits the best such flow in one dimension, to the first letters of sentences, and sets it
beside counting. Part 2 shows what two dimensions add, with XOR, and what they still do not.

    python examples/discrete_flow.py
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np


def entropy(p: np.ndarray) -> float:
    """In bits."""
    p = p[p > 0]
    return float(-(p * np.log2(p)).sum())


def cross_entropy(p: np.ndarray, q: np.ndarray) -> float:
    """Bits per symbol of data with frequencies p under the model q."""
    seen = p > 0
    return float(-(p[seen] * np.log2(q[seen])).sum())


# Part 1. One dimension: an invertible map of a finite set to itself is a permutation.


def geometric(size: int, ratio: float) -> np.ndarray:
    """A geometric base on `size` elements: p(k) ∝ ratio^k. A ratio of 1 is the uniform base."""
    weights = ratio ** np.arange(size)
    return weights / weights.sum()


def best_permutation(p: np.ndarray, base: np.ndarray) -> np.ndarray:
    """base[f⁻¹(y)] for the permutation f of highest likelihood on data with frequencies p.

    Σ_y p(y) log base(f⁻¹(y)) is largest when both are in the same order (the rearrangement inequality), so the fit is
    exact: the most frequent symbol takes the largest probability, and so on.
    """
    q = np.empty_like(base)
    q[np.argsort(-p, kind="stable")] = np.sort(base)[::-1]
    return q


def first_letters() -> list[list[str]]:
    """First letters of the sentences of Python's help texts, in lower case: train and test."""
    from latflow.config import DataConfig
    from latflow.data import load

    corpus = load(DataConfig(name="pydoc"))
    splits = (corpus.splits["train"], corpus.splits["test"])
    return [[str(corpus.spec.decode(x[:1])).lower() for x in split] for split in splits]


def frequencies(letters: Sequence[str], symbols: Sequence[str], add: float = 0.0) -> np.ndarray:
    """Shares of each symbol, `add` added to every count."""
    counts = Counter(letters)
    p = np.array([counts[s] + add for s in symbols], float)
    return p / p.sum()


def one_dimension(train: Sequence[str], test: Sequence[str]) -> dict[str, float]:
    """Bits per first letter on the test set, fitted on the training set."""
    symbols = sorted({*train, *test})
    seen, held_out = frequencies(train, symbols), frequencies(test, symbols)
    size = len(symbols)
    ratios = np.linspace(0.5, 1.0, 501)
    best = min(ratios, key=lambda r: cross_entropy(seen, best_permutation(seen, geometric(size, r))))
    return {
        "uniform base, any flow": math.log2(size),
        "geometric base (0.5), best flow": cross_entropy(
            held_out, best_permutation(seen, geometric(size, 0.5))
        ),
        f"geometric base ({best:.3f}, the best), best flow": cross_entropy(
            held_out, best_permutation(seen, geometric(size, best))
        ),
        "counting (one added to each)": cross_entropy(held_out, frequencies(train, symbols, add=1.0)),
        "the test set's own entropy": entropy(held_out),
    }


# Part 2. Two dimensions: two bits, a base of two independent bits.

STATES = ((0, 0), (0, 1), (1, 0), (1, 1))


def independent_bits(p: np.ndarray) -> float:
    """Bits per pair under the best base of two independent bits: the sum of the marginals' entropies."""
    table = p.reshape(2, 2)
    return entropy(table.sum(0)) + entropy(table.sum(1))


def pushed(p: np.ndarray, f: Sequence[tuple[int, int]]) -> np.ndarray:
    """The distribution of f(y) for y ~ p; f lists the images of 00, 01, 10, 11."""
    q = np.zeros(4)
    for share, image in zip(p, f, strict=True):
        q[STATES.index(image)] += share
    return q


XOR = tuple((a, a ^ b) for a, b in STATES)
"""(y1, y2) -> (y1, y1 xor y2): its own inverse, and no permutation of either bit alone."""


def two_dimensions(p: np.ndarray) -> dict[str, float]:
    """Bits per pair with the identity, with XOR, with the best of all 24 invertible maps, and the truth."""
    return {
        "independent bits, no flow": independent_bits(p),
        "independent bits, XOR": independent_bits(pushed(p, XOR)),
        "independent bits, best of all 24 maps": min(
            independent_bits(pushed(p, f)) for f in permutations(STATES)
        ),
        "counting (the entropy)": entropy(p),
    }


COPY = np.array([0.54, 0.06, 0.04, 0.36])
"""A first bit, and a second that copies it nine times in ten."""
UNEVEN = np.array([0.7, 0.1, 0.1, 0.1])
"""One pair is likely, the three others are alike: no map makes this a product of two bits."""


def print_table(title: str, unit: str, rows: dict[str, float]) -> None:
    print(f"{title}\n  {'model':<48} {unit:>14}")
    for name, bits in rows.items():
        print(f"  {name:<48} {bits:>14.3f}")
    print()


def main() -> None:
    train, test = first_letters()
    print_table(
        f"One dimension: the first letters of {len(train):,} sentences",
        "bits per letter",
        one_dimension(train, test),
    )
    print(
        "Whatever is trained, the flow hands out the base's own probabilities in another order: the uniform base\n"
        "learns nothing at all, and the geometric one gives its fixed staircase to the letters by rank. (Its ratio is\n"
        "a choice of the base; no flow can change it.) Counting sets every probability by itself, without a flow.\n"
    )
    print_table("Two bits, the second a noisy copy of the first", "bits per pair", two_dimensions(COPY))
    print(
        "XOR turns the copy into an independent bit (did it flip?), which no change of one bit alone can do: with\n"
        "two dimensions a discrete flow can take dependence away, here all of it.\n"
    )
    print_table("Two bits, one pair likely and the others alike", "bits per pair", two_dimensions(UNEVEN))
    print(
        "There are only 24 invertible maps of two bits, and the base has two parameters where the distribution has\n"
        "three: the best map still leaves a gap. This is why the flows of latflow live in a continuous space, where a\n"
        "density can be shaped, and z carries the symbols."
    )


if __name__ == "__main__":
    main()
