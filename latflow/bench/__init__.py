"""How fast, as ratios measured in one run: training, evaluation and generation against the machine and each other.

Useful FLOPs only are counted (`flops`) and held against the machine's float32 GEMM peak, measured in turn with them.
Every time is the best of several repeats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from latflow.bench.given import particles
from latflow.bench.measure import (
    CODEBOOKS,
    LENGTHS,
    LONG_TEXT,
    MODELS,
    PAPER,
    SMALL,
    Size,
    against_lstm,
    against_same_lstm,
    against_straightforward,
    evaluation,
    gemm_peak,
    max_T_ratio,
    music,
    rounding,
    sampling,
    sampling_growth,
    training,
    training_growth,
)
from latflow.bench.show import show_pairs, show_rows, show_twins
from latflow.data.files import writing
from latflow.fast import compiled
from latflow.fast.memory import keep_freed_memory
from latflow.plots.save import save
from latflow.plots.timing import timing_figure, timing_panels

TRAINED, GROWING, COMPARED = 100, 64, 50
"""Steps of a sequence: in training and evaluation, before they are doubled, and generated the straightforward way."""


def run(
    quick: bool = False, json_file: str | Path | None = None, figure: str | Path | None = None
) -> dict[str, Any]:
    """Measure everything, print the tables, and write the JSON and the timing figure if asked for.

    `quick` measures the stated targets and skips the rest.
    """
    keep_freed_memory()
    peak = gemm_peak()
    report: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "numba": compiled.AVAILABLE,
        "gemm_peak": peak,
    }
    print(f"GEMM peak {peak / 1e9:.0f} GFLOP/s in float32, {torch.get_num_threads()} threads", flush=True)
    sizes = (PAPER,) if quick else (PAPER, SMALL)
    names = tuple(name for name in MODELS if not quick or name != "AF-only")
    both = [(name, size) for size in sizes for name in names]
    report["training"] = show_rows(
        f"Training step, text, T = {TRAINED}", (training(name, size, TRAINED) for name, size in both)
    )
    report["products"] = show_rows(
        "Training step of the LSTM, products of float32 and bfloat16",
        (rounding(size, batch, TRAINED) for size in sizes for batch in (size.batch, 32)),
    )
    report["training growth"] = {name: training_growth(name, SMALL, GROWING) for name in names}
    show_pairs("Training, twice the length (at most 2.2)", report["training growth"])
    if not quick:
        report["evaluation"] = show_rows(
            "Importance-sampled NLL, K = 50", (evaluation(name, size, TRAINED) for name, size in both)
        )
    report["straightforward"] = show_rows(
        "AF/AF generation against the straightforward way",
        (
            against_straightforward(PAPER, batch, COMPARED, COMPARED // 10 if quick else COMPARED)
            for batch in (1, 64)
        ),
    )
    report["sampling"] = show_rows("Generation", _sampling(sizes, quick))
    report["sampling growth"] = {name: sampling_growth(name, PAPER, LENGTHS[-2]) for name in names}
    show_pairs("Generation, twice the length (at most 2.2)", report["sampling growth"])
    report["IAF/SCF against LSTM"] = show_rows(
        "Times faster than the LSTM, batch 1", against_lstm(report["sampling"])
    )
    report["codebook against LSTM"] = show_rows(
        "AF/AF with a codebook against the same LSTM (at most 1.5)",
        (row for codebook in CODEBOOKS for row in against_same_lstm(codebook, LENGTHS[2])),
    )
    report["particles"] = show_rows(
        "Given what is known: steps of particles a second",
        particles(CODEBOOKS, None if quick else SMALL, LENGTHS[1]),
    )
    report["max_T"] = max_T_ratio(PAPER)
    show_pairs("MuseData's max_T against JSB's (at most 1.1)", report["max_T"])
    report["twins"] = show_twins()
    if json_file is not None:
        with writing(json_file) as new:
            new.write_text(json.dumps(report, indent=1) + "\n")
    if figure is not None:
        save(timing_figure(timing_panels(report["sampling"])), figure)
    return report


def _sampling(sizes: tuple[Size, ...], quick: bool) -> Iterator[dict[str, Any]]:
    """Text with every model, music with the two that the paper's figure compares; in batches, text alone."""
    for size in sizes:
        yield from sampling(LONG_TEXT, size, LENGTHS, 1, ("AF/AF", "IAF/SCF", "LSTM") if quick else MODELS)
        yield from sampling(music(512), size, LENGTHS, 1, ("IAF/SCF", "LSTM"))
        if not quick:
            yield from sampling(LONG_TEXT, size, LENGTHS, 64)
