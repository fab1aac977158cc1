"""Latent normalizing flows for discrete sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latflow.training.run import load
    from latflow.use.export import save

__version__ = "0.1.0"
__all__ = ["__version__", "load", "save"]


def __getattr__(name: str) -> Any:
    """`latflow.load` and `latflow.save` import torch when they are first used, so that `latflow --help` does not."""
    if name == "load":
        from latflow.training.run import load

        return load
    if name == "save":
        from latflow.use.export import save

        return save
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
