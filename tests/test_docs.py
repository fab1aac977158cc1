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


def examples() -> list[str]:
    return re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "using.md").read_text(encoding="utf-8"), re.DOTALL
    )


def test_the_example_of_scores_runs_as_it_stands(capsys, tmp_path, monkeypatch):
    """The line of nonsense is the more surprising."""
    monkeypatch.chdir(tmp_path)
    exec(compile(examples()[1], "using.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "Zzz qqq xxx zzz qqq xxx."
    assert (tmp_path / "scores.csv").read_text(encoding="utf-8").startswith("index,")


def test_the_example_of_using_z_runs_as_it_stands(capsys):
    """The ends of the way it prints are the two sentences as the model keeps them."""
    block, _ = examples()
    names: dict = {}
    exec(compile(block, "using.md", "exec"), names)
    shape, *kept_and_way = capsys.readouterr().out.splitlines()
    kept, way = kept_and_way[:2], kept_and_way[2:]
    assert shape == "torch.Size([2, 40, 2])"
    assert names["draw"].shape == (1, 30, 2)
    assert len(way) == 6
    assert [way[0], way[-1]] == kept
    assert [len(names["first"]), len(names["last"])] == [len(text) for text in kept]
