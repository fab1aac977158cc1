"""Answers about runs: their curves as far as they are, and a sample of their weights as they are now."""

from __future__ import annotations

import time
from typing import Any

from latflow.errors import LatflowError
from latflow.page.draws import fresh
from latflow.page.inputs import MOST_SEED, Fields
from latflow.page.jobs import Work
from latflow.page.shelf import Book, Shelf, stamp_of
from latflow.plain import plain
from latflow.progress import Progress
from latflow.reproduce.result import curve_of
from latflow.training.run import METRICS, WEIGHTS

COLUMNS = ("epoch", "train_negative_elbo", "valid_negative_elbo", "train_kl", "valid_kl", "lr", "kl_weight")
SAMPLE_STEPS = 64
"""Of music; text is as long as p(T) has it."""


class Curves:
    """What each run's metrics.jsonl says, read again when it has changed."""

    def __init__(self, shelf: Shelf):
        self.shelf = shelf
        self._kept: dict[str, tuple[Any, dict[str, Any]]] = {}

    def answer(self) -> dict[str, Any]:
        return {"runs": [self._of(book) for book in self.shelf.runs()]}

    def _of(self, book: Book) -> dict[str, Any]:
        stamp, weights = stamp_of(book.run.folder / METRICS), stamp_of(book.run.folder / WEIGHTS)
        if book.name not in self._kept or self._kept[book.name][0] != stamp:
            self._kept[book.name] = stamp, self._read(book)
        return {
            **self._kept[book.name][1],
            "age": None if stamp is None else max(0.0, round(time.time() - stamp[0] / 1e9, 1)),
            "weights": None if weights is None else str(weights[0]),
        }

    @staticmethod
    def _read(book: Book) -> dict[str, Any]:
        spec = book.run.spec
        found: dict[str, Any] = {
            "name": book.name,
            "kind": spec.kind,
            "preset": book.run.preset,
            "unit": f"{spec.unit} per {spec.step_name}",
            "epochs": book.run.config.train.epochs,
            "curve": {},
        }
        try:
            lines = book.run.metrics()
        except LatflowError:
            return found | {"error": "its metrics.jsonl cannot be read"}
        curve = curve_of(lines)
        found["curve"] = plain({name: curve[name] for name in COLUMNS if name in curve}, 6)
        if lines:
            found["updates"] = lines[-1].get("updates")
        return found


def sample(shelf: Shelf, fields: Fields) -> Work:
    """One sequence of the best weights so far."""
    book = shelf.book(fields.text("run", 200))
    seed = fields.whole("seed", 0, MOST_SEED, 0)
    temperature = fields.number("temperature", 0, 5, 1.0)
    fields.done()

    def work(tell: Progress) -> dict[str, Any]:
        model = book.model()
        music = model.spec.kind == "music"
        length = SAMPLE_STEPS if music else None
        if music and model.length.bounded:
            length = min(SAMPLE_STEPS, model.spec.max_T)
        (x,) = fresh(model, 1, length, temperature, False, seed, tell)
        return {"kind": model.spec.kind, "sample": model.spec.decode(x)}

    return work
