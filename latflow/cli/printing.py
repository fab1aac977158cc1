"""Tables on a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Any

from latflow.plain import shown


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(rows: list[list[str]], header: list[str]) -> None:
    """Columns under their names; the first to the left, numbers to the right. On a terminal the widest column is
    broken where the table is wider than that."""
    rows = [list(map(shown, row)) for row in rows]
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    widest = widths.index(max(widths))
    room = _columns() - sum(widths) - 2 * (len(widths) - 1) + widths[widest]
    if room < widths[widest]:
        widths[widest] = max(room, 20)
    for row in table:
        lines = textwrap.wrap(row[widest], widths[widest]) or [""]
        for number, line in enumerate(lines):
            texts = [line if i == widest else text * (number == 0) for i, text in enumerate(row)]
            cells = [
                text.rjust(width)
                if text[:1].isdigit() or (row is header and rows[0][i][:1].isdigit())
                else text.ljust(width)
                for i, (text, width) in enumerate(zip(texts, widths, strict=True))
            ]
            print("  ".join(cells).rstrip())


def _columns() -> int:
    """Of the terminal; what goes into a file or a pipe is not broken."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return 1 << 20
