"""A training of a dozen steps, and all that its folder says of it, against the same written by hand.

Own are the batches, the noise, the models (`tests.walks.twin`), the loss, the KL ramp, clipping, Adam and plain
descent, the cosine and the drop on a plateau, the running mean of the weights, the validation and which weights are
kept. Taken from the package: the weights at the start (`build`, under a seed of our own) and autograd. All in float64.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import latflow
from latflow import data
from latflow.config import Config, evolve
from latflow.models import build
from latflow.training.fit import train
from tests.walks import twin

TEXTS = {
    "train": ["ab", "cab", "bca", "a", "cc", "abc", "bb", "aacb", "ba", "c", "abab", "cbc", "bac", "acca"],
    "valid": ["ba", "cab", "c", "abcb"],
    "test": ["cc", "bab"],
}
SYMBOLS = "abc"

SMALL = {
    "data.unknown": False,
    "seed": 7,
    "model.latent_size": 2,
    "model.embedding_size": 3,
    "model.prior.hidden.units": 4,
    "model.prior.hidden.layers": 2,
    "model.prior.context.units": 4,
    "model.prior.context.dropout": 0.0,
    "model.posterior.units": 4,
    "model.posterior.layers": 1,
    "model.emission.units": 4,
    "model.emission.layers": 1,
    "model.baseline.units": 4,
    "model.baseline.dropout": 0.0,
    "train.epochs": 4,
    "train.batch_size": 3,
    "train.accumulate": 2,
    "train.samples": 2,
    "train.lr": 0.05,
    "train.lr_factor": 0.5,
    "train.patience": 1,
    "train.lr_decay": 3,
    "train.clip": 0.1,
    "train.kl_steps": (2, 5),
    "train.ema": 0.6,
    "train.eval_samples": 3,
    "train.eval_batch": 3,
    "train.log_every": 1,
    "train.device": "cpu",
}


@pytest.fixture
def exact():
    """Everything in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def settings(folder: Path, changes: dict) -> Config:
    folder.mkdir()
    for split, texts in TEXTS.items():
        (folder / f"{split}.txt").write_text("".join(f"{text}\n" for text in texts))
    return evolve(Config(), {**SMALL, "data.name": f"text:{folder}", **changes})


def sequences(split: str) -> list[Tensor]:
    return [torch.tensor([SYMBOLS.index(c) for c in text]) for text in TEXTS[split]]


def reseed(*key: int) -> None:
    """The generator of a place of the run: (seed, what for, where …); docs/training.md."""
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))


def plan(lengths: list[int], size: int, seed: int, epoch: int, even: bool) -> list[list[int]]:
    """The batches of an epoch: by length x (1 + u / 10), cut every so many sequences or steps, shuffled."""
    rng = np.random.default_rng([seed, epoch])
    keys = [T * (1 + u / 10) for T, u in zip(lengths, rng.random(len(lengths)), strict=True)]
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    begins = list(range(0, len(order), size))
    if even:
        total, count = sum(lengths) + len(lengths), len(begins)
        begins = []
        for number in range(count):
            i, upto = 0, 0
            while upto + lengths[order[i]] + 1 < number * total / count:
                upto += lengths[order[i]] + 1
                i += 1
            begins.append(i)
    batches = [order[i:j] for i, j in pairwise([*begins, len(order)])]
    return [batches[i] for i in rng.permutation(len(batches))]


def noise(lengths: list[int], samples: int, H: int) -> list[Tensor]:
    """(S, T, H) for each sequence, drawn for all first steps, then all second steps …, the longest sequence first."""
    drawn = torch.randn(sum(lengths), samples, H)
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    found = [torch.empty(samples, T, H) for T in lengths]
    row = 0
    for t in range(max(lengths)):
        for i in order:
            if t < lengths[i]:
                found[i][:, t] = drawn[row]
                row += 1
    return found


@dataclass
class Walk:
    """The training by hand."""

    config: Config
    w: dict[str, Tensor]
    lines: list[dict] = field(default_factory=list)
    epochs: list[dict] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    mean: dict[str, Tensor] = field(default_factory=dict)
    biting: int = 0
    """Steps whose gradient was longer than the clip."""

    def __post_init__(self) -> None:
        lengths = [len(x) for split in ("train", "valid") for x in sequences(split)]
        self.log_T = twin.length_law(lengths)

    def terms(self, w: dict[str, Tensor], batch: list[Tensor], samples: int) -> Iterator[tuple[Tensor, ...]]:
        """-log p(x | z), KL and -log p(T) of each sequence, the first two the means over the samples."""
        latent = self.config.model.kind == "latent"
        drawn = noise([len(x) for x in batch], samples, 2) if latent else [None] * len(batch)
        for x, eps in zip(batch, drawn, strict=True):
            log_x, kl = twin.baseline_terms(w, x) if eps is None else twin.latent_terms(w, x, eps)
            yield -log_x.sum(-1).mean(), kl.sum(-1).mean(), -self.log_T[len(x)]

    def run(self) -> None:
        c, seed = self.config.train, self.config.seed
        known = sequences("train")
        lengths = [len(x) for x in known]
        moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.w.items()}
        self.mean = {name: p.clone() for name, p in self.w.items()}
        rate, best, updates = c.lr, math.inf, 0
        assert c.kl_steps is not None
        for epoch in range(c.epochs):
            batches = plan(lengths, c.batch_size, seed, epoch, c.batch_by == "steps")
            for first in range(0, len(batches), c.accumulate):
                group = batches[first : first + c.accumulate]
                weight = min(1.0, max(0.0, (updates - c.kl_steps[0]) / c.kl_steps[1]))
                left = (c.epochs - epoch - first / len(batches)) / c.lr_decay
                lr = rate * (0.5 - 0.5 * math.cos(math.pi * min(1.0, left)))
                w = {name: p.clone().requires_grad_() for name, p in self.w.items()}
                loss, sums = torch.zeros(()), np.zeros(4)
                for number, batch in enumerate(group, start=first):
                    reseed(seed, 1, epoch, number, 0)
                    items = [known[i] for i in batch]
                    for x, (rec, kl, length) in zip(items, self.terms(w, items, c.samples), strict=True):
                        each = rec + weight * kl + length
                        loss = loss + (each if c.batch_by == "steps" else each / (len(x) + 1))
                        sums += [rec.item(), kl.item(), length.item(), len(x) + 1]
                count = sum(map(len, group)) if c.batch_by == "sequences" else sums[3]
                loss = loss / count
                gradients = torch.autograd.grad(loss, list(w.values()), allow_unused=True)
                g = {
                    name: torch.zeros_like(p) if d is None else d
                    for (name, p), d in zip(w.items(), gradients, strict=True)
                }
                norm = math.sqrt(sum(float((d**2).sum()) for d in g.values()))
                self.biting += norm > c.clip
                factor = min(1.0, c.clip / (norm + 1e-6))
                updates += 1
                for name, p in self.w.items():
                    d = factor * g[name]
                    if c.optimizer == "sgd":
                        p -= lr * d
                        continue
                    m, v = moments[name]
                    m.mul_(0.9).add_(0.1 * d)
                    v.mul_(0.999).add_(0.001 * d**2)
                    p -= lr * (m / (1 - 0.9**updates)) / ((v / (1 - 0.999**updates)).sqrt() + 1e-8)
                decay = min(c.ema, (1 + updates) / (10 + updates))
                for name, p in self.w.items():
                    self.mean[name] = decay * self.mean[name] + (1 - decay) * p
                rec, kl, length, steps = sums
                self.lines.append(
                    {
                        "loss": loss.item(),
                        "reconstruction": rec / steps / math.log(2),
                        "kl": kl / steps / math.log(2),
                        "length": length / steps / math.log(2),
                        "kl_weight": weight,
                        "lr": lr,
                    }
                )
            valid = self.valid()
            self.epochs.append(valid)
            weight = min(1.0, max(0.0, (updates - c.kl_steps[0]) / c.kl_steps[1]))
            if valid["negative_elbo"] < best:
                best, self.best = valid["negative_elbo"], dict(self.mean)
            elif weight == 1:
                rate *= c.lr_factor

    def valid(self) -> dict[str, float]:
        """-ELBO of the validation texts and its parts in bits a step, in batches by length, with the mean weights."""
        c, known = self.config.train, sequences("valid")
        order = sorted(range(len(known)), key=lambda i: len(known[i]))
        sums, draws = np.zeros(3), c.eval_samples if self.config.model.kind == "latent" else 1
        with torch.no_grad():
            for number, first in enumerate(range(0, len(order), c.eval_batch)):
                items = [known[i] for i in order[first : first + c.eval_batch]]
                reseed(self.config.seed, 2, number)
                # K = 3 is drawn as 1, 1 and 1, for the NLL at K = 1 and 2 is noted on the way.
                for _ in range(draws):
                    for terms in self.terms(self.mean, items, 1):
                        sums += [float(term) for term in terms]
        rec, kl, length = sums / draws / sum(len(x) + 1 for x in known) / math.log(2)
        return {"negative_elbo": rec + kl + length, "reconstruction": rec, "kl": kl, "length": length}


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
    ("changes", "fast"),
    [
        ({}, True),
        ({"train.optimizer": "sgd", "train.lr": 2.0}, False),
        ({"model.kind": "lstm"}, False),
        ({"model.kind": "lstm", "train.optimizer": "sgd", "train.lr": 5.0}, True),
        ({"train.batch_by": "steps"}, True),
    ],
    ids=["af-af-adam", "af-af-sgd-plain", "lstm-adam-plain", "lstm-sgd", "af-af-steps"],
)
def test_a_training_is_the_one_written_by_hand(tmp_path, changes, fast):
    config = settings(tmp_path / "texts", changes)
    if fast:
        run, finished = train(config, tmp_path / "run")
    else:
        with latflow.fast.off():
            run, finished = train(config, tmp_path / "run")
    assert finished
    reseed(config.seed, 0)
    model = build(config.model, data.load(config.data).spec)
    by_hand = Walk(config, {name: p.detach().clone() for name, p in model.named_parameters()})
    by_hand.run()
    assert len(by_hand.lines) == 12
    assert by_hand.biting >= 6

    lines = run.metrics()
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    for found, wanted in zip(steps, by_hand.lines, strict=True):
        assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    for found, wanted in zip(epochs, by_hand.epochs, strict=True):
        assert found["valid"] == pytest.approx(wanted, rel=1e-8, abs=1e-12)

    last, kept = load_file(run.folder / "trainer.safetensors"), load_file(run.folder / "model.safetensors")
    for name, value in by_hand.w.items():
        for found, wanted in (
            (last[f"model.{name}"], value),
            (last[f"ema.{name}"], by_hand.mean[name]),
            (kept[name], by_hand.best[name]),
        ):
            assert found.dtype == torch.float64
            torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9)
    about = json.loads((run.folder / "config.json").read_text())
    assert about["seed"] == 7
