"""What was asked: strict JSON, every field known, of its type and within its bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from latflow.data.base import LOWEST, NOTES, roll_of
from latflow.errors import LatflowError

MOST_SYMBOLS = 1000
MOST_STEPS = 256
MOST_SEED = 2**32 - 1
MISSING: Any = object()


class Fields:
    """A JSON object whose fields are taken one by one; `done` refuses what is left."""

    def __init__(self, body: bytes):
        try:
            found = json.loads(body.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise LatflowError(f"the body is not JSON ({error})") from None
        if not isinstance(found, dict):
            raise LatflowError(f"the body is {type(found).__name__}; an object with fields is expected")
        self.left: dict[str, Any] = found

    def _take(self, name: str, default: Any) -> Any:
        if name in self.left:
            return self.left.pop(name)
        if default is MISSING:
            raise LatflowError(f"{name} is missing")
        return default

    def text(self, name: str, most: int = MOST_SYMBOLS, default: Any = MISSING) -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise LatflowError(f"{name} must be a string")
        if len(value) > most:
            raise LatflowError(f"{name} has {len(value)} characters; at most {most} are taken")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise LatflowError(f"{name} has half of a surrogate pair in it, which is no Unicode text")
        return value

    def choice(self, name: str, accepted: Sequence[str], default: Any = MISSING) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or value not in accepted:
            raise LatflowError(f"{name} is {json.dumps(value)[:60]}; accepted: {', '.join(accepted)}")
        return value

    def whole(self, name: str, low: int, high: int, default: Any = MISSING) -> Any:
        value = self._take(name, default)
        if value is default and default is None:
            return None
        if type(value) is not int or not low <= value <= high:
            raise LatflowError(
                f"{name} is {json.dumps(value)[:40]}; it must be a whole number from {low} to {high}"
            )
        return value

    def number(self, name: str, low: float, high: float, default: Any = MISSING) -> float:
        value = self._take(name, default)
        if type(value) not in (int, float) or not low <= value <= high:  # NaN is not, nor an endless one
            raise LatflowError(f"{name} is {str(value)[:40]!r}; it must be a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, name: str, default: Any = MISSING) -> bool:
        value = self._take(name, default)
        if type(value) is not bool:
            raise LatflowError(f"{name} is {json.dumps(value)[:40]}; it must be true or false")
        return value

    def roll(self, name: str) -> np.ndarray:
        """A list of MIDI notes for each step, as (T, 88)."""
        value = self._take(name, MISSING)
        if not isinstance(value, list) or not all(isinstance(step, list) for step in value):
            raise LatflowError(f"{name} must be a list of steps, each a list of MIDI notes")
        if not 1 <= len(value) <= MOST_STEPS:
            raise LatflowError(f"{name} has {len(value)} steps; from 1 to {MOST_STEPS} are taken")
        if max(map(len, value)) > NOTES:
            raise LatflowError(f"{name}: a step has over {NOTES} notes")
        for step in value:
            for note in step:
                if type(note) is not int or not LOWEST <= note < LOWEST + NOTES:
                    raise LatflowError(
                        f"{name}: {json.dumps(note)[:40]} is no MIDI note from {LOWEST} to {LOWEST + NOTES - 1}"
                    )
        return roll_of(value)

    def done(self) -> None:
        if self.left:
            raise LatflowError(f"unknown field {next(iter(self.left))[:40]!r}")


def _refuse(name: str) -> NoReturn:
    raise LatflowError(f"{name} in the body; JSON has no such number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LatflowError("a field stands twice in the body")
    return found
