"""Latent normalizing flows for discrete sequences."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latflow import fast
    from latflow.axes import register
    from latflow.training.evaluate import evaluate
    from latflow.training.fit import resume, train
    from latflow.training.run import load
    from latflow.use.export import save
    from latflow.use.given import given
    from latflow.use.hub import from_pretrained
    from latflow.use.sample import sample
    from latflow.use.score import score

__version__ = "0.2.0"
__all__ = [
    "__version__",
    "evaluate",
    "fast",
    "from_pretrained",
    "given",
    "load",
    "register",
    "resume",
    "sample",
    "save",
    "score",
    "train",
]

_WHERE = {
    "train": "latflow.training.fit",
    "resume": "latflow.training.fit",
    "evaluate": "latflow.training.evaluate",
    "load": "latflow.training.run",
    "save": "latflow.use.export",
    "from_pretrained": "latflow.use.hub",
    "score": "latflow.use.score",
    "sample": "latflow.use.sample",
    "given": "latflow.use.given",
    "register": "latflow.axes",
}


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is first used, so that `latflow --help` does not."""
    if name == "fast":
        return import_module("latflow.fast")
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
