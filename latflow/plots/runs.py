"""Several runs in one figure: how they trained, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latflow.training.run import Run
from latflow.use.compare import Comparison


def runs_figure(runs: Mapping[str, Run], found: Comparison) -> Figure:
    """-ELBO of the validation data after each epoch, of all runs; and their NLL with 95 % intervals."""
    figure = Figure(figsize=(10, 1.8 + 0.5 * max(4, len(runs))), layout="constrained")
    left, right = figure.subplots(1, 2)
    lowest, highest = [], []
    for number, (name, run) in enumerate(runs.items()):
        epochs = [line for line in run.metrics() if line["kind"] == "epoch"]
        values = [line["valid"]["negative_elbo"] for line in epochs]
        left.plot([line["epoch"] for line in epochs], values, ".-", color=f"C{number}", label=name)
        if known := sorted(v for v in values if v is not None):
            lowest.append(known[0])
            highest.append(known[len(known) // 2])
    if lowest:
        margin = max(max(highest) - min(lowest), 0.05 * abs(min(lowest)))
        left.set_ylim(min(lowest) - 0.1 * margin, max(highest) + margin)  # the first epochs may be far above
    left.set(title="validation -ELBO (a bound of the NLL)", xlabel="epoch", ylabel=found.unit)
    left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    left.legend(frameon=False, fontsize=8)
    for number, row in enumerate(found.rows):
        right.errorbar(row.nll, -number, xerr=1.96 * row.nll_error, fmt="o", capsize=4, color=f"C{number}")
    right.set_yticks([-number for number in range(len(found.rows))], [row.name for row in found.rows])
    right.set(title=f"{found.split} NLL, 95 %", xlabel=found.unit, ylim=(-len(found.rows) + 0.5, 0.5))
    return figure
