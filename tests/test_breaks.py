"""The list of breaks fits the code as it is now; whether tests notice them is asked by `make breaks`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.breaks.catalogue import BREAKS
from tests.breaks.patch import ROOT, Break, read


def test_every_break_fits():
    sources = {b.file: read(b.file) for b in BREAKS}
    for b in BREAKS:
        assert b.applied(sources[b.file]) != sources[b.file]


def test_the_list_is_long_and_its_names_are_its_own():
    assert len(BREAKS) >= 150
    assert [name for name, count in Counter(b.name for b in BREAKS).items() if count > 1] == []
    rooms = {Path(b.file).parts[1] for b in BREAKS}
    assert rooms >= {"flows", "fast", "models", "training", "use", "data", "reproduce", "cli"}
    for test in {test for b in BREAKS for test in b.tests}:
        assert (ROOT / test.partition("::")[0]).is_file(), test


def test_a_break_that_does_not_fit_is_an_error():
    source = "def f():\n    return 1 + 1\n\n\ndef g():\n    return 1 + 2\n"
    assert Break("b", "x.py", "g", "1 + 2", "3", ()).applied(source).endswith("return 3\n")
    with pytest.raises(LookupError, match=r"break b: '1 \+ 2' occurs 0 times in f of x\.py"):
        Break("b", "x.py", "f", "1 + 2", "3", ()).applied(source)
    with pytest.raises(LookupError, match="'1' occurs 2 times in f"):
        Break("b", "x.py", "f", "1", "3", ()).applied(source)
    with pytest.raises(LookupError, match=r"0 of h in x\.py, not one"):
        Break("b", "x.py", "h", "1", "3", ()).applied(source)
