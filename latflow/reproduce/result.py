"""The file of one finished run, evaluated once on the test set: small, readable, all that a table needs.

A file holds what was measured and nothing that follows from it. Whether a result may stand beside the paper's number
is decided when it is shown, from the config that it was trained with and the preset as it is now.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from latflow.config import Config, flatten, from_dict
from latflow.data.files import readable, writing
from latflow.errors import LatflowError
from latflow.lines import PLACES, TERMS, read_lines
from latflow.plain import plain
from latflow.presets import PRESETS
from latflow.reproduce.tables import command_of

FORMAT = 1
SAMPLES = 50
"""K of the paper's estimates."""

NO_MATTER = (
    "data.data_dir",
    "train.device",
    "train.eval_batch",
    "train.log_every",
    "train.checkpoint_minutes",
    "train.tensorboard",
    "train.max_bad_steps",
)
"""Fields that do not change what is trained."""

HOW = ("train.", "data.transpose", "data.crop", "seed")
"""Fields that change how a model is trained, not what it is or what it is measured on."""


@dataclass(frozen=True)
class Result:
    """What is known of a run."""

    preset: str
    command: str
    """What gave this result, with the presets of its time."""
    seed: int
    epochs: int
    """Epochs trained."""
    best_epoch: int
    """The epoch with the best validation ELBO, whose weights were evaluated."""
    minutes: float
    """Of training and validation."""
    parameters: int
    hardware: str
    versions: Mapping[str, str]
    metrics: Mapping[str, Any]
    """`latflow.training.evaluate.Metrics` of the test set."""
    config: Mapping[str, Any]
    curve: Mapping[str, list[float | None]]
    """A column for each figure of an epoch."""
    commit: str | None = None
    """That of the code it was trained with; a + behind it: with changes that were not committed. None: not recorded."""
    begin: Mapping[str, list[float]] | None = None
    """`updates` and the mean `loss` of the steps up to each: the first lines of its training, to be held against those
    of a run today. None: not recorded."""

    @property
    def trained_with(self) -> Config:
        return from_dict(self.config)

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Fields in which the run differs from its preset as it is now: (the run's, the preset's)."""
        return changes(self.preset, self.trained_with)

    @property
    def comparable(self) -> bool:
        """Whether it may stand beside its row of the paper: the row's own preset, its sizes and its data."""
        return comparable(self.preset, self.trained_with)

    def write(self, path: Path) -> None:
        """A line for each field, so that a change of one is seen as such."""
        raw = {"format": FORMAT, **asdict(self)}
        lines = (
            f"  {json.dumps(name)}: {json.dumps(plain(value, 6), ensure_ascii=False)}"
            for name, value in raw.items()
        )
        with writing(path) as new:
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            new.write_text(text, encoding="utf-8", errors="backslashreplace")

    @classmethod
    def read(cls, path: Path) -> Result:
        """What `write` wrote; anything else is a LatflowError that names the file."""
        try:
            with readable(path):
                raw = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise LatflowError(f"{path} is damaged: {error}") from None
        names = [field.name for field in fields(cls)]
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise LatflowError(f"{path} is not a result of latflow in format {FORMAT}")
        missing = [name for name in names if name not in raw and name not in ("commit", "begin")]
        if missing:
            raise LatflowError(f"{path} is damaged: it has no {missing[0]}")
        result = cls(**{name: raw[name] for name in names if name in raw})
        try:
            _check(result)
        except LatflowError as error:
            raise LatflowError(f"{path} is damaged: {error}") from None
        return result


KINDS: dict[str, Any] = {
    "preset": str,
    "command": str,
    "epochs": int,
    "best_epoch": int,
    "minutes": (int, float),
    "parameters": int,
    "hardware": str,
    "versions": dict,
    "metrics": dict,
    "curve": dict,
}
METRICS = {
    (int, float): ("nll", "samples", "sequences", "effective_samples"),
    (int, float, type(None)): TERMS,  # None: not finite
    (str,): ("unit", "step_name"),
}
"""What every result has in its metrics."""
COLUMNS = (*PLACES, *(f"{part}_{name}" for part in ("train", "valid") for name in TERMS))
"""What every curve has."""


def _check(result: Result) -> None:
    """That what tables and figures are made of is there, and of the right kind."""
    for name, kind in KINDS.items():
        if not isinstance(getattr(result, name), kind):
            raise LatflowError(f"its {name} is {getattr(result, name)!r:.40}")
    _ = result.trained_with
    metrics, curve = result.metrics, result.curve
    for kinds, names in METRICS.items():
        for name in names:
            if name not in metrics:
                raise LatflowError(f"its metrics have no {name}")
            if not isinstance(metrics[name], kinds):
                raise LatflowError(f"{name} in its metrics is {metrics[name]!r}")
    for name in COLUMNS:
        column = curve.get(name)
        if not isinstance(column, list) or len(column) != result.epochs:
            raise LatflowError(f"its curve has no column {name} of {result.epochs} epochs")
        kinds = (int, float) if name in PLACES else (int, float, type(None))  # None: not finite
        if not all(isinstance(value, kinds) for value in column):
            raise LatflowError(f"the column {name} of its curve has what is no number")
    if result.best_epoch not in range(1, result.epochs + 1):
        raise LatflowError(f"its best_epoch is {result.best_epoch!r} of {result.epochs}")


def changes(preset: str, config: Config) -> dict[str, tuple[Any, Any]]:
    """Fields that matter in which a config differs from a preset: (the config's, the preset's)."""
    if preset not in PRESETS:
        return {}
    ours, theirs = flatten(config), flatten(PRESETS[preset].config)
    return {
        name: (ours.get(name), theirs.get(name))
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name) and name not in NO_MATTER
    }


def comparable(preset: str, config: Config) -> bool:
    """Whether a run of this config may stand beside the preset's row of the paper: its sizes and its data."""
    row = PRESETS.get(preset)
    return row is not None and row.paper is not None and all(map(_is_how, changes(preset, config)))


def command(preset: str, config: Config) -> str:
    """What makes the result anew; a run with fields of its own is trained by name first, where the second finds it."""
    changed, measured = changes(preset, config), f"{command_of(preset)} --anew"
    if not changed:
        return measured
    options = " ".join(f"--{name} {shlex.quote(_typed(ours))}" for name, (ours, _) in changed.items())
    return f"latflow train {preset} {options} && {measured}"


def _typed(value: Any) -> str:
    """A field's value as the command line takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _is_how(name: str) -> bool:
    return name.startswith(HOW) or name.endswith("dropout")


def result_path(folder: Path, preset: str) -> Path:
    """Where the result of a preset lies."""
    return folder / f"{preset}.json"


def read_results(folder: Path) -> dict[str, Result]:
    """All results of presets in a folder, by preset; none if there is no folder."""
    paths = {name: result_path(folder, name) for name in PRESETS}
    found = {name: Result.read(path) for name, path in paths.items() if path.is_file()}
    for name, result in found.items():
        if result.preset != name:
            raise LatflowError(f"{paths[name]} is the result of {result.preset}, not of {name}")
    return found


def curve_of(lines: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """The epochs of a metrics.jsonl as columns: epoch, updates, kl_weight, lr, seconds, train_kl, valid_kl ..."""
    rows = []
    for line in lines:
        if line.get("kind") == "epoch":
            row = {name: line.get(name) for name in PLACES}
            for part in ("train", "valid"):
                row |= {f"{part}_{name}": value for name, value in line.get(part, {}).items()}
            rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def begin_of(lines: list[dict[str, Any]], n: int = 3) -> dict[str, list[float]]:
    """The first n lines of steps of a metrics.jsonl."""
    first = [line for line in lines if line.get("kind") == "step" and "loss" in line][:n]
    return {name: [line[name] for line in first] for name in ("updates", "loss")}


def best_index(column: Sequence[float | None]) -> int:
    """Where the lowest of the known values stands."""
    known = [(value, i) for i, value in enumerate(column) if value is not None]
    if not known:
        raise LatflowError("no epoch has a finite validation ELBO")
    return min(known)[1]


def run_status(folder: Path) -> str:
    """Of a run without a result, from its files: "not run", or how far it is."""
    if not (folder / "run.json").is_file():
        return "not run"
    try:
        config = from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8"))).train
        done = [line for line in read_lines(folder / "metrics.jsonl") if line["kind"] == "epoch"]
        idle = 0  # as the trainer counts them
        for line in done:
            idle = 0 if line.get("best") or line["kl_weight"] < 1 else idle + 1
    except (OSError, ValueError, RecursionError, LatflowError) as error:
        raise LatflowError(f"the run at {folder} is damaged: {error}") from None
    if len(done) >= config.epochs or (config.early_stop and idle >= config.early_stop):
        return "trained, not evaluated"
    return f"unfinished: {len(done)} of {config.epochs} epochs"
