"""Fine-tuning: a run that begins with the weights of another, on other data of the same kind.

What belongs to a symbol, a label or a distance keeps its meaning: rows go by the symbol they stand for, not by their
number. The vocabulary is the old one and, behind it, what the new data has besides; a new symbol begins as in a fresh
model, but for its code, which begins at a corner of {-1, 1}^H that no other code is near.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from latflow import data, shipped
from latflow.config import Config, DataConfig, evolve
from latflow.data.base import Corpus, DataSpec
from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.training.recommend import recommended
from latflow.training.run import Run
from latflow.training.stored import weights_of

GENTLER = 0.3
"""Of the rate that data of this size would have from fresh weights."""
_OF_SYMBOLS = ("alphabet.", "emission.logits", "prior.hidden.bias", "prior.hidden.weight")
_POSITIONS = ("positions.start", "positions.end")


@dataclass(frozen=True)
class Start:
    """The run whose weights another begins with."""

    run: Run

    @property
    def name(self) -> str:
        """Of a shipped model its name, otherwise the folder."""
        folder = self.run.folder
        return folder.name if folder.parent == shipped.FOLDER else str(folder)

    def config(self, own: DataConfig) -> Config:
        """Its model, on this data, trained as long as data of this size is, at a lower rate and without a warm-up."""
        corpus = self.corpus(own)
        chosen = recommended(own, corpus).train
        config = replace(self.run.config, data=own)
        changes: dict[str, Any] = {
            "train.lr": GENTLER * chosen.lr,
            "train.epochs": chosen.epochs,
            "train.lr_decay": chosen.epochs,
            "train.batch_size": chosen.batch_size,
            "train.early_stop": chosen.early_stop,
            "train.ema": chosen.ema,
            "train.patience": chosen.patience,
            "train.kl_steps": None,
            "train.kl_zero": 0.0,
            "train.kl_ramp": 0.0,
        }
        return evolve(config, changes)

    def corpus(self, own: DataConfig) -> Corpus:
        """The new data, with the old symbols first."""
        corpus = data.load(own, among=self.run.spec)
        before, now = self.run.spec, corpus.spec
        if before.kind != now.kind:
            raise LatflowError(
                f"{self.run.folder} is a model of {before.kind}, {own.name} is {now.kind}; fine-tuning needs data of "
                "the same kind"
            )
        return corpus

    def weights(self, model: SequenceModel, spec: DataSpec) -> dict[str, Tensor]:
        """The weights a model of the new data begins with; `model` has fresh ones."""
        given = weights_of(self.run.model())
        fresh, before = weights_of(model), self.run.spec
        found = {}
        for name, value in fresh.items():
            old = given.get(name)
            if old is None:
                found[name] = value.clone()
            elif name.endswith(".codes.means") and spec.kind != "music":
                found[name] = _codes(self._rows(name, value, old, spec), old, before, spec)
            elif spec.kind != "music" and (name.startswith(_OF_SYMBOLS) or ".codes." in name):
                found[name] = self._rows(name, value, old, spec)
            elif name.endswith(_POSITIONS) and value.shape[1:] == old.shape[1:]:
                last = old[-1:].expand(max(0, len(value) - len(old)), -1)
                found[name] = torch.cat([old[: len(value)], last])
            elif name == "condition.label":
                found[name] = _by_name(value, old, before.labels, spec.labels)
            elif name == "condition.shift" and value.shape != old.shape:
                found[name] = _middle(value, old)
            else:
                found[name] = self._fitting(name, value, old).clone()
        return found

    def said(self, own: DataConfig) -> str:
        """What is taken over and what is new, in a line."""
        before, spec = self.run.spec, self.corpus(own).spec
        new = [s for s in spec.symbols if s not in set(before.symbols)]
        parts = [f"begins with the weights of {self.name}"]
        if spec.kind != "music":
            named = ", ".join(map(repr, new[:8])) + ", …" * (len(new) > 8)
            parts.append(
                f"{len(new)} of {spec.size} symbols are new: {named}" if new else "it knows all symbols"
            )
        elif own.steps_per_second is None:
            parts.append(f"{own.steps_per_beat} step{'s' * (own.steps_per_beat > 1)} a beat")
        else:
            parts.append(f"{own.steps_per_second:g} steps a second")
        if spec.max_T > before.max_T:
            parts.append(f"lengths up to {spec.max_T}, {before.max_T} before")
        labels = [name for name in spec.labels if name not in before.labels]
        if labels:
            parts.append(f"new labels: {', '.join(labels[:8])}{', …' * (len(labels) > 8)}")
        return "; ".join(parts)

    def _rows(self, name: str, value: Tensor, old: Tensor, spec: DataSpec) -> Tensor:
        self._fitting(name, value[:1], old[:1])
        return _by_name(value, old, self.run.spec.symbols, spec.symbols)

    def _fitting(self, name: str, value: Tensor, old: Tensor) -> Tensor:
        if value.shape == old.shape:
            return old
        if ".codes." in name:
            raise LatflowError(
                f"the codes of {self.run.folder} have {old.shape[-1]} numbers, which is room for "
                f"{2 ** old.shape[-1]} symbols, and the new data needs codes of {value.shape[-1]}; train a model of "
                "its own on this data, or with --data.max_length or other files on data with fewer new symbols"
            )
        raise LatflowError(
            f"{name} has shape {tuple(value.shape)} here and {tuple(old.shape)} in {self.run.folder}; a run that "
            "begins with the weights of another has its model: leave the fields model.… as they are"
        )


def _by_name(value: Tensor, old: Tensor, before: tuple[Any, ...], now: tuple[Any, ...]) -> Tensor:
    """Rows of `old` in the new order, those of new names from `value`."""
    at: Mapping[Any, int] = {name: i for i, name in enumerate(before)}
    value = value.clone()
    for i, name in enumerate(now):
        if name in at:
            value[i] = old[at[name]]
    return value


def _codes(means: Tensor, old: Tensor, before: DataSpec, now: DataSpec) -> Tensor:
    """Codes of new symbols at corners far from all others: each at the one whose nearest code is farthest."""
    known = set(before.symbols)
    new = [i for i, symbol in enumerate(now.symbols) if symbol not in known]
    if not new:
        return means
    H = means.shape[1]
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=min(H, 16))), dtype=means.dtype)
    corners = torch.cat([corners, corners[:, : max(0, H - 16)]], 1)
    nearest = torch.cdist(corners, old).amin(1)
    for i in new:
        best = int(nearest.argmax())
        means[i] = corners[best]
        nearest = torch.minimum(nearest, torch.cdist(corners, corners[best : best + 1])[:, 0])
    return means


def _middle(value: Tensor, old: Tensor) -> Tensor:
    """Shifts by their size: the row of no shift is the middle one."""
    value, k = value.clone(), min(len(value), len(old)) // 2
    here, there = len(value) // 2, len(old) // 2
    value[here - k : here + k + 1] = old[there - k : there + k + 1]
    return value
