"""Answers about text: how surprising each symbol is, what may stand there, and how it goes on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latflow.errors import LatflowError
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, SequenceModel
from latflow.models.posterior.codebook import CodebookPosterior
from latflow.page.draws import fresh
from latflow.page.inputs import MOST_SEED, Fields
from latflow.page.jobs import Work
from latflow.page.shelf import Book, Shelf
from latflow.progress import Progress
from latflow.use import Evidence, given
from latflow.use.ahead import Next, next_symbol, surprise

PARTICLES, MOST_PARTICLES = 200, 2000
POINTS = 96
"""Of the grid of a density, along each side."""
PLACES = 24
"""Symbols whose places are shown, the most likely."""


def surprises(shelf: Shelf, fields: Fields) -> Work:
    """-log2 p of each symbol."""
    book, text = _book(shelf, fields), fields.text("text")
    ended = fields.flag("ended", False)
    fields.done()

    def work(tell: Progress) -> dict[str, Any]:
        model = book.model()
        x = model.spec.encode(text)
        bits = surprise(model, x, ended=ended) / math.log(2) if len(x) else np.zeros(0)
        return {
            "bits": [round(float(value), 3) for value in bits],
            "unknown": np.flatnonzero(x == model.spec.unknown_index).tolist(),
        }

    return work


def following(shelf: Shelf, fields: Fields) -> Work:
    """p(x_t | x_<t) of every symbol, and for H = 2 the density p(z_t | z_<t) with their places on it."""
    book, text = _book(shelf, fields), fields.text("text")
    at = fields.whole("at", 0, 10_000)
    ended = fields.flag("ended", False)
    fields.done()

    def work(tell: Progress) -> dict[str, Any]:
        model = book.model()
        x = model.spec.encode(text)
        found = next_symbol(model, x, at, ended=ended)
        order = found.p.argsort(descending=True).tolist()
        answer: dict[str, Any] = {
            "symbols": [model.spec.symbols[i] for i in order],
            "p": [round(float(found.p[i]), 6) for i in order],
            "entropy": float(torch.special.entr(found.p).sum()) / math.log(2),
        }
        tell(1, 2)
        if isinstance(model, LatentSequenceModel) and model.prior.size == 2:
            answer["density"] = _density(model, x, at, found, order)
        return answer

    return work


def draws(shelf: Shelf, fields: Fields) -> Work:
    """Go on from a beginning, fill in the free places of a template, or draw out of nothing."""
    book = _book(shelf, fields)
    how = fields.choice("how", ("continue", "fill"))
    text = fields.text("text")
    mark = fields.text("mark", 1, "?") if how == "fill" else "?"
    length = fields.whole("length", 1, 1000, None) if how == "continue" else None
    n = fields.whole("n", 1, 8, 3)
    temperature, argmax = fields.number("temperature", 0, 5, 1.0), fields.flag("argmax", False)
    seed = fields.whole("seed", 0, MOST_SEED, 0)
    particles = fields.whole("particles", 1, MOST_PARTICLES, PARTICLES)
    fields.done()
    if how == "fill" and (not text or not mark or mark not in text):
        raise LatflowError(
            f"nothing to fill in: write {mark or 'a mark'!r} in the text for every free character"
        )

    def work(tell: Progress) -> dict[str, Any]:
        model = book.model()
        if not text:
            found = fresh(model, n, length, temperature, argmax, seed, tell)
            return {"texts": [model.spec.decode(x) for x in found], "known": []}
        if how == "fill":
            evidence = Evidence.template(model.spec, text, mark)
        else:
            evidence = Evidence.prefix(model.spec, text, length)
        drawn = given(
            model,
            evidence,
            n,
            particles=particles,
            temperature=temperature,
            argmax=argmax,
            seed=seed,
            progress=tell,
        )
        return {
            "texts": [model.spec.decode(x) for x in drawn.samples],
            "known": np.flatnonzero(evidence.known).tolist(),
            "log2_p": drawn.log_p / math.log(2),
            "effective": drawn.effective_samples,
        }

    return work


def _book(shelf: Shelf, fields: Fields) -> Book:
    book = shelf.book(fields.text("model", 200))
    if book.run.spec.kind != "text":
        raise LatflowError(f"{book.name} is a model of {book.run.spec.kind}, not of text")
    return book


def _density(
    model: LatentSequenceModel, x: np.ndarray, at: int, found: Next, order: list[int]
) -> dict[str, Any]:
    """log p(z_t | z_<t) on a grid, as bytes of its square root, and where the likely symbols lie."""
    from latflow.plots.prior import box_of, log_density

    assert found.context is not None
    shown = order[:PLACES]
    if at < len(x) and int(x[at]) not in shown:
        shown = [*shown, int(x[at])]
    places = _places(model, x, at, shown)
    low, high = box_of(model, found.context, places, 0)
    sides = [torch.linspace(float(low[d]), float(high[d]), POINTS) for d in range(2)]
    grid = torch.stack(torch.meshgrid(*sides, indexing="xy"), -1).reshape(-1, 2)
    parts = [w.log() + log_density(model, grid, c) for w, c in zip(found.weights, found.context, strict=True)]
    density = torch.stack(parts).logsumexp(0).exp()
    level = (density / density.max().clamp(min=1e-30)).sqrt()
    return {
        "points": POINTS,
        "low": low.tolist(),
        "high": high.tolist(),
        "level": (255 * level).round().to(torch.uint8).tolist(),
        "symbols": [model.spec.symbols[i] for i in shown],
        "places": [[round(v, 4) for v in place] for place in places.tolist()],
        "here": shown.index(int(x[at])) if at < len(x) else None,
    }


@torch.no_grad()
def _places(model: LatentSequenceModel, x: np.ndarray, at: int, symbols: list[int]) -> Tensor:
    """Where z_t would most likely be if x_t were each of the symbols: its code, or the mode of q(z_t | x with it)."""
    which = torch.tensor(symbols)
    if isinstance(model.posterior, CodebookPosterior):
        return model.posterior.codes.of(which)[0]
    many = torch.from_numpy(x).repeat(len(symbols), 1)
    many[:, at] = which
    packing = Packing(torch.full((len(symbols),), len(x)))
    modes = model.posterior.mode(packing.pack(many), model.alphabet, packing)
    return packing.unpack(modes)[:, at]


def warm(model: SequenceModel) -> None:
    """The first call of everything takes longest."""
    surprise(model, model.spec.encode([model.spec.symbols[0]] * 8), ended=False)
