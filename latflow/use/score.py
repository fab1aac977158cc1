"""How surprising given sequences are: -log p(x) of each with its error, and of each of its steps.

A score depends on the model, the sequence and the seed alone. The noise of a sequence is drawn by a key made of its
own symbols, and how many samples it is given is decided by its own weights: two, if they agree, as those of a codebook
do, then 8, which doubles for those whose error is still above the tolerance. So a line has the same score whatever
else stands in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latflow.config import DataConfig
from latflow.data.base import Batch, DataSpec, collate
from latflow.data.text import read_list
from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.models.base import Importance
from latflow.progress import Progress
from latflow.training.distributed import World
from latflow.training.evaluate import CHUNK, NATS_PER_UNIT, evaluating, in_unit
from latflow.training.seeds import Stream, seeded
from latflow.use.evidence import Evidence
from latflow.use.given import given
from latflow.use.scores import Scores

TOLERANCE = 0.1
"""What the standard error of a score is brought below, in the unit of the data per step."""
LARGEST = 0.7
"""Nats of a whole sequence that the error is brought below in any case: beyond, so few samples carry the estimate that
its error is not known either."""
FEW, AGREE = 2, 0.01
"""Samples that every sequence is given, and the nats that their error is below where they are all it is given."""
FIRST, MOST = 8, 256
"""Samples that the others are given, and at most, unless it is said."""
WIDER = {1: 6.4829, 3: 1.6237, 7: 1.2065, 15: 1.0875, 31: 1.0406, 63: 1.0196, 127: 1.0096, 255: 1.0048}
"""The spread of few weights is itself uncertain: Student's 97.5 % quantile of so many degrees of freedom over that of
the normal distribution, so that an interval of 1.96 errors holds what it says."""


def score(
    model: SequenceModel,
    sequences: Any,
    *,
    samples: int | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    world: World | None = None,
    progress: Progress | None = None,
) -> Scores:
    """The negative log-likelihood of each sequence, in the unit of the data, a record each in the order given.

    A sequence is what `DataSpec.encode` takes (a string, a list of tokens, notes), an array as it gives them, or of
    tokens a line of JSON; a string or an array by itself is one. A record is a dict:

        sequence, index     as it was given, and its number from 1 on
        length              T
        nll, nll_per_step   -log p(x | T) - log p(T), and that / (T + 1)
        nll_error           its standard error, from the spread of the importance weights, wider where they are few: the
                            true value lies within 1.96 of it nineteen times in twenty, as far as the delta method goes
        samples             K, and effective_samples of them
        steps               the baseline's are exact, -log p(x_t | x_<t, T). A latent model has bound_steps, the terms
                            of the bound -log p(x_t | z) + log q(z_t | x) - log p(z_t | z_<t), the mean over the
                            samples, whose sum plus the length term is -ELBO
        error               why there is no nll: a symbol that the model does not know, a length that p(T) rules out

    K is 2 where those agree to 0.01 nats, otherwise 8, doubled until the error of nll_per_step is below `tolerance`,
    0.1 if nothing is said (and that of nll below 0.7 nats in any case), or K is 256; with `samples` K is that, or with
    both at most that. Equal sequences are scored once; `progress` is told how many are done.
    """
    if isinstance(sequences, (str, np.ndarray)):
        sequences = [sequences]
    found = [(i, *_taken(item, model.spec)) for i, item in enumerate(sequences, start=1)]
    return scored(
        model, found, samples=samples, tolerance=tolerance, seed=seed, world=world, progress=progress
    )


def scored(
    model: SequenceModel,
    found: Sequence[tuple[int, Any, np.ndarray | LatflowError]],
    *,
    samples: int | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    world: World | None = None,
    progress: Progress | None = None,
) -> Scores:
    """`score` of what was read: (index, name, the sequence or why there is none)."""
    if samples is not None and samples < 1:
        raise LatflowError(f"{samples} samples; there must be 1 or more")
    if tolerance is not None and not tolerance > 0:
        raise LatflowError(f"the tolerance is {tolerance}; it must be a number above 0")
    spec, world = model.spec, world or World(device=next(model.parameters()).device)
    arrays = [x for _, _, x in found if not isinstance(x, LatflowError)]
    distinct = {x.tobytes(): x for x in arrays if _fits(model, len(x))}
    most = MOST if samples is None else samples
    if samples is None and tolerance is None:
        tolerance = TOLERANCE
    nats = None if tolerance is None else tolerance * NATS_PER_UNIT[spec.unit]
    weights = _Weights.of(model, list(distinct.values()), most, nats, seed, world, progress)
    rows = dict(zip(distinct, weights.rows(model), strict=True))
    unknown = {"nll": None, "error": f"this model knows lengths from 1 to {spec.max_T}"}
    records = []
    for index, name, x in found:
        about: dict[str, Any] = {"sequence": name, "index": index}
        if isinstance(x, LatflowError):
            records.append(about | {"nll": None, "error": str(x)})
        else:
            records.append(about | {"length": len(x)} | rows.get(x.tobytes(), unknown))
    return Scores(records, spec)


def score_given(
    model: SequenceModel, evidence: Evidence, *, particles: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """-log p(x_known, T) in the unit of the data: how surprising a pattern with free places is, whatever stands there.

    "steps" are -log p(known of step t | known before it, T), zero where nothing is known.
    """
    found = given(model, evidence, 1, particles=particles, seed=seed)
    rest, T = in_unit(-found.log_p, model.spec), len(evidence.x)
    row = {"length": T, "known": int(evidence.known.sum()), **_together_with(_length_nll(model, T), T, rest)}
    row |= {"unit": model.spec.unit, "nll_given_length": rest, "effective_samples": found.effective_samples}
    steps = [in_unit(0.0 - float(v), model.spec) for v in found.steps]
    return row | {"particles": found.particles, "steps": steps + [0.0] * (T - len(steps))}


@dataclass
class _Weights:
    """Sums over the samples of each of n sequences, in nats."""

    arrays: list[np.ndarray]
    log_sum: Tensor
    """(n,) log Σ w."""
    log_sum_square: Tensor
    samples: Tensor
    """(n,) K."""
    steps: np.ndarray
    """All sequences behind one another: Σ_k log q(z_t | x) - log p(z_t | z_<t) - log p(x_t | z)."""

    @property
    def ends(self) -> np.ndarray:
        """Where each begins in `steps`, and the end of all."""
        return np.cumsum([0, *map(len, self.arrays)])

    @classmethod
    def of(
        cls,
        model: SequenceModel,
        arrays: list[np.ndarray],
        most: int,
        tolerance: float | None,
        seed: int,
        world: World,
        progress: Progress | None,
    ) -> _Weights:
        """Up to `most` samples of each, as many as it takes; processes take sequences in turn."""
        n = len(arrays)
        log_sum, square, samples = torch.zeros(3, n, dtype=torch.float64)
        self = cls(arrays, log_sum, square, samples, np.zeros(sum(map(len, arrays))))
        waiting = sorted(range(n), key=lambda i: len(arrays[i]))[world.rank :: world.size]
        share, done, ends = len(waiting), 0, self.ends
        goals = [1] if model.exact else _goals(most, tolerance)
        with evaluating(model):
            for before, goal in zip([0, *goals], goals, strict=False):
                later: list[int] = []
                for some in _together(waiting, arrays, goal - before, model):
                    error = self._draw(model, some, before, goal, seed, world, ends)
                    if goal < goals[-1] and tolerance is not None:
                        limits = [_limit(tolerance, len(arrays[i]), goal) for i in some]
                        again = [i for i, e, most in zip(some, error, limits, strict=True) if e > most]
                        later += again
                        done -= len(again)
                    done += len(some)
                    if progress:
                        progress(n * done // share, n)
                waiting = later
        return self._over(world)

    def _draw(
        self,
        model: SequenceModel,
        some: list[int],
        before: int,
        goal: int,
        seed: int,
        world: World,
        ends: np.ndarray,
    ) -> list[float]:
        """Samples number `before` to `goal` of some sequences; the standard error of each behind them."""
        items = [self.arrays[i] for i in some]
        batch, index = collate(items, model.spec).to(world.device), torch.tensor(some)
        total = Importance(self.log_sum[index], self.log_sum_square[index], before) if before else None
        part = 1 if model.exact else _part(max(map(len, items)))
        for first in range(before, goal, part):
            keyed, key = _keyed(batch, items, seed, first)
            with seeded(seed, Stream.SCORING, key):
                terms = model.terms(keyed, min(part, goal - first), given_length=True)
            new = Importance.of(terms.log_weights.double().cpu())
            total = new if total is None else total + new
            found = (terms.kl - terms.log_emission).double().sum(1).cpu().numpy()
            for i, x, steps in zip(some, items, found, strict=True):
                self.steps[ends[i] : ends[i + 1]] += steps[: len(x)]
        assert total is not None
        self.log_sum[index], self.log_sum_square[index] = total.log_sum, total.log_sum_square
        self.samples[index] = float(goal)
        return _error(total).tolist()

    def _over(self, world: World) -> _Weights:
        """The sum over processes, each of which leaves the sequences of the others zero."""
        log_sum, square, samples = world.sum(torch.stack([self.log_sum, self.log_sum_square, self.samples]))
        return _Weights(
            self.arrays, log_sum, square, samples, world.sum(torch.from_numpy(self.steps)).numpy()
        )

    def rows(self, model: SequenceModel) -> Iterator[dict[str, Any]]:
        """What a record says beside its name."""
        spec, exact, unit = model.spec, model.exact, NATS_PER_UNIT[model.spec.unit]
        nll, error, effective = torch.zeros(3, len(self.arrays), dtype=torch.float64)
        for K in self.samples.unique().long().tolist():
            which = self.samples == K
            weights = Importance(self.log_sum[which], self.log_sum_square[which], K)
            nll[which], effective[which] = weights.nll() / unit, weights.effective_samples()
            error[which] = 0.0 if exact else _error(weights) / unit
        ends, steps = self.ends.tolist(), self.steps / unit
        with_length = cache(partial(_length_nll, model))
        figures = (nll.tolist(), error.tolist(), effective.tolist(), self.samples.long().tolist())
        for i, (x, rest, wrong, all_alike, K) in enumerate(zip(self.arrays, *figures, strict=True)):
            row = _together_with(with_length(len(x)), len(x), rest)
            row |= {"nll_error": wrong, "unit": spec.unit, "nll_given_length": rest}
            if not exact:
                row |= {"samples": K, "effective_samples": all_alike}
            yield row | {"steps" if exact else "bound_steps": (steps[ends[i] : ends[i + 1]] / K).tolist()}


def _error(weights: Importance) -> Tensor:
    """The standard error in nats, as wide as so few samples make it."""
    known = [wider for freedom, wider in WIDER.items() if freedom < weights.samples]
    return weights.error() * (known[-1] if known else 1.0)


def _limit(tolerance: float, T: int, samples: int) -> float:
    """Nats that the error of a sequence is to come below, for so many samples to be enough."""
    return min(tolerance * (T + 1), AGREE if samples <= FEW else LARGEST)


def _goals(most: int, tolerance: float | None) -> list[int]:
    """K after each look at the error: 2, 8, 16, 32 ... up to the most."""
    if tolerance is None:
        return [most]
    found = [min(K, most) for K in (FEW, FIRST)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return sorted(set(found))


def _part(length: int) -> int:
    """Samples at once of a sequence so long: a power of two, so that a key is of samples that always stand together."""
    return max(1, min(64, 2 ** ((CHUNK // length).bit_length() - 1) if length <= CHUNK else 1))


def _together(
    waiting: list[int], arrays: list[np.ndarray], samples: int, model: SequenceModel
) -> Iterator[list[int]]:
    """Groups of sequences, which are sorted by length, of about CHUNK rows; none mixes lengths that have another
    number of samples at once."""
    alone = not model.exact and not getattr(model.get_submodule("posterior"), "keyed", False)
    group: list[int] = []
    for i in waiting:
        T = len(arrays[i])
        rows = (len(group) + 1) * T * (1 if model.exact else min(samples, _part(T)))
        if group and (alone or rows > CHUNK or _part(T) != _part(len(arrays[group[0]]))):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _keyed(batch: Batch, items: list[np.ndarray], seed: int, first: int) -> tuple[Batch, int]:
    """The batch with a key for the samples from `first` on of each sequence, and the key of the first."""
    about = f"{seed} {first} ".encode()
    keys = [
        int.from_bytes(hashlib.blake2b(about + x.tobytes(), digest_size=8).digest(), "little") >> 1
        for x in items
    ]
    return replace(batch, key=torch.tensor(keys)), keys[0]


def _fits(model: SequenceModel, T: int) -> bool:
    return T >= 1 and (model.spec.max_T >= T or not model.length.bounded)


def _taken(item: Any, spec: DataSpec) -> tuple[Any, np.ndarray | LatflowError]:
    """A sequence as people have it: what to call it, and its array or why there is none."""
    try:
        if isinstance(item, np.ndarray):
            return (None, spec.encode(item)) if spec.kind == "music" else (spec.decode(item), item)
        if isinstance(item, str) and spec.kind == "tokens":
            return item, spec.encode(read_list(item, DataConfig()))
        if isinstance(item, str) and spec.kind == "music":
            raise LatflowError(
                f"{item}: music is given as a roll or notes; latflow.data.midi.read_midi reads a file"
            )
        return item, spec.encode(item)
    except LatflowError as error:
        return item, error
    except (TypeError, ValueError) as error:
        return item, LatflowError(f"no sequence of {spec.step_name}s: {error}")


def _length_nll(model: SequenceModel, T: int) -> float | None:
    """-log p(T) in the unit of the data, if T has a probability."""
    try:
        return in_unit(-float(model.length.log_prob(torch.tensor([T]))), model.spec)
    except ValueError:
        return None


def _together_with(length: float | None, T: int, rest: float) -> dict[str, Any]:
    """-log p(x | T) and -log p(T)."""
    if length is None:
        return {"nll": None, "error": f"length {T} has no probability under p(T)"}
    return {"nll": rest + length, "nll_per_step": (rest + length) / (T + 1), "length_nll": length}
