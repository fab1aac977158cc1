"""Lengths -> z -> x -> text or notes; and how surprising given sequences are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import torch

from latflow.config import DataConfig
from latflow.data.base import Batch, DataSpec
from latflow.errors import LatflowError
from latflow.evaluate import chunk_of, evaluating, in_unit
from latflow.models import SequenceModel
from latflow.progress import Progress
from latflow.seeds import seeded


def sample(
    model: SequenceModel,
    n: int = 8,
    *,
    length: int | None = None,
    temperature: float = 1.0,
    argmax: bool = False,
    seed: int = 0,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> list[np.ndarray]:
    """n sequences: (T,) indices or (T, 88) rolls. T ~ p(T) unless a length is given; `progress` is told how many."""
    if n < 1 or batch_size < 1:
        raise LatflowError(f"{n} samples, {batch_size} at a time; both must be 1 or more")
    longest = model.spec.max_T
    if length is not None and not 1 <= length <= longest:
        raise LatflowError(f"length {length}; this model knows lengths from 1 to {longest}")
    if not 0 <= temperature < float("inf"):
        raise LatflowError(f"temperature {temperature}; it must be a number of at least 0")
    device = next(model.parameters()).device
    with evaluating(model), seeded(seed, 3):
        lengths = model.length.sample(n) if length is None else torch.full((n,), length, device=device)
        found: list[np.ndarray] = []
        for part in lengths.split(batch_size):
            drawn = model.sample(part, temperature, argmax).cpu().numpy()
            found += [x[:T] for x, T in zip(drawn, part.tolist(), strict=True)]
            if progress:
                progress(len(found), n)
    return found


def score(
    model: SequenceModel,
    sequences: Sequence[Any],
    *,
    samples: int = 50,
    batch_size: int = 32,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """The negative log-likelihood of each sequence, in the unit of the data, in the order given: arrays as
    `DataSpec.encode` gives them, or what it takes (strings, lists of tokens, rolls).

    nll is -log p(x | T) - log p(T), nll_per_step is that / (T + 1). The baseline's steps are exact, -log p(x_t | x_<t,
    T); for a latent model they are the terms of the bound, -log p(x_t | z) + log q(z_t | x) - log p(z_t | z_<t), the
    mean over the samples, whose sum over t plus the length term is -ELBO. A sequence whose length p(T) rules out has
    no likelihood but that given T: nll is None and "error" says why. Equal sequences are scored once; `progress` is
    told how many are done.
    """
    if samples < 1 or batch_size < 1:
        raise LatflowError(f"{samples} samples, {batch_size} sequences at a time; both must be 1 or more")
    longest = model.spec.max_T
    sequences = [x if isinstance(x, np.ndarray) else model.spec.encode(x) for x in sequences]
    keys = [(x.shape, x.dtype, x.tobytes()) for x in sequences]
    distinct = {key: x for key, x in zip(keys, sequences, strict=True) if 1 <= len(x) <= longest}
    order = sorted(distinct, key=lambda key: len(distinct[key]))
    scored: dict[Any, dict[str, Any]] = {}
    for start in range(0, len(order), batch_size):
        which = order[start : start + batch_size]
        with evaluating(model), seeded(seed, 4, start):
            rows = _score_batch(model, [distinct[key] for key in which], samples)
        scored.update(zip(which, rows, strict=True))
        if progress:
            progress(len(scored), len(order))
    unknown = {"nll": None, "error": f"this model knows lengths from 1 to {longest}"}
    return (
        {"index": i, "length": len(x), **scored.get(key, unknown)}
        for i, (key, x) in enumerate(zip(keys, sequences, strict=True))
    )


def _score_batch(model: SequenceModel, items: list[np.ndarray], samples: int) -> list[dict[str, Any]]:
    spec = model.spec
    batch = collate(spec, items).to(next(model.parameters()).device)
    given_length = effective = steps = torch.zeros(())
    for terms, weights in model.draws(batch, [samples], chunk_of(batch), given_length=True):
        given_length, effective = weights.nll(), weights.effective_samples()
        steps = steps + (terms.kl - terms.log_emission).double().sum(1)
    steps = steps / (1 if model.exact else samples)
    rows = []
    for i, x in enumerate(items):
        rest = in_unit(float(given_length[i]), spec)
        row = _with_length(model, len(x), rest) | {"unit": spec.unit, "nll_given_length": rest}
        if not model.exact:
            row["effective_samples"] = float(effective[i])
        found = [in_unit(v, spec) for v in steps[i, : len(x)].tolist()]
        rows.append(row | {"steps" if model.exact else "bound_steps": found})
    return rows


def _with_length(model: SequenceModel, T: int, rest: float) -> dict[str, Any]:
    """-log p(x | T) and -log p(T) together, if T has a probability."""
    try:
        length = in_unit(-float(model.length.log_prob(torch.tensor([T]))), model.spec)
    except ValueError:
        return {"nll": None, "error": f"length {T} has no probability under p(T)"}
    return {"nll": rest + length, "nll_per_step": (rest + length) / (T + 1), "length_nll": length}


def collate(spec: DataSpec, items: list[np.ndarray]) -> Batch:
    """Sequences as `DataSpec.encode` gives them, padded to one batch."""
    lengths = torch.tensor([len(x) for x in items])
    longest = int(lengths.max())
    shape = (len(items), longest) if spec.emission == "categorical" else (len(items), longest, spec.size)
    x = torch.zeros(shape, dtype=torch.int64 if spec.emission == "categorical" else torch.float32)
    for row, item in zip(x, items, strict=True):
        row[: len(item)] = torch.from_numpy(item.copy())
    return Batch(x, lengths, torch.arange(len(items)), torch.ones(len(items)), len(items))


def read_sequences(
    path: str | Path, spec: DataSpec, config: DataConfig
) -> list[tuple[str, np.ndarray | LatflowError]]:
    """A user's sequences, each with a name: lines of text, JSON lines of tokens, a .mid file or a folder of them.

    In the place of one that this model cannot read stands the reason; if it can read none, that is an error.
    """
    from latflow.data.files import list_files
    from latflow.data.midi import read_midi
    from latflow.data.text import read_list, read_texts, token_lines

    path = Path(path)
    if not path.exists():
        raise LatflowError(f"{path}: no such file or folder")
    if spec.kind == "music":
        items: list[Any] = list_files(path, (".mid", ".midi")) if path.is_dir() else [path]
        names = [str(file) for file in items]
    else:
        items = read_texts(path, config) if spec.kind == "text" else [line for _, line in token_lines(path)]
        names = items
    found: list[tuple[str, np.ndarray | LatflowError]] = []
    for name, item in zip(names, items, strict=True):
        try:
            if spec.kind == "music":
                given: Any = read_midi(item, config.steps_per_beat, config.steps_per_second)
            else:
                given = read_list(item, config) if spec.kind == "tokens" else item
            found.append((name, spec.encode(given)))
        except LatflowError as error:
            found.append((name, error))
    if not found:
        raise LatflowError(f"{path}: no sequences in it")
    if all(isinstance(x, LatflowError) for _, x in found):
        name, error = found[0]
        raise LatflowError(f"{path}: sequence 1 ({name[:40]}): {error}")
    return found


def write_samples(samples: list[np.ndarray], spec: DataSpec, out: Path, config: DataConfig) -> list[Path]:
    """Text and tokens into one file, a line each; music as a .mid, a .wav and a .png each, numbered if several."""
    from latflow.data.export import save_png, save_wav
    from latflow.data.files import file_stem, writing
    from latflow.data.midi import SLOWEST, write_midi

    if spec.kind != "music":
        with writing(out) as path:
            path.write_text("".join(f"{as_text(x, spec)}\n" for x in samples), encoding="utf-8")
        return [out]
    stem = file_stem(out, (".mid", ".midi", ".wav", ".png"))
    per_beat, tempo = config.steps_per_beat, 120.0
    if config.steps_per_second is not None:
        # Written as beats of the tempo that gives steps their length, of which MIDI has four a minute or more.
        per_beat = max(1, min(per_beat, int(60 * config.steps_per_second / SLOWEST)))
        tempo = max(SLOWEST, 60 * config.steps_per_second / per_beat)
    written = []
    for number, roll in enumerate(samples, start=1):
        name = stem if len(samples) == 1 else stem.with_name(f"{stem.name}-{number}")
        roll = roll.astype(np.uint8)
        paths = [name.with_name(f"{name.name}{suffix}") for suffix in (".mid", ".wav", ".png")]
        write_midi(paths[0], roll, per_beat, tempo)
        save_wav(paths[1], roll, per_beat, tempo)
        save_png(paths[2], roll)
        written += paths
    return written


def as_text(x: np.ndarray, spec: DataSpec, terminal: bool = False) -> str:
    """A sample as one line: the text itself with line ends escaped, for a terminal all control characters; or JSON."""
    decoded = spec.decode(x)
    if spec.kind != "text":
        return json.dumps(decoded, ensure_ascii=False)
    return "".join(repr(c)[1:-1] if c in "\n\r" or (terminal and category(c) == "Cc") else c for c in decoded)
