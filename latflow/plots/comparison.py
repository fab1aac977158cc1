"""The demo's figure: how runs trained, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from latflow.plots.symbols import written
from latflow.training.evaluate import Metrics
from latflow.training.run import Run


def training_curves(axes: Any, run: Run, label: str) -> None:
    """-ELBO of the training batches while the KL weight rises, and of the validation data after each epoch."""
    steps = [
        line for line in run.metrics() if line["kind"] == "step" and line.get("negative_elbo") is not None
    ]
    epochs = _epochs(run)
    (drawn,) = axes.plot(
        [line["updates"] for line in steps], [line["negative_elbo"] for line in steps], alpha=0.5, linewidth=1
    )
    axes.plot(
        [line["updates"] for line in epochs],
        [line["valid"]["negative_elbo"] for line in epochs],
        "o-",
        color=drawn.get_color(),
        label=written(label),
        markersize=3,
    )


def _epochs(run: Run) -> list[dict[str, Any]]:
    return [line for line in run.metrics() if line["kind"] == "epoch"]


def comparison_figure(runs: Mapping[str, Run], results: Mapping[str, Metrics], title: str) -> Figure:
    """Two panels: how the runs trained, and their test NLL with 95 % intervals, the truth beside where it is known."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, run in runs.items():
        if not run.alone:
            training_curves(left, run, name)
    first = next(iter(results.values()))
    low = min(result.nll for result in results.values())
    ends = [line["valid"]["negative_elbo"] for run in runs.values() if not run.alone for line in _epochs(run)]
    top = max([1.15 * max(ends), 1.3 * low] if ends else [1.3 * low])
    exact = [run.config.model.kind == "lstm" for run in runs.values()]
    what = "NLL" if all(exact) else "NLL, of flows -ELBO," if any(exact) else "-ELBO,"
    left.set(
        xlabel="step", ylabel=f"{what} {first.name}", ylim=(0.95 * low, min(top, 2.5 * low)), title=title
    )
    if left.lines:
        left.legend(frameon=False, fontsize=8)
    else:
        left.text(0.5, 0.5, "models without their training", ha="center", transform=left.transAxes)
    for row, (name, result) in enumerate(results.items()):
        row = len(results) - 1 - row  # as the table has them, from the top
        right.errorbar(result.nll, row, xerr=1.96 * result.nll_error, fmt="o", capsize=4)
        label = right.text(result.nll, row + 0.12, f"{written(name)}: {result.nll:.3f}", ha="center")
        label.set_bbox({"color": "white", "pad": 1})  # over the line of the truth
    if first.truth is not None:
        right.axvline(first.truth.nll, linestyle="--", color="black")
        right.text(first.truth.nll, len(results) - 0.6, f" truth {first.truth.nll:.3f}", ha="left")
    right.margins(x=0.25)
    right.set(xlabel=f"test NLL, {first.name}", ylim=(-0.5, len(results) - 0.3), yticks=[])
    return figure
