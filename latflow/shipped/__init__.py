"""Trained models that come with the package: a run's folder each, and a card.

    latflow/shipped/NAME/    config.json, data.json, run.json, model.safetensors in half precision
    latflow/shipped/NAME/card.md

`find` is the one place where a name becomes a folder. No torch here: `latflow models` answers at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from latflow.errors import LatflowError

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Card:
    """What `latflow models` says of a model; the numbers stand in its card as `latflow evaluate` printed them."""

    name: str
    about: str
    """The paragraph below the card's title."""
    nll: str
    """On the test data, with its interval."""
    unit: str
    megabytes: float


def names() -> list[str]:
    return sorted(path.parent.name for path in FOLDER.glob("*/run.json"))


def find(run: str | Path) -> Path:
    """A run's folder as it was given or, if there is no such folder, the shipped model of that name."""
    folder = Path(run)
    if folder.is_dir():
        return folder
    if str(folder) in names():
        return FOLDER / folder
    raise LatflowError(
        f"no run at {run}: there is no such folder; accepted: a run's folder, "
        f"or one of the shipped models: {', '.join(names())}"
    )


def card_text(name: str) -> str:
    if name not in names():
        raise LatflowError(f"no shipped model called {name!r}; accepted: {', '.join(names())}")
    return (FOLDER / name / "card.md").read_text(encoding="utf-8")


def card(name: str) -> Card:
    text = card_text(name)

    def first(pattern: str) -> str:
        found = re.search(pattern, text, re.MULTILINE)
        return " ".join(found[1].split()) if found else "-"

    return Card(
        name,
        about=first(r"\A# .+\n\n((?:.+\n)+)"),
        nll=first(r"^ +NLL +(\d\S* ± \d\S*)"),
        unit=first(r"^ +in (\w+ per [\w ]+),"),
        megabytes=sum(file.stat().st_size for file in (FOLDER / name).iterdir()) / 1e6,
    )
