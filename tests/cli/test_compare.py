"""`latflow compare`: the numbers of evaluate, differences taken sequence by sequence, in four formats."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from latflow.cli import main
from latflow.training.evaluate import evaluate
from latflow.training.fit import train
from latflow.use.compare import compare
from tests.training.tiny import config


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    made = [
        train(config(preset, train__epochs=1), home / name)[0].folder
        for preset, name in (("hmm-lstm", "lstm"), ("hmm-af-af", "flow"), ("chords-lstm", "music"))
    ]
    made.append(train(config("hmm-lstm", train__epochs=2, seed=1), home / "other")[0].folder)
    return [str(folder) for folder in made]


def test_each_number_is_that_of_evaluate_and_differences_are_paired(folders):
    lstm, flow = compare(folders[:2], samples=4, seed=3)
    for one in (lstm, flow):
        corpus = one.run.corpus()
        truth = None if corpus.truth is None else corpus.truth["test"]
        alone = evaluate(one.run.model(), corpus.splits["test"], samples=4, seed=3, truth=truth)
        assert one.metrics == alone
    valid = compare(folders[:2], split="valid", samples=4, seed=3)[0]
    assert valid.metrics.nll == evaluate(valid.run.model(), valid.run.corpus().splits["valid"]).nll
    assert valid.metrics.nll != lstm.metrics.nll
    assert (lstm.difference, lstm.difference_error) == (None, None)
    assert flow.difference == pytest.approx(flow.metrics.nll - lstm.metrics.nll)


def test_the_error_of_a_difference_is_over_sequences_under_both(folders):
    """Two exact models, sequence by sequence: se = sqrt(n / (n - 1) Σ (d_i - R L_i)²) / Σ L_i, d_i their difference."""
    lstm, other = compare([folders[0], folders[3]])
    test = lstm.run.corpus().splits["test"]
    L, n = test.lengths + 1, len(test)
    bits = [
        np.array([evaluate(one.run.model(), test[[i]]).nll * L[i] for i in range(n)]) for one in (lstm, other)
    ]
    d = bits[1] - bits[0]
    ratio = d.sum() / L.sum()
    error = np.sqrt(n / (n - 1) * np.square(d - ratio * L).sum()) / L.sum()
    assert other.difference == pytest.approx(ratio, abs=1e-6)
    assert other.difference_error == pytest.approx(error, rel=1e-3)
    assert error < 0.9 * lstm.metrics.nll_error  # what pairing is for


def test_the_table_in_every_format(folders, capsys, tmp_path):
    words = ["compare", *folders[:2], "--samples", "2"]
    assert main([*words, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["run"] for row in rows] == ["lstm", "flow"]
    assert rows[0]["samples"] == "1"
    assert rows[1]["samples"] == "2"
    nll = float(rows[1]["nll"])
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["nll"] == nll
    assert main([*words, "--format", "markdown"]) == 0
    assert f"| flow | {nll:.4f} |" in capsys.readouterr().out
    assert main([*words, "--format", "latex"]) == 0
    text = capsys.readouterr().out
    assert rf"flow & {nll:.4f} &" in text
    assert r"$\pm$ 95 \%" in text
    assert main([*words, "--format", "latex", "--out", str(tmp_path / "beside")]) == 0
    both = capsys.readouterr()
    assert both.out == text  # nothing but the table, as `> table.tex` needs it
    assert "beside.png" in both.err
    assert main([*words, "--split", "valid", "--out", str(tmp_path / "figure")]) == 0
    assert "valid: NLL in bits per character, 20 sequences" in capsys.readouterr().out
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_what_cannot_be_compared_is_refused(folders, capsys):
    assert main(["compare", folders[0], folders[2]]) == 2
    assert "lstm and music were trained on other data (hmm, chords)" in capsys.readouterr().err
    assert main(["compare", folders[0], folders[0]]) == 2
    assert "a run is named twice" in capsys.readouterr().err
    assert main(["compare", folders[0]]) == 2
    assert "1 run to compare; give two or more" in capsys.readouterr().err
