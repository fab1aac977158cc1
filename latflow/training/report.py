"""What a training run shows: a progress bar with rich on a terminal, plain lines elsewhere, TensorBoard if asked."""

from __future__ import annotations

import math
import signal
import sys
import time
from types import TracebackType
from typing import Any

from latflow.config import TrainConfig
from latflow.data.base import DataSpec
from latflow.errors import LatflowError
from latflow.models import SequenceModel
from latflow.training.distributed import World
from latflow.training.evaluate import Metrics, in_unit
from latflow.training.run import Run
from latflow.training.sums import Sums

PLAIN_SECONDS = 30
"""Plain lines inside an epoch come no more often than this."""


class Reporter:
    """Shows a run while it trains; `quiet` shows warnings only."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.stopped_by: int | None = None
        """The signal that ended the training before its end."""
        self.bar: Any = None
        self.board: Any = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.board is not None:
            self.board.close()
        self.bar = self.board = None

    @property
    def stop_code(self) -> int:
        """After a signal 128 and its number, as shells expect: 130 after Ctrl-C, 143 after a polite kill."""
        return 128 + (self.stopped_by or signal.SIGINT)

    def start(
        self, run: Run, model: SequenceModel, epoch: int, epochs: int, per_epoch: int, updates: int
    ) -> None:
        """Before the first step: the run, and how many steps are done and to do."""
        self.total, self.per_epoch, self.exact = epochs * per_epoch, per_epoch, model.exact
        self.first, self.began = updates, time.monotonic()
        self.shown, self.steps, self.since = self.began, 0.0, self.began
        self.mean, self.early = 0.0, False
        self.up_to = "up to " if 0 < run.config.train.early_stop < epochs else ""
        if run.config.train.tensorboard and World.is_main():
            self.board = _summary_writer(run)
        if self.quiet:
            return
        size = sum(p.numel() for p in model.parameters())
        self.say(f"{run.folder}: {size:,} parameters, {per_epoch} steps an epoch, {passes(run.config.train)}")
        if updates:
            self.say(f"going on after epoch {epoch}, step {updates} of {self.total}")
        if sys.stdout.isatty():
            self.bar = _bar()
            self.task = self.bar.add_task("", total=self.total, completed=updates, text="")
            self.bar.start()

    def step(self, updates: int, epoch: int, weight: float, sums: Sums, spec: DataSpec) -> None:
        """After every step."""
        if self.quiet:
            return
        self.steps += sums.steps
        early = self._early(weight)
        nats = sums.reconstruction if early else sums.negative_elbo
        if early != self.early:  # from here on it is another figure
            self.early, self.mean = early, 0.0
        elbo = in_unit(nats, spec) / max(sums.steps, 1.0)
        if math.isfinite(elbo):  # a step that is not is skipped
            self.mean = elbo if not self.mean else 0.95 * self.mean + 0.05 * elbo
        now = time.monotonic()
        if now - self.shown < (0.2 if self.bar else PLAIN_SECONDS):
            return
        self.shown = now
        rate = self.steps / max(now - self.since, 1e-9)
        what = "reconstruction" if early else "NLL" if self.exact else "NLL below"
        weighed = "" if self.exact else f"KL weight {weight:.2f}  "
        text = (
            f"epoch {epoch + 1}  step {updates}/{self.total}  {what} {self.mean:.3f} {spec.unit} per {spec.step_name}  "
            f"{weighed}{rate:,.0f} {spec.step_name}s/s"
        )
        if self.bar:
            self.bar.update(self.task, completed=updates, text=text)
        else:
            self.say(f"{text}  {self._left(updates)} left")

    def epoch(
        self,
        epoch: int,
        epochs: int,
        weight: float,
        lr: float,
        train: dict[str, float | None],
        valid: Metrics,
        better: bool,
    ) -> None:
        """After every epoch."""
        if self.quiet:
            return
        early = self._early(weight)
        trained = train.get("reconstruction" if early else "negative_elbo")
        shown = "-" if trained is None else format(trained, ".4f")
        if self.exact:
            found = f"valid NLL {valid.nll:.4f} {valid.name}"
        elif early:  # the KL counts for little, so that a bound with all of it is any number
            found = f"valid reconstruction {valid.reconstruction:.4f} {valid.name}"
        else:
            found = (
                f"valid NLL below {valid.negative_elbo:.4f} {valid.name} (reconstruction {valid.reconstruction:.4f} "
                f"+ KL {valid.kl:.4f} + length {valid.length:.4f})"
            )
        weighed = "" if self.exact else f"KL weight {weight:.2f}  "
        self.say(
            f"epoch {epoch}/{epochs}  {found}  train {shown}  {weighed}lr {lr:.2g}  "
            f"{self._left(epoch * self.per_epoch)} left{'  best' if better else ''}"
        )

    def stopped_early(self, epoch: int, idle: int) -> None:
        """After the last epoch, if it was not to be the last."""
        if not self.quiet:
            self.say(
                f"stopped after epoch {epoch}: the last {idle} were no better on the validation data "
                "(train.early_stop); the best weights are kept"
            )

    def _early(self, weight: float) -> bool:
        """While the KL hardly counts, the reconstruction is what is learned."""
        return not self.exact and weight < 0.25

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", sys.stderr)

    def say(self, text: str, stream: Any = None) -> None:
        """A line of its own, above the bar if there is one."""
        if self.bar:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=stream or sys.stdout, flush=True)

    def scalars(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl for TensorBoard."""
        if self.board is not None:
            for group, values in (
                ("", line),
                ("train/", line.get("train", {})),
                ("valid/", line.get("valid", {})),
            ):
                for name, value in values.items():
                    if isinstance(value, float):
                        self.board.add_scalar(f"{line['kind']}/{group}{name}", value, line["updates"])

    def _left(self, updates: int) -> str:
        done = updates - self.first
        if done <= 0:
            return "?"
        seconds = (time.monotonic() - self.began) / done * (self.total - updates)
        return self.up_to + (f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h")


def passes(config: TrainConfig) -> str:
    """How many epochs there will be."""
    said = f"{config.epochs} epoch{'s' * (config.epochs > 1)}"
    if not 0 < config.early_stop < config.epochs:
        return said
    return f"up to {said}, until {config.early_stop} in a row are no better"


def _bar() -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(TextColumn("{task.fields[text]}"), BarColumn(bar_width=20), TimeRemainingColumn())


def _summary_writer(run: Run) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise LatflowError(
            "train.tensorboard is on but TensorBoard is not installed; pip install 'latflow[tensorboard]'"
        ) from None
    return SummaryWriter(str(run.folder / "tensorboard"))
