"""From nats of sequences to the numbers that are printed: the only place where units change.

The paper's convention, named in every result:

    NLL = - Σ_i [ log p(x_i | T_i) + log p(T_i) ] / Σ_i (T_i + 1)      bits for text and tokens, nats for music

Each sequence gives a row of nats; rows of all processes are added up (a process leaves those of the others zero), and
every figure is a ratio of sums over rows. Its standard error over sequences is that of a ratio,

    se(R) = sqrt( n / (n - 1) Σ_i (N_i - R L_i)² ) / Σ_i L_i,      R = Σ N_i / Σ L_i,   L_i = T_i + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latflow.data.base import Batch, Batches, DataSpec, Sequences
from latflow.models import SequenceModel
from latflow.plain import plain
from latflow.progress import Progress
from latflow.training.distributed import World
from latflow.training.seeds import Stream, seeded

CHUNK = 20_000
"""Steps x samples computed at once, one sample of a batch at least: memory does not grow with K."""

NATS_PER_UNIT = {"bits": math.log(2), "nats": 1.0}


@dataclass(frozen=True)
class Truth:
    """The data's own likelihood, where it is known, in the same unit and convention."""

    nll: float
    gap: float
    """The model's NLL minus the truth: an estimate of KL(truth || model), so not below 0 but for chance."""
    gap_error: float
    """Its standard error; model and truth are compared sequence by sequence."""


@dataclass(frozen=True)
class Group:
    """Some of the sequences, in the same unit and convention."""

    sequences: int
    nll: float
    nll_error: float


@dataclass(frozen=True)
class Metrics:
    """Results of a split, in `unit` per step, T + 1 steps for a sequence of length T."""

    unit: str
    step_name: str
    convention: str
    sequences: int
    steps: int
    """Σ (T + 1)."""
    samples: int
    """K."""
    nll: float
    nll_error: float
    """Standard error over sequences."""
    negative_elbo: float
    """Reconstruction + KL + length."""
    reconstruction: float
    kl: float
    length: float
    nll_at: dict[int, float]
    """The NLL estimated with fewer samples: a bound that still falls with K says so."""
    effective_samples: float
    """Mean over sequences of (Σ w)² / Σ w²: K if the posterior is exact, 1 if one sample carries everything."""
    truth: Truth | None = None
    by_label: Mapping[str, Group] | None = None
    """The sequences of each label alone, where the data has labels."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the NLL."""
        return self.nll - 1.96 * self.nll_error, self.nll + 1.96 * self.nll_error

    @property
    def name(self) -> str:
        """The unit in full."""
        return f"{self.unit} per {self.step_name}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return plain({**asdict(self), "interval": self.interval})


@dataclass(frozen=True)
class Rows:
    """Nats of each sequence, and how many of its samples were effective: (n,) each."""

    reconstruction: Tensor
    kl: Tensor
    length: Tensor
    """-log p(T)."""
    effective_samples: Tensor
    nll: dict[int, Tensor]
    """K -> -log p(x | T) with K samples, the largest K last."""

    @classmethod
    def zeros(cls, n: int, ladder: list[int]) -> Rows:
        def column() -> Tensor:
            return torch.zeros(n, dtype=torch.float64)

        return cls(column(), column(), column(), column(), {k: column() for k in ladder})

    @property
    def total(self) -> Tensor:
        """-log p(x, T) with all samples."""
        return self.nll[max(self.nll)] + self.length

    @property
    def columns(self) -> list[Tensor]:
        """All, for what is done to each alike."""
        return [self.reconstruction, self.kl, self.length, self.effective_samples, *self.nll.values()]

    def put(self, index: Tensor, rows: Rows) -> None:
        """Those of some sequences in their places."""
        for own, new in zip(self.columns, rows.columns, strict=True):
            own[index] = new.cpu()

    def over(self, world: World) -> Rows:
        """The sum over processes, each of which has rows that the others leave zero."""
        total = world.sum(torch.stack(self.columns))
        reconstruction, kl, length, effective, *nll = total
        return Rows(reconstruction, kl, length, effective, dict(zip(self.nll, nll, strict=True)))


@contextmanager
def evaluating(model: SequenceModel) -> Iterator[None]:
    """Without dropout and without gradients; every part of the model is left in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def evaluate(
    model: SequenceModel,
    sequences: Sequences,
    *,
    samples: int = 50,
    batch_size: int = 32,
    seed: int = 0,
    world: World | None = None,
    truth: np.ndarray | None = None,
    progress: Progress | None = None,
) -> Metrics:
    """NLL by importance sampling with `samples` samples, and its terms apart.

    Processes take whole batches in turn, and the noise of a batch depends on the seed and the batch alone, so the
    result does not depend on how many processes there are. `truth` is -log p(x | T) of each sequence, in nats.
    `progress` is told how many batches are done, of all.
    """
    if truth is not None and truth.shape != (len(sequences),):
        raise ValueError(f"the truth has shape {truth.shape}, but there are {len(sequences)} sequences")
    rows = nats_of(
        model,
        sequences,
        samples=samples,
        batch_size=batch_size,
        seed=seed,
        world=world,
        progress=progress,
    )
    return summarize(model.spec, rows, sequences.lengths, truth, sequences.labels)


def nats_of(
    model: SequenceModel,
    sequences: Sequences,
    *,
    samples: int = 50,
    batch_size: int = 32,
    seed: int = 0,
    world: World | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Of each sequence, over all processes: what `evaluate` adds up."""
    if len(sequences) == 0:
        raise ValueError("no sequences to evaluate")
    world = world or World(device=next(model.parameters()).device)
    ladder = [1] if model.exact else _ladder(samples)
    batches = Batches(sequences, batch_size, shuffle=False)
    rows = Rows.zeros(len(sequences), ladder)
    with evaluating(model):
        for number, batch in enumerate(islice(batches.epoch(0), world.rank, None, world.size)):
            which = number * world.size + world.rank
            with seeded(seed, Stream.EVALUATION, which):
                rows.put(batch.index, _rows(model, batch.to(world.device), ladder))
            if progress:
                progress(which + 1, len(batches))
    return rows.over(world)


def _rows(model: SequenceModel, batch: Batch, ladder: list[int]) -> Rows:
    reconstruction = kl = length = effective = torch.zeros(())
    nll, samples = {}, ladder[-1]
    for terms, weights in model.draws(batch, ladder, chunk_of(batch)):
        part = terms.kl.shape[1]
        reconstruction = reconstruction + terms.reconstruction.double() * (part / samples)
        kl = kl + terms.total_kl.double() * (part / samples)
        length, effective = -terms.log_length.double(), weights.effective_samples()
        nll[weights.samples] = weights.nll()
    return Rows(reconstruction, kl, length, effective, {k: nll[k] for k in ladder})


def chunk_of(batch: Batch) -> int:
    """Samples at once, so that about `CHUNK` rows are computed."""
    return max(1, CHUNK // batch.x.shape[:2].numel())


def _ladder(samples: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 ... up to K."""
    if samples < 1:
        raise ValueError(f"the number of samples must be at least 1, not {samples}")
    marks = (base * 10**power for power in range(len(str(samples))) for base in (1, 2, 5))
    return sorted({mark for mark in marks if mark < samples} | {samples})


def summarize(
    spec: DataSpec,
    rows: Rows,
    lengths: np.ndarray,
    truth: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> Metrics:
    """Rows of nats, one for each sequence, to results in the unit of the data."""
    count = lengths + 1
    unit = NATS_PER_UNIT[spec.unit]
    reconstruction, kl, length = rows.reconstruction.numpy(), rows.kl.numpy(), rows.length.numpy()
    given_length = {k: nats.numpy() for k, nats in rows.nll.items()}
    samples = max(given_length)

    def per_step(values: np.ndarray) -> float:
        return float(values.sum() / count.sum() / unit)

    nll = given_length[samples] + length
    known = None
    if truth is not None:
        gap = given_length[samples] - truth
        known = Truth(per_step(truth + length), per_step(gap), error_of(gap, count) / unit)
    groups = None
    if spec.labels and labels is not None:
        groups = {
            name: Group(
                int(mine.sum()),
                float(nll[mine].sum() / count[mine].sum() / unit),
                error_of(nll[mine], count[mine]) / unit,
            )
            for number, name in enumerate(spec.labels)
            if (mine := labels == number).any()
        }
    return Metrics(
        unit=spec.unit,
        step_name=spec.step_name,
        convention=f"{spec.unit} per {spec.step_name}, -Σ[log p(x|T) + log p(T)] / Σ(T + 1)",
        sequences=len(lengths),
        steps=int(count.sum()),
        samples=samples,
        nll=per_step(nll),
        nll_error=error_of(nll, count) / unit,
        negative_elbo=per_step(reconstruction + kl + length),
        reconstruction=per_step(reconstruction),
        kl=per_step(kl),
        length=per_step(length),
        nll_at={k: per_step(nats + length) for k, nats in given_length.items()},
        effective_samples=float(rows.effective_samples.numpy().mean()),
        truth=known,
        by_label=groups,
    )


def error_of(nats: np.ndarray, count: np.ndarray) -> float:
    """Standard error of Σ nats / Σ count over sequences."""
    n = len(nats)
    if n < 2:
        return math.nan
    if not np.isfinite(nats).all():
        return math.nan
    residual = nats - nats.sum() / count.sum() * count
    return float(np.sqrt(n / (n - 1) * np.square(residual).sum()) / count.sum())


def in_unit(nats: float, spec: DataSpec) -> float:
    """Nats as the unit of the data."""
    return nats / NATS_PER_UNIT[spec.unit]


def table(metrics: Metrics, paper: Mapping[str, float | None] | None = None) -> list[tuple[str, str]]:
    """Names and values to print, the paper's beside them."""
    error = f" ± {1.96 * metrics.nll_error:.4f} (95 %, over {metrics.sequences} sequences)"
    ours = {
        "NLL": f"{metrics.nll:.4f}" + (error if metrics.sequences > 1 else " (of one sequence)"),
        "-ELBO": f"{metrics.negative_elbo:.4f}",
        "reconstruction": f"{metrics.reconstruction:.4f}",
        "KL": f"{metrics.kl:.4f}",
        "length, -log p(T)": f"{metrics.length:.4f}",
    }
    if metrics.samples == 1 and metrics.kl == 0:  # exact: there is no bound and no KL
        ours = {name: ours[name] for name in ("NLL", "length, -log p(T)")}
    if metrics.samples > 1:
        ours["NLL at K"] = ", ".join(f"{k}: {value:.4f}" for k, value in metrics.nll_at.items())
        ours["effective samples"] = f"{metrics.effective_samples:.2f} of {metrics.samples}"
    if metrics.truth:
        ours["truth"] = f"{metrics.truth.nll:.4f}"
        error = f" ± {1.96 * metrics.truth.gap_error:.4f}" if metrics.sequences > 1 else ""
        ours["NLL - truth"] = f"{metrics.truth.gap:+.4f}{error}"
    for name, group in (metrics.by_label or {}).items():
        error = f" ± {1.96 * group.nll_error:.4f}" if group.sequences > 1 else ""
        ours[f"NLL, {name}"] = f"{group.nll:.4f}{error} ({group.sequences} sequences)"
    return [
        (name, value + (f"   paper: {paper[name]:.2f}" if paper and paper.get(name) is not None else ""))
        for name, value in ours.items()
    ]
