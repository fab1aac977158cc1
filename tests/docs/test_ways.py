"""docs/ways.md: every command runs as it stands, on less of the page's own data, and makes what the page says."""

from __future__ import annotations

import csv
import re
from itertools import islice
from pathlib import Path

import pytest

from latflow.data.midi import read_midi
from tests.docs.pages import blocks, commands, execute, page, section

WAYS = page("docs/ways.md")
TEXT = section(WAYS, "Own text, beside the LSTM, in a LaTeX table")
MUSIC = section(WAYS, "A folder of MIDI, to sounds")
EVENTS = section(WAYS, "Event logs, to a ranked CSV")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shorten(path: Path, lines: int) -> None:
    """The first lines of a file: passes take time by the line."""
    with path.open(encoding="utf-8") as file:
        kept = "".join(islice(file, lines))
    path.write_text(kept, encoding="utf-8", newline="\n")


def test_all_commands_of_the_page_are_in_one_of_its_three_ways():
    assert sum(len(commands(part)) for part in (TEXT, MUSIC, EVENTS)) == len(commands(WAYS)) == 13


def test_own_text_ends_in_a_table(here, capsys):
    (make,) = blocks(TEXT)
    exec(compile(make, "ways.md", "exec"), {})
    assert len((here / "my.txt").read_text(encoding="utf-8").splitlines()) == 1000
    shorten(here / "my.txt", 100)
    for words in commands(TEXT):
        assert execute(words) == 0, (words, capsys.readouterr().err)
    table = (here / "table.tex").read_text(encoding="utf-8").splitlines()
    shown = re.findall(r"```latex\n(.*?)```", TEXT, re.DOTALL)[0].splitlines()
    assert len(table) == len(shown)
    assert [line for line in table if "&" not in line][1:] == [line for line in shown if "&" not in line][1:]
    assert [line.split("&")[0] for line in table] == [
        line.split("&")[0] if "&" in line else found for line, found in zip(shown, table, strict=True)
    ]
    assert {"curves.png", "curves.svg"} <= {path.name for path in here.iterdir()}
    drawn = capsys.readouterr().out.splitlines()[-5:]
    assert all(line.startswith("the value of ") for line in drawn)


def test_a_folder_of_midi_ends_in_sounds(here, capsys):
    for words in commands(MUSIC):
        assert execute(words) == 0, (words, capsys.readouterr().err)
    assert {path.name for path in (here / "mine").iterdir()} == {
        f"{name}.{kind}" for name in ("piece-1", "piece-2", "harmony") for kind in ("mid", "wav", "png")
    }
    given, found, piece = (
        read_midi(here / name, 1) for name in ("tunes/tune-1.mid", "mine/harmony.mid", "mine/piece-2.mid")
    )
    assert (len(given), len(found), len(piece)) == (24, 24, 32)  # a step is a beat, as in the chorales
    assert [max(step.nonzero()[0], default=-1) for step in found] == [
        max(step.nonzero()[0], default=-1) for step in given
    ]


def test_event_logs_end_in_a_ranked_table_with_the_odd_sessions_first(here, capsys):
    (make,) = blocks(EVENTS)
    exec(compile(make, "ways.md", "exec"), {})
    for words in commands(EVENTS):
        assert execute(words) == 0, (words, capsys.readouterr().err)
    with (here / "ranked.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["index"] for row in rows[:2]] == ["20", "8"]
    assert [row["anomaly"] for row in rows[:2]] == ["True", "True"]
    values = [float(row["nll_per_step"]) for row in rows]
    assert values == sorted(values, reverse=True)
    assert ",".join(rows[0]) in EVENTS  # the header that the page shows
    header = (here / "steps.csv").read_text(encoding="utf-8").splitlines()[0]
    assert "token_1,surprise_1,token_2" in header
