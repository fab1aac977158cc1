"""Several runs on the same data, side by side: which is better, and whether that is more than chance.

All runs score the same sequences, so two are compared sequence by sequence: the standard error of a difference,

    se(D) = sqrt( n / (n - 1) Σ_i (d_i - D L_i)² ) / Σ_i L_i,   D = Σ d_i / Σ L_i,   d_i = N_i - N'_i,   L_i = T_i + 1,

is that of a ratio, and mostly far below those of the two NLLs, which share what makes a sequence hard.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latflow.errors import LatflowError
from latflow.progress import Progress
from latflow.training.distributed import World
from latflow.training.evaluate import NATS_PER_UNIT, evaluate_rows, ratio_error
from latflow.training.run import Run


@dataclass(frozen=True)
class Compared:
    """One run, in the unit of the data per step."""

    name: str
    nll: float
    nll_error: float
    """Standard error over sequences."""
    difference: float
    """To the run with the lowest NLL: 0 for that one."""
    difference_error: float
    """Its standard error over sequences, paired."""
    parameters: int
    epochs: int | None
    minutes: float | None
    """Of training; None where the run does not know."""


@dataclass(frozen=True)
class Comparison:
    """Runs on a split, in the order given."""

    unit: str
    split: str
    sequences: int
    samples: int
    rows: Sequence[Compared]


def compare(
    runs: Sequence[Run],
    *,
    split: str = "test",
    samples: int = 50,
    seed: int = 0,
    data_dir: str | None = None,
    world: World | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Comparison:
    """Every run's NLL on the same split, with paired differences to the best; `progress` gives one for each name."""
    check_same_data(runs, split)
    names = _names(runs)
    nats, made = [], []
    world, lengths = world or World(), None
    for name, run in zip(names, runs, strict=True):
        model = run.model().to(world.device)
        sequences = run.corpus(data_dir).splits[split]
        lengths = sequences.lengths
        rows = evaluate_rows(
            model,
            sequences,
            samples=samples,
            seed=seed,
            world=world,
            progress=None if progress is None else progress(name),
        )
        nats.append((rows.nll[max(rows.nll)] + rows.length).numpy())
        made.append(sum(p.numel() for p in model.parameters()))
    assert lengths is not None
    count, unit = lengths + 1, NATS_PER_UNIT[runs[0].spec.unit]
    best = min(nats, key=lambda own: own.sum())
    found = []
    for name, run, own, parameters in zip(names, runs, nats, made, strict=True):
        epochs = [line for line in run.metrics() if line["kind"] == "epoch"]
        gap = own - best
        found.append(
            Compared(
                name,
                float(own.sum() / count.sum() / unit),
                ratio_error(own, count) / unit,
                float(gap.sum() / count.sum() / unit),
                ratio_error(gap, count) / unit,
                parameters,
                len(epochs) or None,
                epochs[-1]["seconds"] / 60 if epochs else None,
            )
        )
    spec = runs[0].spec
    return Comparison(f"{spec.unit} per {spec.step_name}", split, len(lengths), samples, found)


def check_same_data(runs: Sequence[Run], split: str) -> None:
    """That all runs know the same symbols and lengths and the same sequences of the split; else why they do not."""
    if len(runs) < 2:
        raise LatflowError("compare takes two runs or more")
    first = runs[0]
    for other in runs[1:]:
        what = ""
        if other.spec.kind != first.spec.kind:
            what = f"one is on {first.spec.kind}, the other on {other.spec.kind}"
        elif other.spec.symbols != first.spec.symbols:
            what = f"one has {first.spec.size} symbols, the other {other.spec.size}, or they are others"
        elif other.spec.length_counts != first.spec.length_counts:
            what = "p(T) was counted on other lengths, so they were trained on other sequences"
        elif other.contents.get(split) != first.contents.get(split):
            what = f"their {split} splits are other sequences, or in another order"
        if what:
            raise LatflowError(
                f"{first.folder} and {other.folder} cannot be compared: {what}; train them with the same data fields "
                f"(data.name of the one is {first.config.data.name!r}, of the other {other.config.data.name!r})"
            )


def _names(runs: Sequence[Run]) -> list[str]:
    """The names of the folders, with those above where two have one name."""
    names = [run.folder.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.folder) for run in runs]


HEADER = ("run", "NLL", "difference", "parameters", "epochs", "minutes")


def shown(comparison: Comparison, kind: str = "text") -> str:
    """As text, markdown, latex or csv. Intervals are of 95 %; CSV has the bare numbers."""
    if kind == "csv":
        return _csv(comparison)
    plus_minus = r" $\pm$ " if kind == "latex" else " ± "
    lowest = min(row.nll for row in comparison.rows)
    table = []
    for row in comparison.rows:
        gap = f"{row.difference:+.4f}{plus_minus}{1.96 * row.difference_error:.4f}"
        cells = [
            row.name,
            f"{row.nll:.4f}{plus_minus}{1.96 * row.nll_error:.4f}",
            "best" if row.nll == lowest else gap,
            f"{row.parameters:,}",
            "-" if row.epochs is None else str(row.epochs),
            "-" if row.minutes is None else f"{row.minutes:.1f}",
        ]
        table.append(cells)
    about = (
        f"{comparison.split}, {comparison.sequences} sequences, {comparison.unit}, K = {comparison.samples}; "
        "95 % intervals, differences to the best paired over sequences"
    )
    if kind == "markdown":
        lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
        lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |" for cells in table]
        return "\n".join([*lines, "", about, ""])
    if kind == "latex":
        body = [" & ".join(map(_latex, cells)) + r" \\" for cells in table]
        head = " & ".join(HEADER) + r" \\"
        rules = [rf"\begin{{tabular}}{{l{'r' * (len(HEADER) - 1)}}}", r"\hline", head, r"\hline"]
        return "\n".join(
            [f"% {about}".replace("95 %", "95 percent"), *rules, *body, r"\hline", r"\end{tabular}", ""]
        )
    widths = [max(len(cells[i]) for cells in [HEADER, *table]) for i in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [HEADER, *table]
    ]
    return "\n".join([about, *lines, ""])


def _csv(comparison: Comparison) -> str:
    stream = io.StringIO()
    out = csv.writer(stream, lineterminator="\n")
    names = list(Compared.__dataclass_fields__)
    out.writerow([*names, "unit", "split"])
    for row in comparison.rows:
        values = [getattr(row, name) for name in names]
        cells = ["" if v is None else f"{v:.6g}" if isinstance(v, float) else v for v in values]
        out.writerow([*cells, comparison.unit, comparison.split])
    return stream.getvalue()


def _latex(text: str) -> str:
    """With the characters that LaTeX takes for its own; the sign of an interval stays."""
    parts = text.split(r"$\pm$")
    for c in "&%#_{}":
        parts = [part.replace(c, "\\" + c) for part in parts]
    return r"$\pm$".join(parts)
