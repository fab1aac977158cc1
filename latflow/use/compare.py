"""Runs held against each other: differences sequence by sequence, far surer than those of two intervals."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latflow.data.base import Corpus
from latflow.errors import LatflowError
from latflow.progress import Progress
from latflow.training.distributed import World
from latflow.training.evaluate import NATS_PER_UNIT, Metrics, error_of, nats_of, summarize
from latflow.training.run import Run


@dataclass(frozen=True)
class Compared:
    """A run among others."""

    name: str
    run: Run
    metrics: Metrics
    parameters: int
    minutes: float | None
    """Of training and validation; None where a model came without its training."""
    difference: float | None = None
    """Its NLL minus that of the first run; None for the first."""
    difference_error: float | None = None
    """The standard error of it over sequences, each under both."""


def compare(
    folders: Sequence[str | Path],
    *,
    split: str = "test",
    samples: int = 50,
    seed: int = 0,
    data_dir: str | None = None,
    world: World | None = None,
    progress: Callable[[str], Progress | None] = lambda name: None,
) -> list[Compared]:
    """Each run on the same split, with K importance samples where its likelihood is not exact.

    `progress` is asked for one for each run by its name. Runs of other data are a LatflowError.
    """
    if len(folders) < 2:
        raise LatflowError(f"{len(folders)} run to compare; give two or more")
    runs = {name: Run.open(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    corpora = {name: run.corpus(data_dir) for name, run in runs.items()}
    _check_same(corpora, split)
    world = world or World()
    first, found = None, []
    for name, run in runs.items():
        model, corpus = run.model().to(world.device), corpora[name]
        sequences = corpus.splits[split]
        rows = nats_of(model, sequences, samples=samples, seed=seed, world=world, progress=progress(name))
        truth = None if corpus.truth is None else corpus.truth[split]
        metrics = summarize(model.spec, rows, sequences.lengths, truth, sequences.labels)
        total, unit = rows.total.numpy(), NATS_PER_UNIT[model.spec.unit]
        first = total if first is None else first
        apart = {}
        if found:
            apart["difference"] = metrics.nll - found[0].metrics.nll
            apart["difference_error"] = error_of(total - first, sequences.lengths + 1) / unit
        epochs = [] if run.alone else [line for line in run.metrics() if line["kind"] == "epoch"]
        minutes = epochs[-1]["seconds"] / 60 if epochs else None
        size = sum(p.numel() for p in model.parameters())
        found.append(Compared(name, run, metrics, size, minutes, **apart))
    return found


def _names(folders: Sequence[str | Path]) -> list[str]:
    """The last part of each path, or the whole where two have the same."""
    if len(set(map(str, folders))) < len(folders):
        raise LatflowError("a run is named twice; a run differs from itself in nothing")
    last = [Path(folder).name or str(folder) for folder in folders]
    return [
        name if last.count(name) == 1 else str(folder) for name, folder in zip(last, folders, strict=True)
    ]


def _check_same(corpora: Mapping[str, Corpus], split: str) -> None:
    (name, corpus), *others = corpora.items()
    spec, content = corpus.spec, corpus.splits[split].sha256()
    for other, theirs in others:
        same = theirs.spec.kind == spec.kind and theirs.spec.symbols == spec.symbols
        if not same or theirs.splits[split].sha256() != content:
            raise LatflowError(
                f"{name} and {other} were trained on other data ({corpus.name}, {theirs.name}), or on other splits of "
                f"it: their {split} sequences differ, so their numbers cannot be compared"
            )


# As a table.

HEADER = ("run", "NLL", "± 95 %", "to the first", "± 95 %", "parameters", "minutes", "effective samples")


def cells(found: Sequence[Compared]) -> list[list[str]]:
    """A row for each run."""
    rows = []
    for one in found:
        m = one.metrics
        apart = ("", "")
        if one.difference is not None and one.difference_error is not None:
            apart = (f"{one.difference:+.4f}", f"{1.96 * one.difference_error:.4f}")
        exact = m.samples == 1
        rows.append(
            [
                one.name,
                f"{m.nll:.4f}",
                f"{1.96 * m.nll_error:.4f}",
                *apart,
                f"{one.parameters:,}",
                "" if one.minutes is None else f"{one.minutes:.1f}",
                "exact" if exact else f"{m.effective_samples:.1f} of {m.samples}",
            ]
        )
    return rows


def as_markdown(found: Sequence[Compared]) -> str:
    lines = [f"| {' | '.join(HEADER)} |", "|---|" + "--:|" * (len(HEADER) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in cells(found)]
    return "\n".join([*lines, "", _caption(found), ""])


def as_latex(found: Sequence[Compared]) -> str:
    def line(row: Sequence[str]) -> str:
        return " & ".join(_escaped(text) for text in row) + r" \\"

    return "\n".join(
        [
            f"% {_caption(found)}",
            r"\begin{tabular}{l" + "r" * (len(HEADER) - 1) + "}",
            r"\hline",
            line(HEADER),
            r"\hline",
            *map(line, cells(found)),
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


def as_csv(found: Sequence[Compared]) -> str:
    """Numbers in full, a line for each run."""
    text = io.StringIO()
    records = [record(one) for one in found]
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def record(one: Compared) -> dict[str, Any]:
    """A run as plain values."""
    m = one.metrics
    return {
        "run": one.name,
        "nll": m.nll,
        "nll_error": m.nll_error,
        "difference": one.difference,
        "difference_error": one.difference_error,
        "unit": m.name,
        "sequences": m.sequences,
        "samples": m.samples,
        "effective_samples": m.effective_samples,
        "parameters": one.parameters,
        "minutes": one.minutes,
    }


def _caption(found: Sequence[Compared]) -> str:
    m = found[0].metrics
    return f"NLL in {m.name} with p(T), {m.sequences} sequences; differences sequence by sequence"


def _escaped(text: str) -> str:
    signs = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(signs.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
