"""Data: corpora by name, a user's own files, synthetic sets with a known truth. `load` is the one entry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from latflow.config import DataConfig
from latflow.data import fetch
from latflow.data.base import Batch, Batches, Corpus, DataSpec, Sequences, collate
from latflow.data.labels import KEYS, check_labels, key_of
from latflow.data.midi import load_midi
from latflow.data.music import load_music
from latflow.data.synthetic import draw_corpus
from latflow.data.text import load_ptb, load_pydoc, load_text, load_tokens
from latflow.data.wiki import WIKI, load_wiki
from latflow.errors import LatflowError

__all__ = ["CATALOGUE", "Batch", "Batches", "Corpus", "DataSpec", "Sequences", "collate", "load"]

CATALOGUE = {
    "ptb": "Penn Treebank sentences, characters (English, newspaper)",
    "jsb": "Bach's chorales, piano rolls of 88 notes",
    "nottingham": "folk tunes with chords, piano rolls",
    "piano-midi": "classical piano, piano rolls",
    "musedata": "orchestral and piano classics, piano rolls",
    "text8": "English Wikipedia, 10^8 letters and spaces, in pieces of 256",
    "enwik8": "English Wikipedia, 10^8 bytes with all markup, in pieces of 256",
    "pydoc": "sentences of the help topics of this Python, built in",
    "hmm": "a hidden-Markov language with known likelihoods, built in",
    "chords": "chord progressions over 88 notes with known likelihoods, built in",
    "text:PATH": "your own text: a UTF-8 file, or a folder of .txt files",
    "midi:DIR": "your own music: a folder of .mid files",
    "tokens:PATH": "your own symbols: JSON lines, each a list of whole numbers or strings",
}
"""What `load` knows, and a line about each."""

_OWN = {"text": load_text, "midi": load_midi, "tokens": load_tokens}


def load(config: DataConfig, among: DataSpec | None = None) -> Corpus:
    """The corpus a config names, ready to batch; with the symbols of `among` first, those it does not have included.

    transpose and crop are not applied here: they vary the training pieces from epoch to epoch, see `Batches`.
    """
    _check(config)
    name = config.name
    if name in ("hmm", "chords"):
        sizes = config.train_size, config.eval_size
        corpus = draw_corpus(name, *sizes, seed=config.synthetic_seed, smooth=config.smooth_lengths)
    elif name == "pydoc":
        corpus = load_pydoc(config)
    elif name == "ptb":
        corpus = load_ptb(fetch.find_or_download(name, config.data_dir), config)
    elif name in WIKI:
        corpus = load_wiki(name, fetch.find_or_download(name, config.data_dir)[0], config)
    elif name in fetch.CORPORA:
        corpus = load_music(name, fetch.find_or_download(name, config.data_dir)[0], config)
    else:
        kind, _, path = name.partition(":")
        if kind not in _OWN or not path:
            raise LatflowError(f"no data called {name!r}; accepted: {', '.join(CATALOGUE)}")
        corpus = _OWN[kind](Path(path).expanduser(), config)
    if corpus.spec.kind != "music" and (config.transpose or config.crop):
        raise LatflowError(f"transpose and crop are for music; {name} is {corpus.spec.kind}")
    _check_crop(corpus, config.crop)
    if config.labels == "key":
        corpus = _with_keys(corpus)
    if among is not None and among.kind == corpus.spec.kind:
        corpus = _among(corpus, among)
    train = corpus.splits["train"]
    counts = tuple(train.counts(corpus.spec.size).tolist())
    spec = replace(
        corpus.spec, symbol_counts=counts, train_steps=int(train.lengths.sum()), shifts=config.transpose
    )
    return replace(corpus, spec=spec)


def _among(corpus: Corpus, known: DataSpec) -> Corpus:
    """The same sequences over the symbols `known` has, and behind those what the corpus has besides."""
    spec = corpus.spec
    mark = spec.symbols[-1:] if spec.unknown else ()
    first = tuple(symbol for symbol in known.symbols if symbol not in mark)
    here = set(first) | set(mark)
    symbols = (*first, *(symbol for symbol in spec.symbols if symbol not in here), *mark)
    if symbols == spec.symbols:
        return corpus
    at = {symbol: i for i, symbol in enumerate(symbols)}
    table = np.array([at[symbol] for symbol in spec.symbols])
    splits = {name: sequences.mapped(table) for name, sequences in corpus.splits.items()}
    return replace(corpus, spec=replace(spec, symbols=symbols, symbol_counts=()), splits=splits)


def _with_keys(corpus: Corpus) -> Corpus:
    """Each piece labelled with its estimated key, of the 24 there are."""
    if corpus.spec.kind != "music":
        raise LatflowError(f"labels are key, which music has; {corpus.name} is {corpus.spec.kind}")
    splits = {
        name: sequences.labelled(np.array([key_of(roll) for roll in sequences]), keys=True)
        for name, sequences in corpus.splits.items()
    }
    return replace(corpus, splits=splits, spec=replace(corpus.spec, labels=KEYS))


def like(config: DataConfig, spec: DataSpec) -> DataConfig:
    """A run's data as the run knew it: a user's own, read before there was a symbol for unknown, has none still."""
    own = config.name.partition(":")[0] in ("text", "tokens") and ":" in config.name
    return replace(config, unknown=False) if own and config.unknown is None and not spec.unknown else config


def placed(config: DataConfig, folder: str | None) -> DataConfig:
    """The same data where it lies on this machine: the corpora in `folder`, or a user's own of that name in it."""
    if folder is None:
        return config
    kind, colon, path = config.name.partition(":")
    name = f"{kind}:{Path(folder) / Path(path).name}" if colon else config.name
    return replace(config, name=name, data_dir=folder)


def anchored(config: DataConfig) -> DataConfig:
    """With a user's own path in full, so that it holds in whatever folder one works later."""
    kind, colon, path = config.name.partition(":")
    return replace(config, name=f"{kind}:{Path(path).expanduser().absolute()}") if colon and path else config


def _check_crop(corpus: Corpus, crop: int) -> None:
    """A cropped piece has `crop` steps, and p(T) must allow that; it does unless it is not smoothed."""
    if crop and (corpus.splits["train"].lengths > crop).any() and not corpus.spec.length_counts[crop]:
        raise LatflowError(f"crop is {crop}, a length that p(T) rules out; leave smooth_lengths unset")


def _check(config: DataConfig) -> None:
    for field in ("transpose", "crop", "chunk", "train_size", "eval_size", "synthetic_seed", "split_seed"):
        if getattr(config, field) < 0:
            raise LatflowError(f"{field} is {getattr(config, field)}; it must be 0 or more")
    if not 0 <= config.transpose_zero <= 1:
        raise LatflowError(f"transpose_zero is {config.transpose_zero}; it is a share, from 0 to 1")
    check_labels(config)
    if config.unknown and config.name.partition(":")[0] not in ("text", "tokens"):
        raise LatflowError(
            f"unknown is for text:PATH and tokens:PATH; {config.name} has all its symbols in training"
        )
    if config.max_length is not None and config.max_length < 1:
        raise LatflowError(f"max_length is {config.max_length}; it must be 1 or more")
    if config.max_length is not None and config.name in ("hmm", "chords"):
        raise LatflowError(f"max_length is for data that is read; {config.name} draws its own lengths")
