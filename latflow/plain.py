"""Values as strict JSON can hold them, and text as a terminal can show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from unicodedata import category


def plain(value: Any, digits: int | None = None) -> Any:
    """The same with None for a number that is not finite, and floats of so many digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    return value


def shown(text: str) -> str:
    """Text in which control characters, and bytes that are no text, are escaped: it is one line, and what a file holds
    does not steer a terminal."""
    return "".join(repr(c)[1:-1] if category(c) in ("Cc", "Cs") else c for c in text)
