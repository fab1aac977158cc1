"""The docs name only what is there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SYMBOLS = sorted(
    set(re.findall(r"`(latflow(?:\.\w+)+)`", (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")))
)


def test_the_table_of_equations_names_symbols():
    assert len(SYMBOLS) > 20


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_of_the_table_of_equations_exists(symbol):
    parts = symbol.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            found = getattr(found, name)
        assert found.__doc__ or callable(found)
        return
    pytest.fail(f"no module for {symbol}")
