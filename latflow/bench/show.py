"""What a benchmark prints: every row as soon as it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from latflow.fast.hidden import MAPS, MIXTURES
from latflow.flows import ScalarTransform
from latflow.flows.seam import REGISTRY, active

WIDTH = 13


def show_rows(title: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print rows as they come, under the names of the first one's columns, and give them back."""
    print(f"\n{title}", flush=True)
    found: list[dict[str, Any]] = []
    for row in rows:
        if not found:
            print("".join(f"{key:>{_width(key)}}" for key in row))
        print("".join(f"{_show(key, value):>{_width(key)}}" for key, value in row.items()), flush=True)
        found.append(row)
    return found


def show_pairs(title: str, pairs: Mapping[str, float]) -> None:
    """One line."""
    print(f"\n{title}: " + ", ".join(f"{name} {value:.2f}" for name, value in pairs.items()), flush=True)


def show_twins() -> dict[str, list[str]]:
    """Which definitions have twins, and which scalar maps the compiled paths know: all others run plain."""
    active()  # so that twins are registered
    twins = {name: [twin.name for twin in definition.twins] for name, definition in REGISTRY.items()}
    print("\nTwins of each definition (none: it runs as written)")
    for name, names in sorted(twins.items()):
        print(f"  {name:<28} {', '.join(names) or 'none'}")
    known = {kind.__name__ for kind in (*MAPS, *MIXTURES)}
    plain = sorted(kind.__name__ for kind in ScalarTransform.__subclasses__() if kind.__name__ not in known)
    print(
        f"  compiled generation: {', '.join(sorted(known))}; in torch: {', '.join(plain) or 'no other'}",
        flush=True,
    )
    return twins


def _width(key: str) -> int:
    return max(WIDTH, len(key) + 2)


def _show(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if key in ("flops", "peak"):
        return f"{value / 1e9:.0f} G/s"
    if key == "share":
        return f"{value:.0%}"
    return f"{value:.3g}"
