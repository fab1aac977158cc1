"""What is shown of long work, with a clock that jumps."""

import sys
from types import SimpleNamespace

import pytest

from latflow import progress
from latflow.progress import counting, track


@pytest.fixture
def clock(monkeypatch):
    """Six seconds between any two looks at it."""
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=iter(range(0, 6000, 6)).__next__))


def test_lines_come_now_and_then_and_the_end_says_itself(clock, capsys):
    with counting("drawing") as tell:
        for done in range(1, 7):
            tell(done, 6)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "drawing: 2 of 6\ndrawing: 4 of 6\n"


def test_quiet_says_nothing(clock, capsys):
    with counting("drawing", quiet=True) as tell:
        for done in range(1, 7):
            tell(done, 6)
    assert capsys.readouterr().err == ""


def test_the_first_of_many_processes_talks(clock, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with counting("drawing") as tell:
        for done in range(1, 7):
            tell(done, 6)
    assert capsys.readouterr().err == ""


def test_items_pass_through(clock, capsys):
    assert list(track("abcdef", "reading")) == list("abcdef")
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with counting("drawing") as tell:
        tell(3, 6)
        tell(6, 6)
    assert "drawing" in capsys.readouterr().err
