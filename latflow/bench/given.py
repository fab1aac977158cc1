"""How fast particles go: steps of particles a second of sampling given what is known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from latflow.bench import measure
from latflow.bench.measure import TEXT, Codebook, Size, configure
from latflow.errors import LatflowWarning
from latflow.models import SequenceModel, build
from latflow.presets import find
from latflow.use import Evidence, given

PARTICLES = 500


def particles(codebooks: tuple[Codebook, ...], whole: Size | None, length: int) -> Iterator[dict[str, Any]]:
    """`length` steps, the last known: AF/AF with a codebook and the LSTM of the same size, of text every second symbol
    known, of music the upper half of the notes; and text by AF/AF of the `whole` size, whose emission sees all of z."""
    for codebook in codebooks:
        models = {
            name: build(find(f"{codebook.corpus}-{row}-codebook").config.model, codebook.spec).eval()
            for name, row in (("AF/AF", "af-af"), ("LSTM", "lstm"))
        }
        yield from _rates(f"{codebook.corpus}, codebook", models, length)
    if whole is not None:
        yield from _rates(whole.name, {"AF/AF": build(configure("AF/AF", whole.config), TEXT).eval()}, length)


def _rates(size: str, models: dict[str, SequenceModel], length: int) -> Iterator[dict[str, Any]]:
    spec = next(iter(models.values())).spec
    x = np.zeros((length, 88), np.uint8) if spec.kind == "music" else np.arange(length) % spec.size
    known = np.zeros(x.shape, bool)
    if spec.kind == "music":
        known[:, 44:] = True
    else:
        known[1 - length % 2 :: 2] = True  # the last among them
    evidence = Evidence(x, known)
    ways = {
        name: partial(given, model, evidence, 1, particles=PARTICLES, seed=1)
        for name, model in models.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LatflowWarning)  # what untrained models find unlikely
        seconds = measure.fastest(ways, 2, 10)
    for name in models:
        about = {"model": name, "data": spec.kind, "size": size, "particles": PARTICLES, "T": length}
        yield {**about, "seconds": seconds[name], "steps/s": PARTICLES * length / seconds[name]}
