"""The training loop: steps, validation, checkpoints (paper, section 5 and supplement E).

    loss = mean over the batch of - ELBO(x_i; KL weight) / (T_i + 1),   the ELBO a mean over S samples of z

or, where steps weigh the same (`train.batch_by`), Σ_i - ELBO(x_i; KL weight) / Σ_i (T_i + 1).

Every random number is drawn under a seed of (run's seed, epoch, step, process), and the order of the data is a
function of (seed, epoch), so the trainer's state is its weights, the optimizer's moments and a few counters. A run
that is killed goes on from its last checkpoint and does to the bit what it would have done.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import torch

from latflow.data.base import Batch, Batches, Corpus
from latflow.errors import LatflowError
from latflow.flows.recurrent import round_products
from latflow.models import build
from latflow.training.distributed import World, hardware
from latflow.training.evaluate import Metrics, evaluate, in_unit
from latflow.training.optimize import cosine, kl_weight, make_optimizer, optimizer_tensors, set_optimizer
from latflow.training.report import Reporter
from latflow.training.run import START, TRAINER, WEIGHTS, Run
from latflow.training.seeds import Stream, seeded
from latflow.training.stored import below, set_weights, weights_of
from latflow.training.sums import Sums


@dataclass
class State:
    """Where a run is; with the weights and the optimizer's moments, all there is to save."""

    epoch: int = 0
    """Epochs done."""
    batch: int = 0
    """Batches done of the next one."""
    updates: int = 0
    """Steps of the optimizer, skipped ones included."""
    lr: float = 0.0
    """The learning rate, without the cosine of its end."""
    best: float = math.inf
    """Lowest validation -ELBO, in the unit of the data."""
    best_epoch: int = 0
    stale: int = 0
    """Epochs at KL weight 1 since the validation ELBO or the learning rate last changed for the better."""
    idle: int = 0
    """The same, whatever the learning rate did."""
    bad_steps: int = 0
    """Steps skipped because loss or gradient was not finite."""
    bad_in_row: int = 0
    seconds: float = 0.0
    """Time spent, over all sittings."""
    metrics_size: int = 0
    """Bytes of metrics.jsonl."""
    epoch_sums: Sums = field(default_factory=Sums)
    """Of the steps of this epoch."""
    line_sums: Sums = field(default_factory=Sums)
    """Of the steps since the last line of metrics.jsonl."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> State:
        """What a checkpoint holds; a TypeError if it is something else."""
        sums = {name: Sums.read(raw[name]) for name in ("epoch_sums", "line_sums") if name in raw}
        return cls(**{**raw, **sums})


class Trainer:
    """One process of a run."""

    def __init__(self, run: Run, corpus: Corpus, world: World, reporter: Reporter):
        self.run, self.corpus, self.world, self.reporter = run, corpus, world, reporter
        self.config = run.config.train
        c, music = run.config, corpus.spec.kind == "music"
        self.batches = Batches(
            corpus.splits["train"],
            c.train.batch_size,
            seed=c.seed,
            even=c.train.batch_by == "steps",
            rank=world.rank,
            world=world.size,
            transpose=c.data.transpose if music else 0,
            transpose_zero=c.data.transpose_zero,
            crop=c.data.crop if music else 0,
            unknown=run.spec.unknown_index,
        )
        if len(self.batches) == 0:
            raise LatflowError(f"{corpus.name} has no training sequences")
        self.updates_per_epoch = -(-len(self.batches) // c.train.accumulate)
        with seeded(c.seed, Stream.WEIGHTS):
            self.model = build(c.model, run.spec).to(world.device)
        round_products(self.model, c.train.products == "bfloat16")
        if run.has(START):
            set_weights(self.model, run.read(START)[0], str(run.folder))
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(c.train, self.parameters)
        self.ema = {k: v.clone() for k, v in weights_of(self.model).items()} if c.train.ema else None
        self.state = State(lr=c.train.lr)
        self.stop = threading.Event()
        self._started = self._saved = time.monotonic()
        if run.has(TRAINER):
            self._restore()
        # A crash at the end of the first epoch leaves one such line and no checkpoint; more of them had one.
        elif sum(line["kind"] == "epoch" for line in run.metrics()) > 1:
            raise LatflowError(
                f"{run.folder} has no {TRAINER}, the state of its training, any more: it cannot go on, and to begin "
                f"anew there would overwrite it; latflow train --config {run.folder / 'config.json'} begins elsewhere"
            )
        if world.main:
            run.cut_metrics(self.state.metrics_size)

    # The walk: epochs of steps of batches.

    def fit(self) -> bool:
        """Train to the end; False if interrupted, with a checkpoint saved."""
        c, s = self.config, self.state
        self.reporter.start(self.run, self.model, s.epoch, c.epochs, self.updates_per_epoch, s.updates)
        self._started = self._saved = time.monotonic()
        self._warn_of_short_run()
        while s.epoch < c.epochs and not (c.early_stop and s.idle >= c.early_stop):
            self.model.train()
            batches = self.batches.epoch(s.epoch, start=s.batch)
            while group := list(islice(batches, c.accumulate)):
                if self._update(group):
                    self._save()
                    return False
                # Not between bad steps: what led to them should not be all that is kept.
                if time.monotonic() - self._saved >= 60 * c.checkpoint_minutes and not s.bad_in_row:
                    self._save()
            self._end_epoch()
            self._save()
        if not math.isfinite(s.best):
            raise LatflowError(
                f"no epoch of {self.run.folder} has a finite -ELBO on the validation data; "
                f"train anew with {self._gentler()}"
            )
        if s.epoch < c.epochs:
            self.reporter.stopped_early(s.epoch, s.idle)
        return True

    def _warn_of_short_run(self) -> None:
        c, steps = self.config, self.config.epochs * self.updates_per_epoch
        weight = kl_weight(c, steps, self.updates_per_epoch)
        if weight < 1 and not self.model.exact and self.world.main:
            self.reporter.warn(
                f"the KL weight comes to {weight:.2f} only in these {steps} steps, so the model will not be a good "
                "one; raise train.epochs, or let the weight rise sooner (train.kl_steps, or train.kl_zero and "
                "train.kl_ramp)"
            )

    def _update(self, group: list[Batch]) -> bool:
        """One step of the optimizer on the gradient of a group of batches; True if all are to stop."""
        c, s = self.config, self.state
        weight, lr = kl_weight(c, s.updates, self.updates_per_epoch), self.lr
        sums, stop = self.gradient(group, weight, s.epoch, s.batch)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, c.clip or math.inf)
        s.batch, s.updates = s.batch + len(group), s.updates + 1
        if math.isfinite(sums.loss) and bool(norm.isfinite()):
            for settings in self.optimizer.param_groups:
                settings["lr"] = lr
            self.optimizer.step()
            self._average()
            s.bad_in_row = 0
            s.epoch_sums, s.line_sums = s.epoch_sums + sums, s.line_sums + sums
        else:
            self._skip()
        self.optimizer.zero_grad(set_to_none=True)
        if s.updates % c.log_every == 0:
            figures = self.train_figures(s.line_sums)
            self._line({"kind": "step", **self._position(), "kl_weight": weight, "lr": lr, **figures})
            s.line_sums = Sums()
        self.reporter.step(s.updates, s.epoch, weight, sums, self.corpus.spec)
        return stop

    def gradient(self, group: list[Batch], weight: float, epoch: int, first: int) -> tuple[Sums, bool]:
        """The gradient of the loss over all processes into `.grad`; the sums, and whether any wants to stop."""
        own = Sums()
        for number, batch in enumerate(group, start=first):
            batch = batch.to(self.world.device)
            with seeded(self.run.config.seed, Stream.TRAINING, epoch, number, self.world.rank):
                terms = self.model.terms(batch, self.config.samples)
                steps = batch.lengths + 1
                elbo = terms.elbo(weight)
                loss = -(batch.weight * (elbo if self.batches.even else elbo / steps)).sum()
                loss.backward()
            own += Sums(
                loss=loss.item(),
                reconstruction=_total(terms.reconstruction, batch),
                kl=_total(terms.total_kl, batch),
                length=_total(-terms.log_length, batch),
                steps=_total(steps, batch),
                sequences=_total(torch.ones_like(steps), batch),
            )
        mine = torch.tensor([*own.values, float(self.stop.is_set())], dtype=torch.float64)
        *values, stops = self.world.sum(mine).tolist()
        sums = Sums(*values)
        self.world.sum_gradients(self.parameters)
        for p in self.parameters:
            assert p.grad is not None
            p.grad /= self.weighed(sums)
        return sums, stops > 0

    def weighed(self, sums: Sums) -> float:
        """What the loss is a mean over: sequences, or their steps."""
        return sums.steps if self.batches.even else sums.sequences

    def _end_epoch(self) -> None:
        """Validate, keep the best weights, lower the learning rate on a plateau, tell."""
        c, s = self.config, self.state
        weight = kl_weight(c, s.updates, self.updates_per_epoch)
        with self._averaged():
            metrics = self.validate()
            s.epoch, s.batch = s.epoch + 1, 0
            better = metrics.negative_elbo < s.best
            if better:
                s.best, s.best_epoch = metrics.negative_elbo, s.epoch
                if self.world.main:
                    about = {"epoch": s.epoch, "valid_negative_elbo": s.best}
                    self.run.save(WEIGHTS, weights_of(self.model), about)
        s.stale, s.idle = (0, 0) if better or weight < 1 else (s.stale + 1, s.idle + 1)
        collapsed = not self.model.exact and weight > 0 and metrics.kl < 0.02 * metrics.negative_elbo
        train = self.train_figures(s.epoch_sums)
        s.seconds += time.monotonic() - self._started
        self._started = time.monotonic()
        valid = {k: getattr(metrics, k) for k in ("negative_elbo", "reconstruction", "kl", "length")}
        line = {
            "kind": "epoch",
            **self._position(),
            "kl_weight": weight,
            "lr": self.lr,
            "best": better,
            "collapsed": collapsed,
            "train": train,
            "valid": valid,
            "unit": metrics.name,
            "seconds": s.seconds,
            "bad_steps": s.bad_steps,
            "hardware": hardware(self.world),
        }
        self._line(line)
        self.reporter.epoch(s.epoch, c.epochs, weight, self.lr, train, metrics, better)
        if collapsed:
            self.reporter.warn(
                f"the KL is {metrics.kl:.4f} {metrics.name}: the posterior has collapsed and the latent says nothing; "
                "give it more steps at KL weight 0 (train.kl_zero in epochs, or train.kl_steps in steps)"
            )
        s.epoch_sums = Sums()
        if s.stale >= c.patience:
            s.lr, s.stale = s.lr * c.lr_factor, 0

    def validate(self) -> Metrics:
        """The ELBO of the validation data at KL weight 1, under the same noise every time."""
        c = self.config
        valid = self.corpus.splits["valid"]
        return evaluate(
            self.model,
            valid,
            samples=c.eval_samples,
            batch_size=c.eval_batch,
            seed=self.run.config.seed,
            world=self.world,
        )

    def _skip(self) -> None:
        c, s = self.config, self.state
        s.bad_steps, s.bad_in_row = s.bad_steps + 1, s.bad_in_row + 1
        where = f"epoch {s.epoch + 1}, batch {s.batch}"
        self.reporter.warn(f"{where}: loss or gradient is not finite, step skipped ({s.bad_steps} so far)")
        self._line({"kind": "skipped", **self._position()})
        if s.bad_in_row >= c.max_bad_steps:
            metrics = self.run.folder / "metrics.jsonl"
            raise LatflowError(
                f"{s.bad_in_row} steps in a row had a loss or gradient that is not finite, the last at {where}; see "
                f"the lines before 'skipped' in {metrics}, and train anew with {self._gentler()}"
            )

    def _gentler(self) -> str:
        clip = f"{self.config.clip:g}" if self.config.clip else "never"
        return (
            f"a lower train.lr (now {self.config.lr:g}) or shorter gradients (train.clip, now {clip}): "
            f"latflow train --config {self.run.folder / 'config.json'} --train.lr …"
        )

    # The running mean of the weights.

    def _average(self) -> None:
        if self.ema is not None:
            n = self.state.updates
            decay = min(self.config.ema, (1 + n) / (10 + n))  # of the first steps little is kept
            for name, now in weights_of(self.model).items():
                self.ema[name].lerp_(now, 1 - decay)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """With the mean of the weights in place of the weights, if there is one."""
        if self.ema is None:
            yield
            return
        now = {name: value.clone() for name, value in weights_of(self.model).items()}
        set_weights(self.model, self.ema, "memory")
        try:
            yield
        finally:
            set_weights(self.model, now, "memory")

    @property
    def lr(self) -> float:
        """The learning rate at this place of the training."""
        s = self.state
        return s.lr * cosine(self.config, s.epoch + s.batch / len(self.batches))

    # What is written.

    def _position(self) -> dict[str, int]:
        s = self.state
        return {"epoch": s.epoch, "batch": s.batch, "updates": s.updates}

    def train_figures(self, sums: Sums) -> dict[str, float | None]:
        """Per-step figures in the unit of the data, and the loss that was minimized, in nats."""
        if not sums.steps:
            return {"loss": None, "negative_elbo": None}
        nats = {"reconstruction": sums.reconstruction, "kl": sums.kl, "length": sums.length}
        per_step = {name: in_unit(value, self.corpus.spec) / sums.steps for name, value in nats.items()}
        return {"loss": sums.loss / self.weighed(sums), "negative_elbo": sum(per_step.values()), **per_step}

    def _line(self, line: dict[str, Any]) -> None:
        if self.world.main:
            self.state.metrics_size = self.run.append(line)
            self.reporter.scalars(line)

    def _save(self) -> None:
        """The last checkpoint: one file, so that weights, moments and counters are always of the same step."""
        s = self.state
        s.seconds += time.monotonic() - self._started
        self._started = self._saved = time.monotonic()
        if not self.world.main:
            return
        tensors = {f"model.{name}": value for name, value in weights_of(self.model).items()}
        tensors |= {f"ema.{name}": value for name, value in (self.ema or {}).items()}
        tensors |= optimizer_tensors(self.optimizer)
        self.run.save(TRAINER, tensors, asdict(s))

    def _restore(self) -> None:
        tensors, state = self.run.read(TRAINER)
        try:
            self.state = State.read(state)
        except TypeError as error:
            raise LatflowError(f"{self.run.folder / TRAINER} is damaged: {error}") from None
        where = str(self.run.folder)
        set_weights(self.model, below("model.", tensors), where)
        if self.ema is not None:
            mean = below("ema.", tensors) or weights_of(self.model)
            self.ema = {name: value.clone().to(self.world.device) for name, value in mean.items()}
        set_optimizer(self.optimizer, below("optimizer.", tensors))
        if self.state.best_epoch:
            self.run.check_best()


def _total(values: torch.Tensor, batch: Batch) -> float:
    """The sum over the sequences of a batch, those that only fill a process's share left out."""
    return (values.detach() * batch.weight).sum().item()
