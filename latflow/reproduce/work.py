"""Train or pick up the run of a row, evaluate it once on the test set, and keep the result as a file."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from latflow.config import Config, flatten, to_dict
from latflow.errors import LatflowError, LatflowWarning
from latflow.presets import Preset
from latflow.progress import counting
from latflow.reproduce.result import SAMPLES, Result, begin_of, best_index, command, curve_of, result_path
from latflow.training.distributed import World, hardware, join
from latflow.training.evaluate import evaluate
from latflow.training.fit import resume, train
from latflow.training.report import Reporter
from latflow.training.run import Run
from latflow.use.export import portable


def reproduce(
    presets: Sequence[Preset],
    runs: Path,
    results: Path,
    *,
    run: Path | None = None,
    anew: bool = False,
    quiet: bool = False,
    reporter: Reporter | None = None,
    done: Callable[[], None] = lambda: None,
) -> bool:
    """Row by row, the result of each: the file if it is there, else train, or go on, and evaluate.

    `run` is the folder of the only preset's run, trained before, if it is not RUNS/PRESET. False: interrupted, the same
    call goes on. With `anew` a row is measured again though its file is there, and the two numbers are told. The
    trainings are shown by `reporter`, which knows the signal if one was interrupted. `done` is called after each new
    result.
    """
    reporter = reporter or Reporter(quiet=quiet)
    if run is not None:
        Run.open(run)  # a name that was mistyped is not a run to begin
    for preset in presets:
        path = result_path(results, preset.name)
        before = Result.read(path) if path.is_file() else None
        if before is not None and not anew:
            _say(f"{preset.name}: have {path} (--anew measures again)", quiet)
            if run is not None:
                warnings.warn(
                    f"{path} is there, so {run} is not evaluated; --anew writes it again, --results elsewhere",
                    LatflowWarning,
                    stacklevel=2,
                )
            continue
        folder = run or runs / preset.name
        _say(f"{preset.name}: {'going on with' if folder.exists() else 'training in'} {folder}", quiet)
        made, finished = _trained(preset, folder, reporter)
        if not finished:
            _say(
                f"\nstopped and saved; the same command goes on with {folder}", quiet=False, stream=sys.stderr
            )
            return False
        result = measure(made, preset, quiet)
        if World.is_main():
            result.write(path)
            _say(f"{preset.name}: wrote {path}{_against(before, result)}", quiet)
        done()
    return True


def _trained(preset: Preset, folder: Path, reporter: Reporter) -> tuple[Run, bool]:
    """The run at its end: resumed if there is one (a finished one ends at once), else trained anew."""
    if not folder.exists():
        return train(preset.config, folder, preset=preset.name, reporter=reporter)
    given, wanted = _row_of(Run.open(folder).config), _row_of(preset.config)
    if given != wanted:
        name = next(name for name, value in given.items() if value != wanted.get(name))
        raise LatflowError(
            f"the run at {folder} is another row than {preset.name}: it has {name} {given[name]}, "
            f"not {wanted.get(name)}"
        )
    return resume(folder, reporter=reporter)


def _row_of(config: Config) -> dict[str, str]:
    """The fields by which the rows of the tables differ, whatever the sizes."""
    names = ["data.name", "model.kind"]
    if config.model.kind == "latent":
        names += [f"model.prior.{axis}" for axis in ("time", "hidden", "scalar")]
        names += ["model.posterior", "model.emission"]
    flat = flatten(config)
    return {name: flat[name] for name in names}


def measure(run: Run, preset: Preset, quiet: bool = True) -> Result:
    """Evaluate the best weights of a finished run on the test set, and gather all that is known of it."""
    with join(run.config.train.device) as world:
        model = run.model().to(world.device)
        corpus = run.corpus()
        if world.main:
            _say(
                f"{preset.name}: evaluating {len(corpus.splits['test'])} test sequences, K = {SAMPLES}", quiet
            )
        with counting("evaluating, batches", quiet=not world.main) as tell:
            metrics = evaluate(
                model,
                corpus.splits["test"],
                samples=SAMPLES,
                world=world,
                truth=None if corpus.truth is None else corpus.truth["test"],
                progress=tell,
            )
        here = hardware(world)
    if not math.isfinite(metrics.nll):
        raise LatflowError(
            f"the NLL of the run at {run.folder} on the test set is {metrics.nll}: no result was written; "
            "train it anew, with a lower train.lr or train.clip"
        )
    lines = run.metrics()
    curve = curve_of(lines)
    if not curve:
        raise LatflowError(f"the run at {run.folder} has no epoch in its metrics.jsonl")
    about = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    return Result(
        preset=preset.name,
        command=command(preset.name, run.config),
        seed=run.config.seed,
        epochs=len(curve["epoch"]),
        best_epoch=1 + best_index(curve["valid_negative_elbo"]),
        minutes=(curve["seconds"][-1] or 0.0) / 60,
        parameters=sum(p.numel() for p in model.parameters()),
        hardware=_trained_on(lines) or here,  # a run of before that was recorded: where it is evaluated
        versions=about.get("versions", {}),
        metrics=metrics.to_dict(),
        config=to_dict(portable(run.config)),
        curve=curve,
        commit=about.get("commit"),
        begin=begin_of(lines),
    )


def _against(before: Result | None, now: Result) -> str:
    """What the file said before, in words."""
    if before is None:
        return ""
    was, is_now = (f"{result.metrics['nll']:.6g}" for result in (before, now))
    return f": NLL {is_now}, {'as before' if is_now == was else f'{was} before'}"


def _trained_on(lines: list[dict[str, Any]]) -> str:
    """What computed the epochs of a run, in their order."""
    return ", then ".join(dict.fromkeys(line["hardware"] for line in lines if line.get("hardware")))


def _say(text: str, quiet: bool, stream: object = None) -> None:
    if not quiet and World.is_main():
        print(text, file=stream or sys.stdout, flush=True)  # type: ignore[arg-type]
