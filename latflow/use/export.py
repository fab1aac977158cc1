"""A model alone as a folder to share: without the state of its training and the paths of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from latflow.config import Config, evolve
from latflow.errors import LatflowError
from latflow.models import SequenceModel, build
from latflow.training.run import FolderTaken, Run
from latflow.training.stored import weights_of


def export(run: Run, folder: str | Path, *, half: bool = False) -> Run:
    """The best weights of a run, with its preset and the hashes of its data."""
    return save(run.model(), folder, run.config, preset=run.preset, contents=run.contents, half=half)


def save(
    model: SequenceModel,
    folder: str | Path,
    config: Config,
    *,
    preset: str | None = None,
    contents: Mapping[str, str] | None = None,
    half: bool = False,
) -> Run:
    """A model alone as a folder that `load` reads: to share, without trainer state or paths of this machine.

    `config` built the model. With `half` the weights are float16, half the size; the model that is loaded computes
    in float32 all the same. `contents` is what `Run.contents` says of the data, for `latflow evaluate` to compare.
    """
    taken = LatflowError(f"{folder} exists already; name a folder that does not")
    if Path(folder).exists():
        raise taken
    own, built = (
        {name: tuple(value.shape) for name, value in weights_of(one).items()}
        for one in (model, build(config.model, model.spec))
    )
    if odd := dict(own.items() ^ built.items()):
        name = min(odd)
        shapes = f"{own.get(name, 'missing')} in the model, {built.get(name, 'missing')} by the config"
        raise LatflowError(f"this config did not build this model: {name} is {shapes}")
    weights = halved(weights_of(model)) if half else weights_of(model)
    try:
        return Run.create(folder, portable(config), model.spec, preset, contents, weights)
    except FolderTaken:  # in the meantime
        raise taken from None


def portable(config: Config) -> Config:
    """Without the paths of this machine: of a user's own data the name of the file or folder alone is kept."""
    kind, colon, path = config.data.name.partition(":")
    name = f"{kind}:{Path(path).name}" if colon else kind
    return evolve(config, {"data.data_dir": None, "data.name": name})


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Floats rounded to float16; one beyond its range is refused."""
    found = {name: t.half() if t.is_floating_point() else t for name, t in tensors.items()}
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            largest, limit = float(tensors[name].abs().max()), torch.finfo(torch.float16).max
            raise LatflowError(
                f"{name} has a value of size {largest:g} and half precision ends at {limit:g}; "
                "save the model in full precision"
            )
    return found
