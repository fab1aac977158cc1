"""What is said while people work: figures that mean something, tables that fit, where things are."""

from __future__ import annotations

import shutil

import pytest

from latflow.cli import main
from latflow.cli.printing import print_table
from latflow.data.midi import write_midi
from latflow.errors import LatflowError
from latflow.reproduce.tables import TABLES
from latflow.training import Run, train
from tests.training.tiny import config


def test_the_baseline_speaks_of_no_kl(tmp_path, capsys):
    train(config("hmm-lstm", train__epochs=1), tmp_path / "run")  # Python shows its progress too
    said = capsys.readouterr().out
    assert "epoch 1/1  valid NLL " in said
    assert "KL" not in said
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "KL" not in said
    assert "ELBO" not in said


def test_a_bound_is_shown_when_it_is_one(tmp_path, capsys):
    """At KL weight 0 the bound is any number: the reconstruction stands there."""
    train(config(train__kl_steps=(8, 16), train__epochs=3), tmp_path / "run")
    first, *_, last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    assert "valid reconstruction" in first
    assert "NLL below" not in first
    assert "valid NLL below" in last


def test_a_table_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("latflow.cli.printing._columns", lambda: 60)
    print_table([["jsb", "a long description " * 8, "6.5"], ["b", "short", "1"]], ["model", "what", "NLL"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("description") for line in lines) == 8
    monkeypatch.undo()
    print_table([["jsb", "a long description " * 8, "6.5"]], ["model", "what", "NLL"])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_files_left_out_can_be_listed(tmp_path, capsys):
    for i in range(12):
        write_midi(tmp_path / f"{i}.mid", [[60 + i, 64]] * 9)
    for i in range(5):
        (tmp_path / f"bad{i}.mid").write_bytes(b"nonsense")
    assert main(["data", "stats", f"midi:{tmp_path}", "--left-out"]) == 0
    said = capsys.readouterr().out
    assert all(f"bad{i}.mid" in said for i in range(5))


def test_data_that_has_moved_names_the_option(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("kate son\nson dalo\n" * 20)
    run, _ = train(
        config("hmm-lstm", data__name=f"text:{own}", data__train_size=0, data__eval_size=0, train__epochs=1),
        tmp_path / "run",
    )
    (tmp_path / "elsewhere").mkdir()
    shutil.move(own, tmp_path / "elsewhere")
    with pytest.raises(LatflowError, match="--data-dir DIR"):
        Run.open(run.folder).corpus()
    assert len(Run.open(run.folder).corpus(str(tmp_path / "elsewhere")).splits["test"])


def test_all_tables_are_named(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"{', '.join(TABLES)} or all" in said
