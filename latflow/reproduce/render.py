"""A table with its results as text, Markdown, LaTeX and JSON.

A number stands beside the paper's, with the difference, only if it was measured at the paper's sizes on the paper's
data. Other sizes are marked and have no difference; what was not run says so; what the paper quotes is marked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from latflow.config import flatten
from latflow.data.files import writing
from latflow.presets import BASE, PAPER, ROWS
from latflow.reproduce.result import NO_MATTER, SAMPLES, TERMS, Result
from latflow.reproduce.tables import Part, Row, Table

Status = Callable[[str], str]
"""Of a preset without a result: "not run", or how far it is."""


@dataclass(frozen=True)
class Line:
    """A row as it is shown: the numbers, and in words what cannot be a number."""

    title: str
    status: str
    """ "measured", "quoted", "not run", or how far a run is."""
    preset: str | None = None
    result: Result | None = None
    paper: float | None = None
    paper_reconstruction: float | None = None
    paper_kl: float | None = None
    comparable: bool = False
    source: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where the two are of the same kind."""
        if self.result is None or self.paper is None or not self.comparable:
            return None
        return self.result.metrics["nll"] - self.paper

    def to_dict(self) -> dict[str, Any]:
        ours = None
        if self.result is not None:
            r = self.result
            ours = {
                "metrics": r.metrics,
                "parameters": r.parameters,
                "minutes": r.minutes,
                "epochs": r.epochs,
                "seed": r.seed,
                "hardware": r.hardware,
                "changes": {name: {"run": a, "preset": b} for name, (a, b) in r.changes.items()},
            }
        return {
            "title": self.title,
            "status": self.status,
            "preset": self.preset,
            "comparable": self.comparable,
            "paper": {"nll": self.paper, "reconstruction": self.paper_reconstruction, "kl": self.paper_kl},
            "difference": self.difference,
            "source": self.source,
            "ours": ours,
        }


@dataclass(frozen=True)
class Block:
    """The lines of one corpus."""

    corpus: str
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Shown:
    """A table with what is known of its rows."""

    table: Table
    small: bool
    blocks: tuple[Block, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.table.name}-small" if self.small else self.table.name

    @property
    def title(self) -> str:
        return f"{self.table.title}, SMALL models" if self.small else self.table.title

    @property
    def measured(self) -> list[Line]:
        return [line for block in self.blocks for line in block.lines if line.result is not None]


def fill(
    table: Table, small: bool, results: Mapping[str, Result], status: Status = lambda name: "not run"
) -> Shown:
    """The table with the results at hand; quoted rows stand in every version of it."""
    small = small and table.sizes
    blocks = (
        Block(
            part.corpus,
            part.title,
            tuple(_line(table, part, row, small, results, status) for row in part.rows),
        )
        for part in table.parts
    )
    return Shown(table, small, tuple(blocks))


def only(shown: Shown, presets: Collection[str]) -> Shown:
    """The rows of these presets alone."""
    blocks = (
        replace(block, lines=tuple(line for line in block.lines if line.preset in presets))
        for block in shown.blocks
    )
    return replace(shown, blocks=tuple(block for block in blocks if block.lines))


def _line(
    table: Table, part: Part, row: Row, small: bool, results: Mapping[str, Result], status: Status
) -> Line:
    if row.quoted is not None:
        return Line(row.title, "quoted", paper=row.quoted[part.corpus], source=row.source)
    preset = table.preset(part, row, small)
    assert preset is not None
    # The paper's row at its own sizes, whichever version of ours is shown.
    paper = PAPER.get(f"{part.corpus}-{row.key}")
    numbers = (None, None, None) if paper is None else (paper.nll, paper.reconstruction, paper.kl)
    result = results.get(preset.name)
    if result is None:
        return Line(row.title, status(preset.name), preset.name, None, *numbers)
    return Line(row.title, "measured", preset.name, result, *numbers, comparable=result.comparable)


# Cells, the same for all formats.


@dataclass(frozen=True)
class Grid:
    """Cells of a block, without columns that are empty, and notes to stand below it."""

    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def grid(shown: Shown, block: Block) -> Grid:
    """A block as cells: numbers as they are printed, footnotes as [1], [2]."""
    notes: list[str] = []

    def note(text: str) -> str:
        if text not in notes:
            notes.append(text)
        return f"[{notes.index(text) + 1}]"

    truth = shown.table.truth
    split = any(line.paper_kl is not None for line in block.lines)
    header = ["model", "NLL", "95 %"]
    if truth:
        header += ["truth", "NLL - truth"]
    else:
        header += ["paper, full size" if shown.small else "paper", "difference"]
    header += ["-ELBO", "reconst.", "KL", "length"]
    if split:
        header += ["paper's reconst., KL"]
    header += ["eff. samples", "parameters", "epochs", "minutes"]
    sources = "; ".join(f"{line.title}: {line.source}" for line in block.lines if line.status == "quoted")
    quoted = f"{QUOTED} ({sources})"
    rows = [_cells(shown, block, line, split, quoted, note) for line in block.lines]
    keep = [i for i in range(len(header)) if i < 2 or any(row[i] for row in rows)]
    return Grid([header[i] for i in keep], [[row[i] for i in keep] for row in rows], notes)


def _otherwise(shown: Shown, block: Block, line: Line) -> str:
    """How a small model's training differs from that of the base row beside it, in what presets say of both."""
    beside = next((x.result for x in block.lines if x.preset == f"{block.corpus}-{BASE}-small"), None)
    if not shown.small or line.result is None or beside is None:
        return ""
    ours, theirs = flatten(line.result.trained_with), flatten(beside.trained_with)
    names = [name for name in ours if name.startswith("train.") and name not in NO_MATTER]
    if ours["model.kind"] == "lstm":
        names = [name for name in names if not name.startswith("train.kl_")]
    words = [
        f"{name} {_word(ours[name])}, not {_word(theirs[name])}"
        for name in names
        if ours[name] != theirs[name]
    ]
    return f"trained otherwise than {ROWS[BASE].label}: {'; '.join(words)}" if words else ""


def _cells(
    shown: Shown, block: Block, line: Line, split: bool, quoted: str, note: Callable[[str], str]
) -> list[str]:
    truth = shown.table.truth
    paper = "" if line.paper is None else f"{line.paper:.2f}"
    if line.status == "quoted":
        mark = note(quoted)
        return [f"{line.title} {mark}", "quoted", "", paper, *[""] * (5 + split + 4)]
    paper_split = [_paper_split(line)] if split else []
    if line.result is None:
        middle = ["", ""] if truth else [paper, ""]
        return [line.title, line.status, "", *middle, *[""] * 4, *paper_split, *[""] * 4]
    r, m = line.result, line.result.metrics
    title = line.title
    if shown.table.sizes and not line.comparable:
        title += f" (small) {note(SMALL)}" if shown.small else f" (other sizes) {note(OTHER)}"
    if r.changes:
        words = ", ".join(
            f"{name} {_word(ours)} (preset: {_word(theirs)})" for name, (ours, theirs) in r.changes.items()
        )
        title += " " + note(f"not as the preset: {words}")
    if otherwise := _otherwise(shown, block, line):
        title += f" {note(otherwise)}"
    cells = [title, f"{m['nll']:.4f}", "" if m.get("nll_error") is None else f"± {1.96 * m['nll_error']:.4f}"]
    if truth:
        known = m.get("truth") or {}
        error = f" ± {1.96 * known['gap_error']:.4f}" if known.get("gap_error") is not None else ""
        cells += [f"{known['nll']:.4f}", f"{known['gap']:+.4f}{error}"] if known else ["", ""]
    else:
        cells += [paper, "" if line.difference is None else f"{line.difference:+.2f}"]
    exact = m["samples"] == 1
    cells += ["-" if exact and name != "length" else figure(m[name]) for name in TERMS]
    cells += paper_split
    effective = "exact" if exact else f"{m['effective_samples']:.1f} of {m['samples']}"
    where = note(f"on {r.hardware}, torch {r.versions.get('torch', '?')}")
    return [*cells, effective, f"{r.parameters:,}", str(r.epochs), f"{r.minutes:.1f} {where}"]


QUOTED = "figures of other systems as the paper quotes them, not measured by us"
SMALL = "a small model: its number cannot be compared with the paper's, only with the other small ones"
OTHER = "not the paper's sizes or data: its number cannot be compared with the paper's"


def _paper_split(line: Line) -> str:
    if line.paper_reconstruction is None or line.paper_kl is None:
        return ""
    return f"{line.paper_reconstruction:.2f}, {line.paper_kl:.2f}"


def _word(value: Any) -> str:
    return "unset" if value is None else str(value)


def figure(value: float | None) -> str:
    """A number of a result file, where one that is not finite is None."""
    return "not finite" if value is None else f"{value:.4f}"


def about(shown: Shown) -> str:
    """What the numbers are, in a sentence or two."""
    unit = f"Test NLL in {shown.table.unit}, with {SAMPLES} importance samples for latent models."
    return f"{unit} {shown.table.note}".strip()


# Formats.


def as_text(shown: Shown) -> str:
    """For the terminal."""
    parts = [shown.title, about(shown)]
    for block in shown.blocks:
        cells = grid(shown, block)
        table = [cells.header, *cells.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        text = [] if len(shown.blocks) == 1 else [f"{block.title}:"]
        for row in table:
            numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            text.append("  ".join([row[0].ljust(widths[0]), *numbers]).rstrip())
        text += [f"[{number}] {note}" for number, note in enumerate(cells.notes, start=1)]
        parts.append("\n".join(text))
    return "\n\n".join(parts) + "\n"


def as_markdown(shown: Shown, level: int = 2) -> str:
    """A heading, a sentence and a table for each corpus."""
    parts = [f"{'#' * level} {shown.title}", about(shown)]
    for block in shown.blocks:
        cells = grid(shown, block)
        if len(shown.blocks) > 1:
            parts.append(f"{'#' * (level + 1)} {block.title}")
        lines = [
            _markdown_row(cells.header),
            "|" + "|".join(["---", *["--:"] * (len(cells.header) - 1)]) + "|",
            *map(_markdown_row, cells.rows),
        ]
        parts.append("\n".join(lines))
        if cells.notes:
            parts.append(
                "  \n".join(f"[{i}] {_markdown(note)}" for i, note in enumerate(cells.notes, start=1))
            )
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(map(_markdown, cells)) + " |"


def _markdown(text: str) -> str:
    for character in "\\`*_<>|":
        text = text.replace(character, f"\\{character}")
    return text


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    text = re.sub(r'"([^"]*)"', r"``\1''", text)
    return "".join(LATEX.get(character, character) for character in text)


def as_latex(shown: Shown) -> str:
    """A float over both columns for each corpus, with the rules of booktabs."""
    out = []
    for block in shown.blocks:
        cells = grid(shown, block)
        title = shown.title if len(shown.blocks) == 1 else f"{shown.title}, {block.title}"
        rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in (cells.header, *cells.rows)]
        out += [
            r"\begin{table*}",
            r"\centering",
            r"\footnotesize",
            r"\setlength{\tabcolsep}{3pt}",
            f"\\caption{{{latex_escape(f'{title}. {about(shown)}')}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(cells.header) - 1)}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
            r"\raggedright",
            *(rf"[{i}] {latex_escape(note)}\par" for i, note in enumerate(cells.notes, start=1)),
            r"\end{table*}",
            "",
        ]
    return "\n".join(out)


def _latex_cell(text: str) -> str:
    """A cell; a bracket at its start would be read as the argument of the row before."""
    escaped = latex_escape(text)
    if escaped[:1] == "-" and text[1:2].isdigit():
        escaped = f"${escaped}$"
    return f"{{{escaped}}}" if escaped.startswith("[") else escaped


def as_json(*shown: Shown) -> str:
    """Everything, for programs: a table as an object, several as a list of them."""
    raw = [
        {
            "name": table.name,
            "title": table.title,
            "unit": table.table.unit,
            "small": table.small,
            "corpora": [
                {"corpus": b.corpus, "rows": [line.to_dict() for line in b.lines]} for b in table.blocks
            ],
        }
        for table in shown
    ]
    return json.dumps(raw[0] if len(raw) == 1 else raw, indent=2, ensure_ascii=False) + "\n"


def write(shown: Shown, folder: Path) -> list[Path]:
    """The table as .md, .tex and .json files."""
    written = []
    for suffix, text in ((".md", as_markdown(shown)), (".tex", as_latex(shown)), (".json", as_json(shown))):
        path = folder / f"{shown.name}{suffix}"
        with writing(path) as new:
            new.write_text(text, encoding="utf-8")
        written.append(path)
    return written
