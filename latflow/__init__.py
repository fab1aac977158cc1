"""Latent normalizing flows for discrete sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latflow.run import load, save

__version__ = "0.1.0"
__all__ = ["__version__", "load", "save"]


def __getattr__(name: str) -> Any:
    """`latflow.load` and `latflow.save` import torch when they are first used, so that `latflow --help` does not."""
    if name in ("load", "save"):
        from latflow import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
