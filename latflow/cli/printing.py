"""Tables on a terminal."""

from __future__ import annotations

from typing import Any


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(rows: list[list[str]], header: list[str]) -> None:
    """Columns under their names; the first to the left, numbers to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        cells = [
            text.rjust(width)
            if text[:1].isdigit() or (row is header and rows[0][i][:1].isdigit())
            else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
