"""Training curves: ELBO, its terms, and the KL weight over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latflow.errors import LatflowError
from latflow.plots.symbols import written
from latflow.reproduce.result import Result, best_index, curve_of
from latflow.training.run import Run

Column = Sequence[float | None]


def read_curve(run: str | Path) -> tuple[Mapping[str, Column], str, str]:
    """Columns, unit and title for `curves_figure`, of a run's folder or of a result file."""
    path = Path(run)
    if path.is_file():
        result = Result.read(path)
        return result.curve, f"{result.metrics['unit']} per {result.metrics['step_name']}", result.preset
    made = Run.open(path)
    if made.alone:
        raise LatflowError(f"{run} is a model alone, without metrics.jsonl; curves are of a run's training")
    return curve_of(made.metrics()), f"{made.spec.unit} per {made.spec.step_name}", made.folder.name


def curves_figure(curve: Mapping[str, Column], unit: str, title: str = "") -> Figure:
    """From the columns of `latflow.reproduce.result.curve_of`; `unit` as in "bits per character"."""
    if not curve.get("epoch"):
        raise LatflowError("no epoch of this run is finished yet, so there is no curve")
    epochs = curve["epoch"]
    marker = "." if len(epochs) < 40 else None
    figure = Figure(figsize=(11, 3.3), layout="constrained")
    elbo, terms, schedule = figure.subplots(1, 3)

    latent = any(curve["valid_kl"])
    valid = curve["valid_negative_elbo"]
    best = best_index(valid)
    for name, colour in (("train", "tab:blue"), ("valid", "tab:orange")):
        elbo.plot(epochs, _gaps(curve[f"{name}_negative_elbo"]), color=colour, marker=marker, label=name)
    elbo.plot(epochs[best], valid[best], "o", color="tab:orange", mfc="none", ms=9, label="best valid")
    elbo.set(title="-ELBO at KL weight 1" if latent else "NLL, exact", ylabel=unit)
    elbo.set_ylim(_limits(curve, "train_negative_elbo", "valid_negative_elbo"))

    parts = [("reconstruction", "tab:green", "reconstruction"), ("kl", "tab:purple", "KL")]
    for name, colour, text in parts if latent else [("reconstruction", "tab:green", "-log p(x | T)")]:
        terms.plot(epochs, _gaps(curve[f"valid_{name}"]), color=colour, marker=marker, label=f"{text}, valid")
        terms.plot(epochs, _gaps(curve[f"train_{name}"]), color=colour, linestyle=":", label=f"{text}, train")
    shown = [f"{part}_{name}" for part in ("train", "valid") for name in ("reconstruction", "kl")]
    title_of_terms = "terms of the ELBO" if latent else "without the length, -log p(T)"
    terms.set(title=title_of_terms, ylabel=unit, ylim=(0, _limits(curve, *shown)[1]))

    rate = schedule
    if latent:
        schedule.plot(epochs, _gaps(curve["kl_weight"]), color="black", marker=marker, label="KL weight")
        schedule.set(ylim=(-0.05, 1.05), ylabel="KL weight")
        rate = schedule.twinx()
    schedule.set_title("schedule")
    rate.plot(epochs, _gaps(curve["lr"]), color="tab:red", linestyle="--", marker=marker)
    rate.set(ylabel="learning rate, end of epoch", ylim=(0, None))
    rate.yaxis.label.set_color("tab:red")
    for axes in (elbo, terms, schedule):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if len(epochs) == 1:
            axes.set_xlim(0, 2)
    elbo.legend(frameon=False, fontsize=8)
    terms.legend(frameon=False, fontsize=8)
    if title:
        figure.suptitle(written(title))
    return figure


def _gaps(values: Column) -> list[float]:
    """NaN where there is no value: a gap in the line."""
    return [float("nan") if value is None else value for value in values]


def _limits(curve: Mapping[str, Column], *names: str) -> tuple[float, float]:
    """A range for columns in which the end of training can be read: without the peaks of a KL weight near 0."""
    weights = curve["kl_weight"]
    late = [i for i, weight in enumerate(weights) if weight is None or weight >= 0.25]
    chosen = late if len(late) > 1 else range(len(weights))
    columns = [[v for i in chosen if (v := curve[name][i]) is not None] for name in names]
    low = min(min(column) for column in columns if column)
    high = max(_top(column) for column in columns if column)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _top(values: list[float]) -> float:
    """The largest value, unless it is far above the median."""
    middle = sorted(values)[len(values) // 2]
    return min(max(values), middle + 6 * max(middle - min(values), 0.02 * abs(middle)))
