"""A run's folder: all that is needed to go on training, to score and to sample, on any machine.

    run.json             what this folder is: format, preset, seed, versions of the packages, names it needs
    config.json          the whole config; `latflow train --config config.json` starts the same run anew
    data.json            the data spec: vocabulary and p(T)
    model.safetensors    the weights with the best validation ELBO so far
    trainer.safetensors  the last checkpoint: weights, moments of the optimizer, counters
    start.safetensors    the weights it begins with, if they are those of another run (`latflow train --from`)
    metrics.jsonl        one JSON object a line: the loss every `log_every` steps, and each epoch

Every file but metrics.jsonl is written beside its place and then moved there, so that at any moment there is a whole
file or none; metrics.jsonl is cut back to what the checkpoint knows when a run goes on. Nothing is unpickled.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import safetensors
import torch
from torch import Tensor

import latflow
from latflow import data, shipped
from latflow.axes import AXES
from latflow.config import Config, choices, from_dict, to_dict
from latflow.data.base import Corpus, DataSpec
from latflow.errors import LatflowError
from latflow.former import renamed
from latflow.lines import read_lines
from latflow.models import SequenceModel, build
from latflow.plain import plain
from latflow.training.stored import below, read_json, read_tensors, save_tensors, set_weights, write_json

try:
    import fcntl
except ImportError:  # not a Unix: nothing keeps a second writer out there
    fcntl = None

FORMAT = 2
READABLE = (1, 2)
"""Format 1 had flat options and other names for a few weights; it is read as what it is now."""
WEIGHTS, TRAINER, METRICS = "model.safetensors", "trainer.safetensors", "metrics.jsonl"
START = "start.safetensors"
"""The weights of another run that this one begins with."""


class FolderTaken(LatflowError):
    """Where a new run was to be, there is something."""


@dataclass(frozen=True)
class Run:
    """An open run."""

    folder: Path
    config: Config
    spec: DataSpec
    preset: str | None
    contents: Mapping[str, str] = field(default_factory=dict)
    """A hash of each split of the data, as `Corpus.contents` gave it; empty where it was not recorded."""

    @classmethod
    def create(
        cls,
        folder: str | Path,
        config: Config,
        spec: DataSpec,
        preset: str | None = None,
        contents: Mapping[str, str] | None = None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Run:
        """A new folder, which appears complete or not at all; with `weights`, a model alone."""
        folder = _named(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            goes_on = f", or go on with --resume {folder}" if (folder / "run.json").is_file() else ""
            raise FolderTaken(f"{folder} exists already; name another with --run{goes_on}")
        about = {
            "format": FORMAT,
            "preset": preset,
            "seed": config.seed,
            "commit": commit(),
            "versions": {
                "latflow": latflow.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": numpy.__version__,
                "safetensors": safetensors.__version__,
            },
            "data": dict(contents or {}),
            "needs": {
                f"{c.axis} {c.name}": origin
                for c in choices(config)
                if (origin := AXES[c.axis][c.name].origin) is not None
            },
        }
        try:
            place = Path(os.path.realpath(folder))  # a link to another disk stays one
            place.parent.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
            try:
                write_json(new / "config.json", to_dict(config))
                write_json(new / "data.json", spec.to_dict())
                write_json(new / "run.json", about)
                if weights is not None:
                    save_tensors(new / WEIGHTS, weights, {})
                new.chmod(0o755)
                os.replace(new, place)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        except (OSError, safetensors.SafetensorError) as error:
            number, why = getattr(error, "errno", None), getattr(error, "strerror", None)
            if folder.is_dir() and number in (errno.ENOTEMPTY, errno.EEXIST):
                raise FolderTaken(f"{folder} was made by another process; name another with --run") from None
            raise LatflowError(f"cannot make the run's folder {folder}: {why or error}") from None
        return cls(folder, config, spec, preset, dict(contents or {}))

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Read a folder, or a shipped model by its name; what is missing, foreign or damaged is a LatflowError."""
        folder = _named(shipped.find(folder))
        if not (folder / "run.json").is_file():
            taken = str(folder) in shipped.names()
            hidden = "; it hides the shipped model of that name: rename it or work elsewhere" if taken else ""
            raise LatflowError(f"{folder} is not a run of latflow: it has no run.json{hidden}")
        about = read_json(folder / "run.json")
        if not isinstance(about, dict) or about.get("format") not in READABLE:
            given = about.get("format") if isinstance(about, dict) else about
            raise LatflowError(
                f"{folder / 'run.json'} has format {given!r}; this version of latflow reads format {FORMAT}"
            )
        given, described = read_json(folder / "config.json"), read_json(folder / "data.json")
        try:
            config, spec = from_dict(given), DataSpec.from_dict(described)
        except LatflowError as error:
            missing = _missing(about.get("needs"))
            what = f"needs {missing}" if missing else f"is damaged: {error}"
            raise LatflowError(f"the run at {folder} {what}") from None
        preset, contents = about.get("preset"), about.get("data")
        return cls(
            folder,
            config,
            spec,
            preset if isinstance(preset, str) else None,
            contents if isinstance(contents, dict) else {},
        )

    def corpus(self, data_dir: str | None = None) -> Corpus:
        """The data this run was trained on, as this machine has it, in `data_dir` if that is given."""
        config = data.like(data.placed(self.config.data, data_dir), self.spec)
        own = Path(config.name.partition(":")[2]) if ":" in config.name else None
        if own is not None and not own.exists():
            raise LatflowError(
                f"the data of the run at {self.folder} is not at {own}; --data-dir DIR (of train --resume, evaluate, "
                "compare, score and plot) names the folder in which it is now"
            )
        corpus = data.load(config, among=self.spec)
        self.check_data(corpus)
        return corpus

    def check_data(self, corpus: Corpus) -> None:
        """That the data here is what this run was trained on: symbols, lengths, and every sequence of every split."""
        what = ""
        if corpus.spec != self.spec:
            what = "its symbols or lengths are others"
        elif self.contents:
            own = corpus.contents()
            what = ", ".join(name for name in own if own[name] != self.contents.get(name))
            what = what and f"other sequences, or another order, in {what}"
        if what:
            raise LatflowError(
                f"the data {corpus.name!r} here ({corpus.origin}) is not what the run at {self.folder} was "
                f"trained on: {what}"
            )

    def save(self, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Tensors and what JSON can hold, as one file, at once. If that fails the file before it stays."""
        try:
            save_tensors(self.folder / name, tensors, state)
        except (OSError, safetensors.SafetensorError) as error:
            raise LatflowError(f"cannot write {self.folder / name}: {error}{self._goes_on()}") from None

    def read(self, name: str) -> tuple[dict[str, Tensor], Any]:
        """What `save` wrote; a file cut short or altered is a LatflowError."""
        try:
            tensors, state = read_tensors(self.folder / name)
        except FileNotFoundError:
            raise LatflowError(f"the run at {self.folder} has no {name} yet") from None
        return {_as_now(key): value for key, value in tensors.items()}, state

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Holds the folder as the only process that trains in it; the hold ends with the process, however it ends."""
        if fcntl is None:
            yield
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise LatflowError(
                f"another process is training in {self.folder}; wait for it or stop it"
            ) from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            os.close(folder)

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    @property
    def alone(self) -> bool:
        """A model without its training: shipped, exported, saved."""
        return self.has(WEIGHTS) and not self.has(TRAINER) and not self.has(METRICS)

    def kept(self, which: str) -> str:
        """Which weights `model` takes: the last where there are no best ones yet; those that are gone are missed."""
        if which != "best" or self.has(WEIGHTS):
            return which
        if any(line.get("best") for line in self.metrics()):
            self.check_best()
        return "last"

    def check_best(self) -> None:
        """That the best weights are there and whole."""
        last = f"the last weights are taken with --weights last, as in latflow sample {self.folder} --weights last"
        if not self.has(WEIGHTS):
            raise LatflowError(f"{self.folder} has no {WEIGHTS}, its best weights, any more; {last}")
        try:
            self.read(WEIGHTS)
        except LatflowError as error:
            raise LatflowError(f"{error}; {last}") from None

    def model(self, which: str = "best") -> SequenceModel:
        """The model with its best weights, or the last; ready to score and to sample."""
        if which not in ("best", "last"):
            raise LatflowError(f"weights {which!r}; accepted: best, last")
        if which == "last" and self.alone:
            raise LatflowError(f"{self.folder} is a model alone, with its best weights only, not the last")
        try:
            model = build(self.config.model, self.spec)
        except (ValueError, RuntimeError, MemoryError) as error:
            raise LatflowError(
                f"the run at {self.folder} has a config no model can be built of: {error}"
            ) from None
        if self.kept(which) == "best":
            tensors, _ = self.read(WEIGHTS)
        elif self.has(TRAINER):
            every, _ = self.read(TRAINER)
            # The mean of the weights, where one is kept, is what is evaluated.
            prefix = "ema." if self.config.train.ema else "model."
            tensors = below(prefix, every)
        else:
            raise LatflowError(
                f"the run at {self.folder} holds no weights yet; train it with --resume {self.folder}"
            )
        set_weights(model, tensors, str(self.folder))
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise LatflowError(f"the run at {self.folder} has weights that are not finite ({name})")
        return model.eval()

    def append(self, line: Mapping[str, Any]) -> int:
        """One line of metrics.jsonl; the file's size behind it."""
        try:
            with (self.folder / METRICS).open("ab") as file:
                file.write(json.dumps(plain(line)).encode() + b"\n")
                return file.tell()
        except OSError as error:
            raise LatflowError(
                f"cannot write {self.folder / METRICS}: {error.strerror or error}{self._goes_on()}"
            ) from None

    def _goes_on(self) -> str:
        """What to do when nothing could be written."""
        if not self.folder.is_dir():
            return "; the run's folder is gone, and with it what was trained"
        kept = "the checkpoint before it is kept, " if self.has(TRAINER) else ""
        return f"; {kept}go on with: latflow train --resume {self.folder}"

    def cut_metrics(self, size: int) -> None:
        """Forget the lines behind `size` bytes: those of steps that will be done again."""
        path = self.folder / METRICS
        if path.is_file() and path.stat().st_size > size:
            os.truncate(path, size)

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics.jsonl."""
        return read_lines(self.folder / METRICS)


def load(folder: str | Path, weights: str = "best") -> SequenceModel:
    """The model of a run, on the CPU, with its best (or "last") weights. Needs the folder and nothing else.

    The name of a shipped model (`latflow models`) stands for its folder.
    """
    return Run.open(folder).model(weights)


def _named(folder: str | Path) -> Path:
    """A run's folder, by a name that all libraries can read."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise LatflowError(f"{folder}: the name of a run's folder must be UTF-8; give it another") from None
    return Path(folder)


def commit() -> str | None:
    """The commit of the code that runs, with a + if files were changed since; None outside of a repository."""
    here = Path(latflow.__file__).parent

    def git(*words: str) -> str:
        found = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        if found.returncode:
            raise OSError(found.stderr)
        return found.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != here.parent:
            return None  # somebody else's repository, with the package installed in it
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--", str(here)) else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _as_now(key: str) -> str:
    """The name of a tensor of `save`, with the weight's own name as it is now."""
    prefix = next((p for p in ("model.", "ema.") if key.startswith(p)), "")
    return prefix + renamed(key.removeprefix(prefix))


def _missing(needs: Any) -> str:
    """What a run was made with that is not there, and where it is to be had."""
    for choice, origin in needs.items() if isinstance(needs, dict) else ():
        axis, _, name = str(choice).partition(" ")
        if axis in AXES and name not in AXES[axis]:
            return (
                f"{axis} {name!r}, which does not come with latflow: it was registered by {origin}; "
                "install or import that first"
            )
    return ""
