"""Answers about music: how surprising each step is, what else could sound, and files in and out."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from latflow.config import DataConfig
from latflow.data.base import DataSpec
from latflow.data.export import save_wav
from latflow.data.midi import parse_midi, write_midi
from latflow.errors import LatflowError, LatflowWarning
from latflow.page.draws import fresh
from latflow.page.inputs import MOST_SEED, MOST_STEPS, Fields
from latflow.page.jobs import Work
from latflow.page.shelf import Book, Shelf
from latflow.progress import Progress
from latflow.use import Evidence, given
from latflow.use.ahead import surprise

PARTICLES, MOST_PARTICLES = 100, 1000
VOICES = ("some", "top", "bass")


def surprises(shelf: Shelf, fields: Fields) -> Work:
    """-log p of each step, in nats."""
    book, roll = _book(shelf, fields), fields.roll("roll")
    fields.done()

    def work(tell: Progress) -> dict[str, Any]:
        return {"nats": [round(float(value), 3) for value in surprise(book.model(), roll)]}

    return work


def draws(shelf: Shelf, fields: Fields) -> Work:
    """A new piece, one that goes on from what is there, or one around the notes that are locked."""
    book = _book(shelf, fields)
    how = fields.choice("how", ("sample", "continue", "harmonise"))
    length = fields.whole("length", 1, MOST_STEPS)
    roll = None if how == "sample" else fields.roll("roll")
    voice = fields.choice("voice", VOICES, "some") if how == "harmonise" else "some"
    temperature, argmax = fields.number("temperature", 0, 5, 1.0), fields.flag("argmax", False)
    seed = fields.whole("seed", 0, MOST_SEED, 0)
    particles = fields.whole("particles", 1, MOST_PARTICLES, PARTICLES)
    fields.done()
    if roll is not None and not roll.any():
        what = "locked to be kept" if how == "harmonise" else "to go on from"
        raise LatflowError(f"no note is {what}; draw some, or ask for a sample")

    def work(tell: Progress) -> dict[str, Any]:
        model = book.model()
        if roll is None:
            (x,) = fresh(model, 1, length, temperature, argmax, seed, tell)
            return {"roll": _notes(x, model.spec)}
        if how == "harmonise":
            evidence = Evidence(roll, kept(roll, voice)).lengthened(length)
        else:
            evidence = Evidence(roll, np.ones(roll.shape, bool)).lengthened(length)
        drawn = given(
            model,
            evidence,
            1,
            particles=particles,
            temperature=temperature,
            argmax=argmax,
            seed=seed,
            progress=tell,
        )
        return {
            "roll": _notes(drawn.samples[0], model.spec),
            "log_p": drawn.log_p,
            "effective": drawn.effective_samples,
        }

    return work


def kept(locked: np.ndarray, voice: str) -> np.ndarray:
    """What is known (T, 88) where these notes are locked: that they sound, and if they are the top or the bass, that
    nothing sounds beyond them."""
    known = locked.astype(bool)
    for t, notes in enumerate(map(np.flatnonzero, locked)):
        if len(notes) and voice == "top":
            known[t, notes[-1] :] = True
        elif len(notes) and voice == "bass":
            known[t, : notes[0] + 1] = True
    return known


def read(shelf: Shelf, name: str, body: bytes) -> Work:
    """The notes of a MIDI file on the grid of a model."""
    book = shelf.book(name)
    config = _music(book)

    def work(tell: Progress) -> dict[str, Any]:
        roll, remarks = parse_midi(
            body, "the file", config.steps_per_beat, config.steps_per_second, config.articulate
        )
        if len(roll) > MOST_STEPS:
            remarks.append(f"the file has {len(roll)} steps; the first {MOST_STEPS} are shown")
        for remark in remarks:
            warnings.warn(remark, LatflowWarning, stacklevel=1)
        return {"roll": _notes(roll[:MOST_STEPS], book.run.spec)}

    return work


def file(shelf: Shelf, fields: Fields) -> Work:
    """A roll as the bytes of a .mid or a .wav."""
    config = _music(_book(shelf, fields))
    suffix = fields.choice("format", ("mid", "wav"))
    roll, tempo = fields.roll("roll"), fields.number("tempo", 20, 400, 100.0)
    fields.done()

    def work(tell: Progress) -> bytes:
        write = write_midi if suffix == "mid" else save_wav
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"roll.{suffix}"
            write(path, roll, config.steps_per_beat, tempo)
            return path.read_bytes()

    return work


def _book(shelf: Shelf, fields: Fields) -> Book:
    book = shelf.book(fields.text("model", 200))
    _music(book)
    return book


def _music(book: Book) -> DataConfig:
    if book.run.spec.kind != "music":
        raise LatflowError(f"{book.name} is a model of {book.run.spec.kind}, not of music")
    return book.run.config.data


def _notes(roll: np.ndarray, spec: DataSpec) -> list[list[int]]:
    return spec.decode(roll)
