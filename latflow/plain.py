"""Values as strict JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


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
