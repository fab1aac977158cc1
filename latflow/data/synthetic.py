"""Sets drawn from hidden Markov models, so that the true likelihood of every sequence is known.

    s_1 ~ initial      s_t ~ transition[s_(t-1)]      x_t ~ emission[s_t]      T uniform

A model's NLL can be set beside the truth: their difference is an estimate of KL(truth || model), zero at
best.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from latflow.data.base import LOWEST, NOTES, Corpus, DataSpec, Sequences, length_counts


@dataclass(frozen=True)
class HiddenMarkov:
    """A hidden Markov model over S states that emits symbols (a Categorical) or notes (independent
    Bernoullis).
    """

    initial: np.ndarray
    """(S,) probabilities of the first state."""
    transition: np.ndarray
    """(S, S): row s holds the probabilities of the state that follows s."""
    emission: np.ndarray
    """(S, V) rows of symbol probabilities, or (S, 88) probabilities that a note sounds."""
    music: bool = False

    def __post_init__(self) -> None:
        rows = [self.initial, *self.transition, *([] if self.music else self.emission)]
        if not all(np.isclose(row.sum(), 1) for row in rows) or min(row.min() for row in rows) < 0:
            raise ValueError("initial, transition and symbol probabilities must each sum to 1")
        if self.music and not ((self.emission > 0) & (self.emission < 1)).all():
            raise ValueError("a note's probability must lie inside (0, 1)")

    def log_emission(self, x: np.ndarray) -> np.ndarray:
        """log p(x_t | s): (..., T) indices or (..., T, 88) notes -> (..., T, S), in nats."""
        with np.errstate(divide="ignore"):  # a symbol a state never emits: log 0
            log_p = np.log(self.emission)
        if not self.music:
            return log_p.T[x]
        log_q = np.log1p(-self.emission)
        return x.astype(np.float64) @ (log_p - log_q).T + log_q.sum(axis=1)

    def log_prob(self, x: np.ndarray) -> float:
        """log p(x | T) in nats of one sequence, (T,) or (T, 88): the forward algorithm, see `log_probs`."""
        return float(self.log_probs([np.asarray(x)])[0])

    def log_probs(self, sequences: Iterable[np.ndarray]) -> np.ndarray:
        """log p(x | T) in nats of many sequences at once, exact up to float64's rounding.

        The forward algorithm, alpha_t(s) = p(x_t | s) sum_r alpha_(t-1)(r) transition(r, s), with log alpha
        kept and its largest entry taken out before each sum, so that nothing underflows however long x is.
        """
        items = list(sequences)
        lengths = np.array([len(x) for x in items], np.int64)
        result = np.zeros(len(items))
        for part in np.array_split(np.arange(len(items)), -(-len(items) // 512) or 1):
            if len(part):
                result[part] = self._forward([items[i] for i in part], lengths[part])
        return result

    def _forward(self, items: list[np.ndarray], lengths: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(items), lengths.max(), *items[0].shape[1:]), np.int64)
        for row, x in zip(padded, items, strict=True):
            row[: len(x)] = x
        with np.errstate(divide="ignore"):  # impossible states have log probability -inf
            log_alpha = np.log(self.initial) + self.log_emission(padded[:, 0])
            for t in range(1, padded.shape[1]):
                step = _log_matmul(log_alpha, self.transition) + self.log_emission(padded[:, t])
                log_alpha = np.where((t < lengths)[:, None], step, log_alpha)
            return _log_matmul(log_alpha, np.ones((len(self.initial), 1)))[:, 0]

    def posterior(self, x: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, float]:
        """p(x_t | x_known) of every step, (T, V) of symbols or (T, 88) that a note sounds, and log p(x_known | T) in
        nats, where x (T,) or (T, 88) is known as the mask of its shape says: forward-backward.

        gamma_t(s) ∝ alpha_t(s) beta_t(s),  beta_t(s) = sum_r transition(s, r) p(known of x_(t+1) | r) beta_(t+1)(r)
        """
        with np.errstate(divide="ignore"):
            if self.music:
                on, off = known & (x > 0), known & (x == 0)
                step = on @ np.log(self.emission).T + off @ np.log1p(-self.emission).T
            else:
                step = np.where(known[:, None], np.log(self.emission).T[x], 0.0)
            alpha, beta = np.empty_like(step), np.zeros_like(step)
            alpha[0] = np.log(self.initial) + step[0]
            for t in range(1, len(x)):
                alpha[t] = _log_matmul(alpha[t - 1 : t], self.transition)[0] + step[t]
            for t in reversed(range(len(x) - 1)):
                beta[t] = _log_matmul((beta[t + 1] + step[t + 1])[None], self.transition.T)[0]
            log_p = float(_log_matmul(alpha[-1:], np.ones((len(self.initial), 1)))[0, 0])
        if log_p == -np.inf:
            raise ValueError("what is known has probability 0 in this language, so nothing follows from it")
        found = np.exp(alpha + beta - log_p) @ self.emission
        if self.music:
            return np.where(known, x > 0, found), log_p
        return np.where(known[:, None], np.eye(self.emission.shape[1])[x], found), log_p

    def sample(self, rng: np.random.Generator, length: int) -> np.ndarray:
        """One sequence of the given length: (T,) int64 indices, or a (T, 88) uint8 roll."""
        first, follow = np.cumsum(self.initial), np.cumsum(self.transition, axis=1)
        states = np.empty(length, np.int64)
        for t, u in enumerate(rng.random(length)):
            states[t] = _inverse_cdf(follow[states[t - 1]] if t else first, u)
        if self.music:
            return (rng.random((length, NOTES)) < self.emission[states]).astype(np.uint8)
        emitted = np.cumsum(self.emission, axis=1)[states]
        return np.array([_inverse_cdf(row, u) for row, u in zip(emitted, rng.random(length), strict=True)])


def _log_matmul(log_a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log(exp(log_a) @ b) for log_a (N, S) and b (S, R), the largest entry of each row taken out first."""
    largest = np.maximum(log_a.max(axis=1, keepdims=True), np.finfo(np.float64).min)  # a row may be all -inf
    return np.log(np.exp(log_a - largest) @ b) + largest


def _inverse_cdf(cumulative: np.ndarray, u: float) -> int:
    """The first entry whose cumulative probability exceeds u (times the total, which may not round to 1)."""
    return int(cumulative.searchsorted(u * cumulative[-1], "right"))


HMM_SYMBOLS = tuple(" adeiklmnost")


def hmm_language() -> HiddenMarkov:
    """A language of syllables with vowel harmony: 8 hidden states over a space and 11 letters.

    A state is a place in the word (onset, vowel, coda, space) and a colour, front or back. The colour holds
    through a word and changes after one space in four. Front words have the vowels e, i and like the
    consonants k, s, t; back words have a, o and like d, l, m, n. Now and then a letter of the other colour
    slips in, so the colour of a letter is told best by its whole word, which is what a sequence model has
    to find.
    """
    onset, vowel, coda, space = range(4)
    places = np.zeros((4, 4))
    places[onset, vowel] = 1.0
    places[vowel, [onset, coda, space]] = 0.45, 0.3, 0.25
    places[coda, [onset, space]] = 0.3, 0.7
    places[space, [onset, vowel]] = 0.85, 0.15
    stay, change = np.diag([1.0, 1.0, 1.0, 0.75]), np.diag([0.0, 0.0, 0.0, 0.25])
    transition = np.block([[stay @ places, change @ places], [change @ places, stay @ places]])
    letters = {
        (onset, 0): "k" * 6 + "s" * 6 + "t" * 6 + "dlmn",
        (onset, 1): "d" * 4 + "l" * 4 + "m" * 4 + "n" * 4 + "kst",
        (vowel, 0): "e" * 10 + "i" * 8 + "ao",
        (vowel, 1): "a" * 10 + "o" * 8 + "ei",
        (coda, 0): "s" * 5 + "t" * 4 + "n",
        (coda, 1): "n" * 5 + "l" * 4 + "s",
        (space, 0): " ",
        (space, 1): " ",
    }
    emission = np.zeros((8, len(HMM_SYMBOLS)))
    for (place, colour), drawn in letters.items():
        for letter in drawn:
            emission[4 * colour + place, HMM_SYMBOLS.index(letter)] += 1 / len(drawn)
    initial = np.zeros(8)
    initial[[onset, vowel, 4 + onset, 4 + vowel]] = 0.4, 0.1, 0.4, 0.1
    return HiddenMarkov(initial, transition, emission)


def chord_music() -> HiddenMarkov:
    """A chord progression over 88 notes: 60 hidden states, a key of the 12 and a degree I, ii, IV, V or vi
    in it.

    A chord holds for two steps on average and moves as cadences do; the key climbs a fifth in one step of
    fifty. Given the chord the notes are independent: its root in the bass and its triad in the middle sound
    with probability 0.95, the seven notes of the key in the octave above with 0.08 (0.3 for the chord's
    own), and every other note by mistake with 0.001.
    """
    scale = np.array([0, 2, 4, 5, 7, 9, 11])
    degrees = {"I": 0, "ii": 1, "IV": 3, "V": 4, "vi": 5}
    moves = np.array(
        [  # to I    ii   IV    V    vi
            [0.00, 0.20, 0.30, 0.30, 0.20],
            [0.05, 0.00, 0.10, 0.80, 0.05],
            [0.35, 0.15, 0.00, 0.45, 0.05],
            [0.65, 0.05, 0.05, 0.00, 0.25],
            [0.05, 0.40, 0.45, 0.10, 0.00],
        ]
    )
    chords = 0.5 * np.eye(5) + 0.5 * moves
    keys = 0.98 * np.eye(12) + 0.02 * np.roll(np.eye(12), 7, axis=1)
    emission = np.full((12, 5, NOTES), 0.001)
    for key in range(12):
        for row, degree in enumerate(degrees.values()):
            triad = (key + scale[(degree + np.array([0, 2, 4])) % 7]) % 12
            emission[key, row, 72 + (key + scale) % 12 - LOWEST] = 0.08
            emission[key, row, 72 + triad - LOWEST] = 0.3
            emission[key, row, 55 + (triad - 55) % 12 - LOWEST] = 0.95
            emission[key, row, 36 + triad[0] - LOWEST] = 0.95
    initial = np.zeros((12, 5))
    initial[:, 0] = 1 / 12
    return HiddenMarkov(initial.reshape(-1), np.kron(keys, chords), emission.reshape(60, NOTES), music=True)


def draw_corpus(
    name: str, train: int = 0, evaluation: int = 0, seed: int = 0, smooth: bool | None = None
) -> Corpus:
    """The set `hmm` or `chords`, its sequences drawn under `seed`, with the truth of each."""
    source, kind, symbols, (shortest, longest), sizes = {
        "hmm": (hmm_language, "text", HMM_SYMBOLS, (8, 32), (4000, 500)),
        "chords": (chord_music, "music", (), (16, 48), (800, 100)),
    }[name]
    model = source()
    counts = {"train": train or sizes[0], "valid": evaluation or sizes[1], "test": evaluation or sizes[1]}
    # Few training sequences have few lengths; all splits keep to those, so that p(T) allows all of them.
    allowed = np.linspace(shortest, longest, min(longest - shortest + 1, counts["train"])).astype(np.int64)
    splits, truth = {}, {}
    for stream, (split, count) in enumerate(counts.items()):
        rng = np.random.default_rng([seed, stream])
        lengths = rng.choice(allowed, count)
        if split == "train":
            lengths[: len(allowed)] = allowed
        items = [model.sample(rng, int(length)) for length in lengths]
        splits[split] = Sequences.of_rolls(items) if model.music else _of_symbols(items, len(symbols))
        truth[split] = -model.log_probs(items)
    seen = [splits["train"].lengths, splits["valid"].lengths]
    counted = length_counts(seen, model.music if smooth is None else smooth)
    origin = f"drawn from a hidden Markov model of {len(model.initial)} states, seed {seed}"
    return Corpus(name, DataSpec(kind, symbols, counted), splits, origin, truth)


def _of_symbols(items: list[np.ndarray], size: int) -> Sequences:
    return Sequences.of_symbols(items, [len(x) for x in items], size)
