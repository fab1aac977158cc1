"""Runs side by side: intervals of a difference by pairs, and no comparison of what cannot be compared."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from latflow.cli import main
from latflow.errors import LatflowError
from latflow.training import train
from latflow.training.evaluate import evaluate
from latflow.use.compare import Compared, Comparison, compare, shown
from tests.training.tiny import config


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    made = [train(config("hmm-lstm", seed=s, train__epochs=s + 1), folder / f"lstm_{s}")[0] for s in (0, 1)]
    return [*made, train(config("hmm-af-af", train__epochs=1), folder / "latent")[0]]


def test_paired_by_hand(runs):
    found = compare(runs, samples=5)
    rows = {row.name: row for row in found.rows}
    test = runs[0].corpus().splits["test"]
    steps = test.lengths + 1
    for run in runs:
        assert rows[run.folder.name].nll == evaluate(run.model(), test, samples=5).nll
    one, other = (
        np.array([evaluate(run.model(), test[[i]]).nll * steps[i] for i in range(len(test))])
        for run in runs[:2]
    )
    if one.sum() < other.sum():
        one, other = other, one
    gaps = one - other
    wanted = gaps.sum() / steps.sum()
    n = len(gaps)
    error = math.sqrt(n / (n - 1) * ((gaps - wanted * steps) ** 2).sum()) / steps.sum()
    worse = max(compare(runs[:2], samples=5).rows, key=lambda row: row.nll)
    assert worse.difference == pytest.approx(wanted, rel=1e-4)
    assert worse.difference_error == pytest.approx(error, rel=1e-3)
    assert min(row.difference for row in found.rows) == 0
    assert rows["lstm_1"].epochs == 2
    assert rows["lstm_1"].parameters == sum(p.numel() for p in runs[1].model().parameters())


def test_tables_and_figure(runs, tmp_path, capsys):
    folders = [str(run.folder) for run in runs[:2]]
    out = str(tmp_path / "figure.png")
    assert main(["compare", *folders, "--device", "cpu", "--format", "csv", "--out", out]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["name"] for row in table] == ["lstm_0", "lstm_1"]
    assert {row["difference"] for row in table} > {"0"}
    assert (tmp_path / "figure.png").stat().st_size > 5000
    rows = [
        Compared("a_b", 2.0, 0.1, 0.0, 0.0, 1234, 3, 1.5),
        Compared("c", 2.5, 0.2, 0.5, 0.01, 99, None, None),
    ]
    found = Comparison("bits per character", "test", 20, 50, rows)
    assert "| a_b | 2.0000 ± 0.1960 | best | 1,234 | 3 | 1.5 |" in shown(found, "markdown")
    latex = shown(found, "latex")
    assert r"a\_b & 2.0000 $\pm$ 0.1960 & best & 1,234 & 3 & 1.5 \\" in latex
    assert r"+0.5000 $\pm$ 0.0196" in latex
    assert "c    2.5000 ± 0.3920  +0.5000 ± 0.0196  99" in shown(found)


def test_other_data_is_refused_in_words(runs, tmp_path, capsys):
    other, _ = train(config("hmm-lstm", data__synthetic_seed=5, train__epochs=1), tmp_path / "other")
    assert main(["compare", str(runs[0].folder), str(other.folder)]) == 2
    said = capsys.readouterr().err
    assert "cannot be compared" in said
    assert said.count("\n") == 1
    music, _ = train(config("chords-lstm", train__epochs=1), tmp_path / "music")
    with pytest.raises(LatflowError, match="one is on text, the other on music"):
        compare([runs[0], music])
    with pytest.raises(LatflowError, match="two runs or more"):
        compare(runs[:1])
