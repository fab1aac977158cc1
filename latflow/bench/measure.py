"""What is measured. Every time is the best of several repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from latflow.axes import choose
from latflow.bench.flops import count_flops
from latflow.bench.reference import plain_torch, sample_by_cells, sample_plain, sample_straightforward
from latflow.config import LSTMConfig, ModelConfig, PriorConfig, evolve
from latflow.data.base import Batch, DataSpec
from latflow.flows import Positions
from latflow.flows.recurrent import round_products
from latflow.models import LSTMLanguageModel, SequenceModel, build
from latflow.presets import find

SYMBOLS = tuple(chr(65 + k) for k in range(51))
TEXT = DataSpec("text", SYMBOLS, (0,) + (1,) * 288)
"""The paper's number of characters of PTB (ours has 49), and its longest line."""
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
        prior=PriorConfig(
            hidden=choose("hidden", "af", units=64, layers=2),
            context=choose("context", "lstm", units=128, layers=1),
        ),
        posterior=choose("posterior", "bilstm", layers=1, units=128),
        emission=choose("emission", "bilstm", layers=1, units=128),
        baseline=LSTMConfig(1, 128, 0.0),
    ),
    15,
    4,
)
MODELS = ("AF/AF", "AF/SCF", "IAF/SCF", "AF-only", "LSTM")


def configure(model: str, base: ModelConfig, kind: str = "text") -> ModelConfig:
    """The config of a row of the paper's tables for data of that kind, at the sizes of `base`."""
    if model == "LSTM":
        return replace(base, kind="lstm")
    time_axis, hidden = {
        "AF/AF": ("af", "af"),
        "AF/SCF": ("af", "scf"),
        "IAF/SCF": ("iaf", "scf"),
        "AF-only": ("none", "af"),
    }[model]
    fewer = model == "IAF/SCF" and kind == "text"
    layers = min(base.prior.hidden.layers, 3) if fewer else base.prior.hidden.layers
    alone = {"prior.context": "position"} if time_axis == "none" else {}
    return evolve(
        base, {"prior.time": time_axis, "prior.hidden": hidden, "prior.hidden.layers": layers, **alone}
    )


def fastest(
    ways: Mapping[str, Callable[[], Any]], repeats: int = 3, seconds: float = 30.0
) -> dict[str, float]:
    """The shortest of `repeats` runs of each way after one to warm up, fewer if they take longer than `seconds` in all.

    They run in turn, so that all see the same machine: ratios between them keep their meaning on a busy one.
    """
    begin = time.perf_counter()
    shortest = dict.fromkeys(ways, float("inf"))
    for repeat in range(repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if repeat > 0:
                shortest[name] = min(shortest[name], time.perf_counter() - start)
        if repeat > 0 and time.perf_counter() - begin > seconds:
            break
    return shortest


def best(function: Callable[[], Any], repeats: int = 3, seconds: float = 30.0) -> float:
    """The same for one way."""
    return fastest({"": function}, repeats, seconds)[""]


PRODUCT = 2048
"""The size of the matrix product whose rate is the machine's peak."""


def product() -> Callable[[], Any]:
    """A large matrix product in float32."""
    a, b, c = (torch.randn(PRODUCT, PRODUCT) for _ in range(3))
    return lambda: torch.mm(a, b, out=c)


def gemm_peak(repeats: int = 10) -> float:
    """Float32 operations per second of a large matrix product."""
    return 2 * PRODUCT**3 / best(product(), repeats)


def random_batch(spec: DataSpec, size: int, length: int) -> Batch:
    """Sequences of one length."""
    if spec.emission == "categorical":
        x = torch.randint(0, spec.size, (size, length))
    else:
        x = (torch.rand(size, length, spec.size) < 0.05).float()
    return Batch(x, torch.full((size,), length), torch.arange(size), torch.ones(size))


def training_step(
    model: SequenceModel, batch: Batch, samples: int, optimiser: bool = True
) -> Callable[[], None]:
    """Forward, backward and, with `optimiser`, clipping and Adam."""
    model.train()
    parameters = list(model.parameters())
    adam = torch.optim.Adam(parameters, fused=True) if optimiser else None

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        model.terms(batch, samples).elbo().mean().neg().backward()
        if adam is not None:
            torch.nn.utils.clip_grad_norm_(parameters, 0.25)
            adam.step()

    return step


def training(model_name: str, size: Size, length: int) -> dict[str, Any]:
    """A training step on text: seconds, operations per second, share of the peak."""
    model = build(configure(model_name, size.config), TEXT)
    samples = 1 if model.exact else size.samples
    step = training_step(model, random_batch(TEXT, size.batch, length), samples)
    return _against_peak(model_name, size, length, step, 3 * count_flops(model, size.batch * length, samples))


def rounding(size: Size, batch: int, length: int) -> dict[str, Any]:
    """A training step of the LSTM with products of float32 and of bfloat16 (`train.products`)."""
    steps = {}
    for products in ("float32", "bfloat16"):
        model = build(configure("LSTM", size.config), TEXT)
        round_products(model, products == "bfloat16")
        steps[products] = training_step(model, random_batch(TEXT, batch, length), 1)
    seconds = fastest(steps, 6, 40)
    about = {"size": size.name, "batch": batch, "T": length}
    return {**about, **seconds, "ratio": seconds["bfloat16"] / seconds["float32"]}


def evaluation(model_name: str, size: Size, length: int) -> dict[str, Any]:
    """The importance-sampled NLL of a batch with K = 50, ten samples at a time."""
    model = build(configure(model_name, size.config), TEXT).eval()
    samples = 1 if model.exact else 50
    batch = random_batch(TEXT, size.batch, length)
    work = partial(model.nll, batch, 50, 10)
    return _against_peak(model_name, size, length, work, count_flops(model, size.batch * length, samples))


def _against_peak(
    model: str, size: Size, length: int, work: Callable[[], Any], flops: float
) -> dict[str, Any]:
    """`work` and a large matrix product in turn: what share of the product's rate it reaches."""
    seconds = fastest({"work": work, "product": product()}, 4, 60)
    rate, peak = flops / seconds["work"], 2 * PRODUCT**3 / seconds["product"]
    about = {"model": model, "size": size.name, "T": length, "seconds": seconds["work"]}
    return {**about, "flops": rate, "peak": peak, "share": rate / peak}


def sampling(
    spec: DataSpec, size: Size, lengths: tuple[int, ...], batch: int, names: tuple[str, ...] = MODELS
) -> Iterator[dict[str, Any]]:
    """Seconds to generate, at their best and in plain torch, from the baseline also cell by cell."""
    models = {name: build(configure(name, size.config, spec.kind), spec).eval() for name in names}
    for length in lengths:
        given = torch.full((batch,), length)
        ways = {name: partial(model.sample, given) for name, model in models.items()}
        for name in names:
            if name in ("IAF/SCF", "LSTM"):
                ways[f"{name}, plain"] = partial(sample_plain, models[name], given)
            if isinstance(model := models[name], LSTMLanguageModel):
                ways[f"{name}, cells"] = partial(sample_by_cells, model, given)
        seconds = fastest(ways, 7, 20)
        for name in names:
            about = {"model": name, "data": spec.kind, "size": size.name, "batch": batch, "T": length}
            plain, cells = (seconds.get(f"{name}, {way}") for way in ("plain", "cells"))
            yield {**about, "seconds": seconds[name], "plain torch": plain, "cells": cells}


def training_growth(name: str, size: Size, length: int) -> float:
    """How many times longer a training step takes with sequences twice as long."""
    model = build(configure(name, size.config), TEXT)
    samples = 1 if model.exact else size.samples
    return _growth(lambda T: training_step(model, random_batch(TEXT, size.batch, T), samples), length)


def sampling_growth(name: str, size: Size, length: int) -> float:
    """How many times longer it takes to generate one sequence twice as long."""
    model = build(configure(name, size.config), LONG_TEXT).eval()
    return _growth(lambda T: partial(model.sample, torch.full((1,), T)), length)


def _growth(way: Callable[[int], Callable[[], Any]], length: int) -> float:
    seconds = fastest({"once": way(length), "twice": way(2 * length)}, 7, 20)
    return seconds["twice"] / seconds["once"]


def against_straightforward(size: Size, batch: int, length: int, straight_length: int) -> dict[str, Any]:
    """AF/AF, all of it, against the straightforward way (timed at `straight_length`: it is linear in T)."""
    model = build(configure("AF/AF", size.config), TEXT).eval()
    whole, part = torch.full((batch,), length), torch.full((batch,), straight_length)
    quick = partial(model.sample, whole)
    slow = partial(sample_straightforward, model, part)
    seconds = fastest({"seconds": quick, "straightforward": slow}, 5, 60)
    with plain_torch():
        seconds["plain torch"] = best(partial(model.sample, part), 1)
    for name in ("straightforward", "plain torch"):
        seconds[name] *= length / straight_length
    ratio = seconds["straightforward"] / seconds["seconds"]
    return {"batch": batch, "T": length, **seconds, "ratio": ratio}


@dataclass(frozen=True)
class Codebook:
    """Presets `{corpus}-af-af-codebook` and `{corpus}-lstm-codebook`, and batches as they train on."""

    corpus: str
    spec: DataSpec
    batch: int
    length: int


CODEBOOKS = (Codebook("ptb", TEXT, 16, 117), Codebook("jsb", music(180), 8, 60))


def against_same_lstm(codebook: Codebook, length: int) -> Iterator[dict[str, Any]]:
    """AF/AF with a codebook against the LSTM language model whose LSTM is the same: a training step, then generation of
    `length` steps, one sequence and 64."""
    models = {
        name: build(find(f"{codebook.corpus}-{row}-codebook").config.model, codebook.spec)
        for name, row in (("AF/AF", "af-af"), ("LSTM", "lstm"))
    }
    batch = random_batch(codebook.spec, codebook.batch, codebook.length)
    steps = {name: training_step(model, batch, 1) for name, model in models.items()}
    yield _same_lstm(codebook, "training", codebook.batch, codebook.length, steps)
    for model in models.values():
        model.eval()
    for size in (1, 64):
        given = torch.full((size,), length)
        ways = {name: partial(model.sample, given) for name, model in models.items()}
        yield _same_lstm(codebook, "generation", size, length, ways)


def _same_lstm(
    codebook: Codebook, what: str, batch: int, length: int, ways: Mapping[str, Callable[[], Any]]
) -> dict[str, Any]:
    seconds = fastest(ways, 10, 40)
    about = {"corpus": codebook.corpus, "what": what, "batch": batch, "T": length}
    return {**about, **seconds, "ratio": seconds["AF/AF"] / seconds["LSTM"]}


def max_T_ratio(size: Size) -> dict[str, float]:
    """MuseData's max_T (4653 steps) against JSB's (180): the same batch, forward and backward alone, and
    with a factored position embedding the whole step."""
    result = {}
    for name, rank, optimiser in (("forward and backward", None, False), ("whole step, rank 32", 32, True)):
        steps = {}
        for max_T in (180, 4653):
            model = build(replace(configure("AF/AF", size.config, "music"), position_rank=rank), music(max_T))
            for module in model.modules():
                if isinstance(module, Positions) and not optimiser:
                    module.requires_grad_(
                        False
                    )  # else a gradient as large as the tables is cleared in every step
            steps[str(max_T)] = training_step(model, random_batch(music(max_T), 5, 60), 1, optimiser)
        seconds = fastest(steps, 16, 60)
        result[name] = seconds["4653"] / seconds["180"]
    return result


def against_lstm(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """From the rows of `sampling`: how many times faster IAF/SCF is than the LSTM, batch 1."""
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
                    "against cells": other["cells"] / row["plain torch"],
                    "at their best": other["seconds"] / row["seconds"],
                }
            )
    return result
