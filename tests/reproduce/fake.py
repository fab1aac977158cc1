"""Result files without a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from latflow.config import evolve, to_dict
from latflow.presets import find
from latflow.reproduce.result import COLUMNS, Result
from latflow.reproduce.tables import command_of


def fake(preset: str, nll: float = 1.5, changes: dict[str, Any] | None = None, **metrics: Any) -> Result:
    """A result of the preset, with some fields of its config changed, and these metrics."""
    text = preset.startswith(("ptb", "hmm"))
    known = {
        "unit": "bits" if text else "nats",
        "step_name": "character" if text else "time step",
        "sequences": 100,
        "steps": 5000,
        "samples": 1 if "lstm" in preset else 50,
        "nll": nll,
        "nll_error": 0.01,
        "negative_elbo": nll + 0.1,
        "reconstruction": 0.2,
        "kl": nll - 0.17,
        "length": 0.07,
        "nll_at": {"1": nll + 0.1, "50": nll},
        "effective_samples": 12.5,
        "truth": None,
    }
    config = evolve(find(preset).config, changes or {})
    return Result(
        preset=preset,
        command=command_of(preset),
        seed=config.seed,
        epochs=2,
        best_epoch=2,
        minutes=3.25,
        parameters=1234567,
        hardware="a machine_with & 100 % of $2",
        versions={"torch": "2.9.0"},
        metrics={**known, **metrics},
        config=to_dict(config),
        curve={name: [90.0, 195.0] for name in COLUMNS},
    )


def renamed(result: Result, preset: str) -> Result:
    return replace(result, preset=preset)
