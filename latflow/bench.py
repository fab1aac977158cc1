"""How fast, as ratios measured in one run: training, evaluation and generation against the machine and each other.

Useful FLOPs only are counted (`count_flops`) and held against the machine's own float32 GEMM peak, measured first.
Every time is the best of several repeats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import linear, one_hot

from latflow.config import LSTMConfig, ModelConfig, PriorConfig
from latflow.data.base import Batch, DataSpec
from latflow.data.files import replacing
from latflow.flows import LSTM, MADE, Autoregressive, LSTMContext, Packing, Positions, fast
from latflow.memory import keep_freed_memory
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel, build
from latflow.plots.save import save
from latflow.plots.timing import timing_figure, timing_panels

SYMBOLS = tuple(chr(65 + k) for k in range(51))
TEXT = DataSpec("text", SYMBOLS, (0,) + (1,) * 288)
"""PTB's characters and longest line."""
LONG_TEXT = DataSpec("text", SYMBOLS, (0,) + (1,) * 512)
LENGTHS = (16, 32, 64, 128, 256, 512)


def music(max_T: int) -> DataSpec:
    """Music whose longest piece has max_T steps."""
    return DataSpec("music", (), (0,) + (1,) * max_T)


@dataclass(frozen=True)
class Size:
    """Sizes of a model and of its training batch."""

    name: str
    config: ModelConfig
    batch: int
    samples: int


PAPER = Size("paper", ModelConfig(), 15, 10)
SMALL = Size(
    "small",
    ModelConfig(
        latent_size=16,
        embedding_size=128,
        prior=PriorConfig(lstm_units=128, network_units=64, layers=2, lstm_layers=1),
        posterior=LSTMConfig(1, 128),
        emission=LSTMConfig(1, 128),
        baseline=LSTMConfig(1, 128),
    ),
    15,
    4,
)
MODELS = ("AF/AF", "AF/SCF", "IAF/SCF", "AF-only", "LSTM")


def configure(model: str, base: ModelConfig) -> ModelConfig:
    """The config of a row of the paper's tables, at the sizes of `base`."""
    if model == "LSTM":
        return replace(base, kind="lstm")
    time_axis, hidden = {
        "AF/AF": ("af", "af"),
        "AF/SCF": ("af", "scf"),
        "IAF/SCF": ("iaf", "scf"),
        "AF-only": ("none", "af"),
    }[model]
    layers = min(base.prior.layers, 3) if model == "IAF/SCF" else base.prior.layers
    return replace(base, prior=replace(base.prior, time=time_axis, hidden=hidden, layers=layers))


def count_flops(model: SequenceModel, steps: int, samples: int = 1) -> float:
    """Useful floating-point operations of log-probabilities of `steps` steps of x with `samples` samples each.

    A matrix of m × k applied to a row is 2mk operations, and only matrices count: 2 · rows · Σ mk. Rows are `steps` for
    the posterior and the baseline, `steps · samples` for prior and emission. Look-ups (symbols, positions) are free
    and of a masked matrix only the entries that may be non-zero count. A training step is three times that: the
    backward pass multiplies once for the gradient of the inputs and once for that of the weights.
    """

    def lstm(module: LSTM) -> int:
        return sum(weight.numel() for weight in (*module.input_weight, *module.recurrent_weight))

    def context(module: torch.nn.Module) -> int:
        return lstm(module.lstm) if isinstance(module, LSTMContext) else 0

    def network(module: torch.nn.Module) -> int:
        weights = module.matrices  # type: ignore[attr-defined]
        if isinstance(module, MADE):
            return sum(int(module.get_buffer(f"mask{k}").sum()) for k in range(len(weights)))  # type: ignore[arg-type]
        return sum(weight.numel() for weight in weights)  # type: ignore[union-attr]

    if isinstance(model, LSTMLanguageModel):
        alphabet = model.alphabet
        per_step = context(model.context) + model.head.weight.numel() + alphabet.embedding.numel()
        per_step += alphabet.embedding.numel() if model.spec.emission == "bernoulli" else 0
        return 2.0 * steps * per_step
    assert isinstance(model, LatentSequenceModel)
    hidden, emission = model.prior.hidden, model.emission
    once = lstm(model.posterior.lstm) + model.posterior.head.weight.numel()
    once += emission.alphabet.embedding.numel() if model.spec.emission == "bernoulli" else 0
    each = context(model.prior.context) + sum(network(module) for module in hidden.networks)
    each += 0 if hidden.context_weight is None else hidden.context_weight.numel()
    each += lstm(emission.lstm) + emission.head.weight.numel() + emission.alphabet.embedding.numel()
    return 2.0 * steps * (once + samples * each)


def best(function: Callable[[], Any], repeats: int = 3, seconds: float = 30.0) -> float:
    """The shortest of `repeats` runs after one to warm up, fewer if they take longer than `seconds` in all."""
    begin = time.perf_counter()
    function()
    shortest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
        if time.perf_counter() - begin > seconds:
            break
    return shortest


def gemm_peak(size: int = 2048, repeats: int = 10) -> float:
    """Float32 operations per second of a large matrix product."""
    a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    return 2 * size**3 / best(lambda: torch.mm(a, b, out=c), repeats)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Without the compiled kernels."""
    before, fast.AVAILABLE = fast.AVAILABLE, False
    try:
        yield
    finally:
        fast.AVAILABLE = before


@contextmanager
def one_hot_positions() -> Iterator[None]:
    """Position features as the paper writes them: a product with one-hots of width max_T, no look-up."""

    def multiply(self: Positions, step: Tensor, remaining: Tensor) -> Tensor:
        pairs = ((step, self.start), (remaining, self.end))
        start, end = (one_hot(index, self.max_T).to(table) @ table for index, table in pairs)
        return start + end if self.mix is None else linear(torch.cat([start, end], -1), self.mix)

    before = Positions.forward
    Positions.forward = multiply  # type: ignore[method-assign]
    try:
        yield
    finally:
        Positions.forward = before  # type: ignore[method-assign]


def random_batch(spec: DataSpec, size: int, length: int) -> Batch:
    """Sequences of one length."""
    if spec.emission == "categorical":
        x = torch.randint(0, spec.size, (size, length))
    else:
        x = (torch.rand(size, length, spec.size) < 0.05).float()
    return Batch(x, torch.full((size,), length), torch.arange(size), torch.ones(size), size)


def training_step(
    model: SequenceModel, batch: Batch, samples: int, optimiser: bool = True
) -> Callable[[], None]:
    """Forward, backward and, with `optimiser`, clipping and Adam."""
    model.train()
    parameters = list(model.parameters())
    adam = torch.optim.Adam(parameters) if optimiser else None

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        model.terms(batch, samples).elbo().mean().neg().backward()
        if adam is not None:
            for parameter in parameters:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
            torch.nn.utils.clip_grad_norm_(parameters, 0.25)
            adam.step()

    return step


def training(model_name: str, size: Size, length: int, peak: float) -> dict[str, Any]:
    """A training step on text: seconds, operations per second, share of the peak."""
    model = build(configure(model_name, size.config), TEXT)
    samples = 1 if model.exact else size.samples
    batch = random_batch(TEXT, size.batch, length)
    seconds = best(training_step(model, batch, samples), 2)
    return _against_peak(
        model_name, size, length, seconds, 3 * count_flops(model, size.batch * length, samples), peak
    )


def evaluation(model_name: str, size: Size, length: int, peak: float) -> dict[str, Any]:
    """The importance-sampled NLL of a batch with K = 50, ten samples at a time."""
    model = build(configure(model_name, size.config), TEXT).eval()
    samples = 1 if model.exact else 50
    batch = random_batch(TEXT, size.batch, length)
    seconds = best(lambda: model.nll(batch, 50, 10), 1)
    return _against_peak(
        model_name, size, length, seconds, count_flops(model, size.batch * length, samples), peak
    )


def _against_peak(
    model: str, size: Size, length: int, seconds: float, flops: float, peak: float
) -> dict[str, Any]:
    rate = flops / seconds
    about = {"model": model, "size": size.name, "T": length}
    return {**about, "seconds": seconds, "flops": rate, "share": rate / peak}


@torch.no_grad()
def sample_straightforward(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation from a model that is autoregressive across hidden, the straightforward way: eager, module after
    module, positions as one-hots, a full pass of each network per dimension."""
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.prior.hidden, Autoregressive)
    packing, prior = Packing(lengths), model.prior
    with plain_torch(), one_hot_positions():
        eps = torch.randn(packing.rows, prior.size)
        if prior.time == "af":
            z, _ = prior._serial(model.prior.hidden.forward_plain, eps, packing)
        else:
            z, _ = model.prior.hidden.forward_plain(eps, prior.context.whole(eps, packing))
        return packing.unpack(model.emission.sample(z, packing))


@torch.no_grad()
def sample_plain(model: SequenceModel, lengths: Tensor) -> Tensor:
    """Generation without compiled kernels; the baseline's loop one module after the other."""
    with plain_torch():
        if isinstance(model, LSTMLanguageModel):
            packing = Packing(lengths)
            return packing.unpack(model._sample_plain(packing, 1.0, False, None))
        return model.sample(lengths)


def sampling(
    spec: DataSpec,
    size: Size,
    lengths: tuple[int, ...],
    batches: tuple[int, ...],
    models: tuple[str, ...] = MODELS,
) -> list[dict[str, Any]]:
    """Seconds to generate, at their best and in plain torch (the baseline: the straightforward loop)."""
    rows = []
    for name in models:
        model = build(configure(name, size.config), spec).eval()
        for batch in batches:
            for length in lengths:
                given = torch.full((batch,), length)
                seconds = best(lambda: model.sample(given), 7, 10)  # noqa: B023 (called at once)
                row = {"model": name, "data": spec.kind, "size": size.name, "batch": batch, "T": length}
                row["seconds"] = seconds
                if name in ("IAF/SCF", "LSTM"):
                    row["plain torch"] = best(lambda: sample_plain(model, given), 7, 10)  # noqa: B023
                rows.append(row)
    return rows


def against_straightforward(size: Size, batch: int, length: int, straight_length: int) -> dict[str, Any]:
    """AF/AF, all of it, against the straightforward way (timed at `straight_length`: it is linear in T)."""
    model = build(configure("AF/AF", size.config), TEXT).eval()
    quick = best(lambda: model.sample(torch.full((batch,), length)), 5)
    with plain_torch():
        incremental = (
            best(lambda: model.sample(torch.full((batch,), straight_length)), 1) * length / straight_length
        )
    slow = best(lambda: sample_straightforward(model, torch.full((batch,), straight_length)), 1)
    slow *= length / straight_length
    return {
        "batch": batch,
        "T": length,
        "seconds": quick,
        "plain torch": incremental,
        "straightforward": slow,
        "ratio": slow / quick,
    }


def max_T_ratio(size: Size, repeats: int = 8) -> dict[str, float]:
    """The longest piece of MuseData (5341 steps) against JSB's (200): the same batch, forward and backward alone, and
    with a factored position embedding the whole step."""
    result = {}
    for name, rank, optimiser in (("forward and backward", None, False), ("whole step, rank 32", 32, True)):
        steps = []
        for max_T in (200, 5341):
            model = build(replace(configure("AF/AF", size.config), position_rank=rank), music(max_T))
            for module in model.modules():
                if isinstance(module, Positions):
                    module.sparse = not optimiser
            steps.append(training_step(model, random_batch(music(max_T), 5, 60), 1, optimiser))
        times = [float("inf"), float("inf")]
        for _ in range(repeats):
            for k, step in enumerate(steps):  # in turn, so that both see the same machine
                times[k] = min(times[k], best(step, 1))
        result[name] = times[1] / times[0]
    return result


def wasted_steps(lengths: Tensor) -> float:
    """The share of computed steps that lie behind the end of a sequence, in the packed layout."""
    packing = Packing(lengths)
    return 1 - int(lengths.sum()) / sum(packing.active)


def run(
    quick: bool = False, json_file: str | Path | None = None, figure: str | Path | None = None
) -> dict[str, Any]:
    """Measure everything, print the tables, and write the JSON and the timing figure if asked for.

    `quick` measures the stated targets and skips the rest.
    """
    keep_freed_memory()
    console = Console()
    peak = gemm_peak()
    report: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "numba": fast.AVAILABLE,
        "gemm_peak": peak,
    }
    console.print(f"GEMM peak {peak / 1e9:.0f} GFLOP/s in float32, {torch.get_num_threads()} threads")
    sizes = (PAPER,) if quick else (PAPER, SMALL)
    names = ("AF/AF", "AF/SCF", "IAF/SCF", "LSTM") if quick else MODELS
    report["training"] = [training(name, size, 100, peak) for size in sizes for name in names]
    print_rows(console, "Training step, text, T = 100", report["training"])
    halves = [training(name, SMALL, length, peak) for name in names for length in (64, 128)]
    report["training growth"] = {
        a["model"]: b["seconds"] / a["seconds"] for a, b in zip(halves[::2], halves[1::2], strict=True)
    }
    print_pairs(console, "Training, twice the length (at most 2.2)", report["training growth"])
    if not quick:
        report["evaluation"] = [evaluation(name, size, 100, peak) for size in sizes for name in names]
        print_rows(console, "Importance-sampled NLL, K = 50", report["evaluation"])
    report["straightforward"] = [
        against_straightforward(PAPER, batch, 50, 5 if quick else 50) for batch in (1, 64)
    ]
    print_rows(console, "AF/AF generation against the straightforward way", report["straightforward"])
    report["sampling"] = []
    for size in sizes:
        for spec in (LONG_TEXT, music(512)):
            batches = (1,) if quick or spec.kind == "music" else (1, 64)
            kinds = ("IAF/SCF", "LSTM") if quick or spec.kind == "music" else names
            report["sampling"] += sampling(spec, size, LENGTHS, batches, kinds)
    print_rows(console, "Generation", report["sampling"])
    report["IAF/SCF against LSTM"] = _against_lstm(report["sampling"])
    print_rows(console, "Times faster than the LSTM, batch 1", report["IAF/SCF against LSTM"])
    report["max_T"] = max_T_ratio(PAPER)
    print_pairs(console, "MuseData's max_T against JSB's (at most 1.1)", report["max_T"])
    lengths = torch.randint(1, 289, (64,), generator=torch.Generator().manual_seed(0))
    report["wasted steps"] = wasted_steps(lengths)
    console.print(f"Steps wasted on padding, lengths 1 to 288: {report['wasted steps']:.0%}")
    if json_file is not None:
        with replacing(json_file) as new:
            new.write_text(json.dumps(report, indent=1) + "\n")
    if figure is not None:
        save(timing_figure(timing_panels(report["sampling"])), figure)
    return report


def _against_lstm(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = []
    lstm = {
        (row["data"], row["size"], row["T"]): row
        for row in rows
        if row["model"] == "LSTM" and row["batch"] == 1
    }
    for row in rows:
        if row["model"] == "IAF/SCF" and row["batch"] == 1:
            other = lstm[row["data"], row["size"], row["T"]]
            result.append(
                {
                    **{key: row[key] for key in ("data", "size", "T")},
                    "plain torch": other["plain torch"] / row["plain torch"],
                    "at their best": other["seconds"] / row["seconds"],
                }
            )
    return result


def print_rows(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(_show(key, row.get(key)) for key in columns))
    console.print(table)


def print_pairs(console: Console, title: str, pairs: dict[str, float]) -> None:
    console.print(f"{title}: " + ", ".join(f"{name} {value:.2f}" for name, value in pairs.items()))


def _show(key: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if key == "flops":
        return f"{value / 1e9:.0f} G/s"
    if key == "share":
        return f"{value:.0%}"
    return f"{value:.3g}"
