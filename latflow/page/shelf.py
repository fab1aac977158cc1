"""The models that the page knows, by names of its own; no name from outside becomes a path."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latflow import shipped
from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.training.run import TRAINER, WEIGHTS, Run


@dataclass
class Book:
    """A run, and its model once it was asked for, as of the file it was read from."""

    name: str
    run: Run
    shipped: bool
    _model: SequenceModel | None = None
    _of: tuple[int, int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def model(self) -> SequenceModel:
        """With its best weights as they are now: those of a run that is training are read anew when they change."""
        with self._lock:
            stamp = stamp_of(self.run.folder / WEIGHTS) or stamp_of(self.run.folder / TRAINER)
            if self._model is None or stamp != self._of:
                try:
                    self._model, self._of = self.run.model(), stamp
                except LatflowError as error:  # in the browser a run is known by its name
                    raise LatflowError(str(error).replace(str(self.run.folder), self.name)) from None
            return self._model

    def about(self) -> dict[str, Any]:
        config, spec = self.run.config.model, self.run.spec
        codebook = getattr(config.posterior, "name", None) == "codebook"
        return {
            "name": self.name,
            "shipped": self.shipped,
            "kind": spec.kind,
            "unit": spec.unit,
            "longest": None if config.position_cap else spec.max_T,
            "stepwise": config.kind == "lstm" or codebook,
            "density": config.kind == "latent" and config.latent_size == 2,
            "about": shipped.card(self.name).about if self.shipped else str(self.run.preset or "own config"),
            "steps_per_beat": self.run.config.data.steps_per_beat,
        }


class Shelf:
    """Shipped models, and the runs that were named on the command line."""

    def __init__(self, folders: Sequence[str | Path] = ()):
        self.books: dict[str, Book] = {}
        for name in shipped.names():
            self.books[name] = Book(name, Run.open(shipped.FOLDER / name), shipped=True)
        for folder in folders:
            run = Run.open(folder)
            if run.folder.parent == shipped.FOLDER:
                continue
            name, number = run.folder.resolve().name, 2
            while name in self.books:
                name, number = f"{run.folder.resolve().name} ({number})", number + 1
            self.books[name] = Book(name, run, shipped=False)

    def book(self, name: str) -> Book:
        if name not in self.books:
            raise LatflowError(f"no model called {name[:60]!r}; there are {', '.join(self.books)}")
        return self.books[name]

    def runs(self) -> list[Book]:
        return [book for book in self.books.values() if not book.shipped]


def stamp_of(path: Path) -> tuple[int, int] | None:
    """When a file was last written and how large it is; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
