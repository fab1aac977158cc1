"""What rows a table has: the presets that are ours, and the figures that the paper quotes from other systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from latflow import beyond
from latflow.errors import LatflowError
from latflow.presets import (
    BASE,
    CORPORA,
    LONG_ROWS,
    MUSIC_CORPORA,
    PRESETS,
    ROWS,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TEXT_CORPUS,
    Preset,
)


@dataclass(frozen=True)
class Row:
    """A line of a table: a preset of ours, or another system's figure as the paper quotes it."""

    title: str
    key: str | None = None
    """What the preset of each corpus ends in, as in jsb-af-af; None for a quoted row."""
    quoted: Mapping[str, float] | None = None
    """Corpus -> the figure as the paper prints it, in the unit of the table."""
    source: str = ""


@dataclass(frozen=True)
class Part:
    """The rows of a table on one corpus."""

    corpus: str
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    unit: str
    parts: tuple[Part, ...]
    sizes: bool = True
    """Whether its presets come in the paper's sizes and `-small`; else the keys of its rows say which are meant."""
    truth: bool = False
    """Whether its data have a known truth, which then stands in the place of the paper's numbers."""
    note: str = ""

    def preset(self, part: Part, row: Row, small: bool) -> Preset | None:
        """The preset of a row; None for a quoted one."""
        if row.key is None:
            return None
        return PRESETS[f"{part.corpus}-{row.key}{'-small' if small and self.sizes else ''}"]

    def presets(self, small: bool) -> list[Preset]:
        """All presets of the table in its order."""
        found = (self.preset(part, row, small) for part in self.parts for row in part.rows)
        return [preset for preset in found if preset is not None]


def ours(rows: Iterable[str]) -> tuple[Row, ...]:
    """Rows of ours by their keys, each once."""
    return tuple(Row(ROWS[key].label, key) for key in dict.fromkeys(rows))


def codebook(rows: Iterable[str], size: str = "") -> tuple[Row, ...]:
    """Rows with a codebook by their keys."""
    return tuple(Row(beyond.LABELS[key], f"{key}-codebook{size}") for key in rows)


def part(corpus: str, *rows: Row) -> Part:
    """A part on one of the paper's corpora."""
    return Part(corpus, CORPORA[corpus].title, rows)


_QUOTED_MUSIC = (
    ("RNN-NADE", (2.31, 7.05, 5.60, 5.19), "Boulanger-Lewandowski et al. 2012"),
    ("TSBN", (3.67, 7.89, 6.81, 7.48), "Gan et al. 2015"),
    ("STORN", (2.85, 7.13, 6.16, 6.91), "Bayer and Osendorfer 2014"),
    ("NASMC", (2.72, 7.61, 6.89, 3.99), "Gu et al. 2015"),
    ("SRNN", (2.94, 8.20, 6.28, 4.74), "Fraccaro et al. 2016"),
    ("DMM", (2.77, 7.83, 6.83, 6.39), "Krishnan et al. 2016"),
)
QUOTED_MUSIC = tuple(
    Row(title, quoted=dict(zip(MUSIC_CORPORA, numbers, strict=True)), source=source)
    for title, numbers, source in _QUOTED_MUSIC
)
QUOTED_TEXT = (
    Row("LSTM (across sentences)", quoted={TEXT_CORPUS: 1.38}, source="Cooijmans et al. 2017"),
    Row("AWD-LSTM (across sentences)", quoted={TEXT_CORPUS: 1.18}, source="Merity et al. 2018"),
)
SENTENCE_WISE = tuple(
    replace(row, title=f"{row.title} (sentence-wise)") if row.key == "lstm" else row for row in ours(TABLE_1)
)
PASSES = tuple(
    Row(f"{row.title}{longer}", f"{row.key}{size}")
    for row in ours(LONG_ROWS)
    for longer, size in (("", "-small"), (", longer", "-long"))
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(
            "table1",
            "Table 1: characters of the Penn Treebank",
            "bits per character",
            (part(TEXT_CORPUS, *QUOTED_TEXT, *SENTENCE_WISE),),
            note='The paper\'s "Reconst." contains the length term -log p(T); ours are apart.',
        ),
        Table(
            "table2",
            "Table 2: ablations on the Penn Treebank",
            "bits per character",
            (part(TEXT_CORPUS, *ours((BASE, *TABLE_2))),),
            note="AF / AF is the run of Table 1.",
        ),
        Table(
            "table3",
            "Table 3: polyphonic music",
            "nats per time step",
            tuple(part(corpus, *QUOTED_MUSIC, *ours(TABLE_3)) for corpus in MUSIC_CORPORA),
            note='The paper says "nats per note"; the numbers are nats per time step.',
        ),
        Table(
            "passes",
            "What more passes bring: the Penn Treebank, small models",
            "bits per character",
            (part(TEXT_CORPUS, *PASSES),),
            sizes=False,
            note="An epoch is a pass over the sentences; the shorter runs are those of the small Table 1.",
        ),
        Table(
            "synthetic",
            "Built-in sets with a known truth",
            "bits per character for hmm, nats per time step for chords",
            (
                Part("hmm", "hmm", ours((*TABLE_3, *TABLE_1, *TABLE_2))),
                Part("chords", "chords", ours(TABLE_3)),
            ),
            sizes=False,
            truth=True,
            note="The truth is the exact likelihood of the same test sequences under the model that drew them; "
            "NLL - truth estimates KL(truth || model), which is not below 0 but for chance.",
        ),
        Table(
            "beyond",
            "Beyond the paper: codebook latents",
            "bits per character for the Penn Treebank, nats per time step for music",
            (
                part(TEXT_CORPUS, *codebook(beyond.TEXT_ROWS)),
                *(part(corpus, QUOTED_MUSIC[0], *codebook(beyond.MUSIC_ROWS)) for corpus in MUSIC_CORPORA),
            ),
            sizes=False,
            note="The LSTM of these rows has the sizes, the start and the training of the flows beside it.",
        ),
        Table(
            "beyond-small",
            "Codebook latents, small: two passes over the Penn Treebank",
            "bits per character",
            (part(TEXT_CORPUS, *codebook(beyond.TEXT_ROWS, "-small")),),
            sizes=False,
        ),
        Table(
            "beyond-synthetic",
            "Codebook latents on built-in sets with a known truth",
            "bits per character for hmm, nats per time step for chords",
            (
                Part("hmm", "hmm", codebook(beyond.TEXT_ROWS)),
                Part("chords", "chords", codebook(beyond.MUSIC_ROWS)),
            ),
            sizes=False,
            truth=True,
        ),
    )
}
"""By the name that `latflow reproduce` takes."""


def find_tables(name: str) -> list[Table]:
    """The table of that name, or all of them."""
    if name == "all":
        return list(TABLES.values())
    if name not in TABLES:
        raise LatflowError(f"no table called {name!r}; accepted: {', '.join(TABLES)}, all")
    return [TABLES[name]]


def choose(tables: Iterable[Table], small: bool, only: Sequence[str] = ()) -> list[Preset]:
    """The presets of some tables, each once; `only` names rows (af-af), corpora (jsb) or presets (jsb-af-af)."""
    found: dict[str, tuple[Preset, set[str]]] = {}
    for table in tables:
        for part in table.parts:
            for row in part.rows:
                preset = table.preset(part, row, small)
                if preset is not None:
                    names = {str(row.key), part.corpus, preset.name, f"{part.corpus}-{row.key}"}
                    found[preset.name] = (preset, names)
    known = set().union(*(names for _, names in found.values()))
    for word in only:
        if word not in known:
            near = get_close_matches(word, known, 3)
            hint = f"; near: {', '.join(near)}" if near else f"; accepted: {', '.join(sorted(known))}"
            raise LatflowError(f"no row called {word!r} here{hint}")
    return [preset for preset, names in found.values() if not only or names & set(only)]


def command_of(preset: str) -> str:
    """The command that trains and evaluates a preset's row."""
    for table in TABLES.values():
        for small in (False, True):
            if preset in (found.name for found in table.presets(small)):
                row = preset.removesuffix("-small") if small and table.sizes else preset
                return f"latflow reproduce {table.name} --only {row}{' --small' if row != preset else ''}"
    raise LatflowError(f"{preset!r} is in no table")
