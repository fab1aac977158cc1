"""Training, going on, evaluating once, picking up: on runs of seconds."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace

import pytest

from latflow import data
from latflow.cli import main
from latflow.errors import LatflowError, LatflowWarning
from latflow.presets import PRESETS, Preset
from latflow.reproduce import work
from latflow.reproduce.result import Result, read_results, run_status
from latflow.reproduce.tables import TABLES
from latflow.reproduce.work import reproduce
from latflow.training.fit import train
from latflow.training.report import Reporter
from latflow.training.run import Run
from tests.training.tiny import config


@pytest.fixture
def tiny(tmp_path) -> Preset:
    return Preset("hmm-af-af", config("hmm-af-af", train__epochs=2), None, "tiny")


class Interrupting(Reporter):
    """Ctrl-C after the first epoch."""

    def epoch(self, epoch, epochs, weight, lr, train, valid, better):
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)


def measured(path) -> dict:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return {name: raw[name] for name in ("metrics", "epochs", "best_epoch", "parameters", "config", "seed")}


def test_an_interrupted_row_goes_on_and_ends_as_if_it_had_not_been(tiny, tmp_path, monkeypatch, capsys):
    runs, results = tmp_path / "runs", tmp_path / "results"
    with monkeypatch.context() as patched:
        patched.setattr(work, "Reporter", Interrupting)
        assert not reproduce([tiny], runs, results, quiet=True)
    assert "the same command goes on" in capsys.readouterr().err
    assert read_results(results) == {}
    assert run_status(runs / "hmm-af-af") == "unfinished: 1 of 2 epochs"

    called = []
    assert reproduce([tiny], runs, results, quiet=True, done=lambda: called.append(1))
    assert called == [1]
    whole = tmp_path / "whole"
    assert reproduce([tiny], tmp_path / "other", whole, quiet=True)
    assert measured(results / "hmm-af-af.json") == measured(whole / "hmm-af-af.json")


def test_a_result_is_picked_up_and_never_made_again(tiny, tmp_path, monkeypatch):
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert reproduce([tiny], runs, results, quiet=True)
    result = Result.read(results / "hmm-af-af.json")
    assert result.metrics["samples"] == 50
    assert result.metrics["truth"]["nll"] > 0
    assert result.metrics["nll_at"].keys() == {"1", "2", "5", "10", "20", "50"}
    assert result.epochs == len(result.curve["valid_negative_elbo"]) == 2
    assert result.minutes > 0
    assert result.versions.keys() >= {"torch", "python"}
    assert "--train.epochs 2" in result.command
    assert result.changes["train.epochs"] == (2, PRESETS["hmm-af-af"].config.train.epochs)

    assert run_status(runs / "hmm-af-af") == "trained, not evaluated"  # what a table says without the result
    shutil.rmtree(runs)
    monkeypatch.setattr(work, "evaluate", None)
    assert reproduce([tiny], runs, results, quiet=True)
    assert not runs.exists()


def test_a_finished_run_is_evaluated_without_training(tiny, tmp_path):
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert reproduce([tiny], runs, results, quiet=True)
    before = (runs / "hmm-af-af" / "model.safetensors").read_bytes()
    again = tmp_path / "again"
    assert reproduce([tiny], tmp_path / "none", again, run=runs / "hmm-af-af", quiet=True)
    assert measured(again / "hmm-af-af.json") == measured(results / "hmm-af-af.json")
    assert (runs / "hmm-af-af" / "model.safetensors").read_bytes() == before


def test_paths_of_this_machine_are_not_in_the_result(tiny, tmp_path):
    data = replace(tiny.config.data, data_dir=str(tmp_path))
    placed = replace(tiny, config=replace(tiny.config, data=data))
    assert reproduce([placed], tmp_path / "runs", tmp_path / "results", quiet=True)
    assert str(tmp_path) not in (tmp_path / "results" / "hmm-af-af.json").read_text(encoding="utf-8")


def test_a_run_of_another_model_is_refused(tiny, tmp_path):
    runs = tmp_path / "runs"
    assert reproduce([tiny], runs, tmp_path / "results", quiet=True)
    lstm = Preset("hmm-lstm", config("hmm-lstm"), None, "tiny")
    other = Preset("hmm-iaf-scf", config("hmm-iaf-scf"), None, "tiny")
    for row, message in ((lstm, "model.kind latent, not lstm"), (other, "model.prior.time af, not iaf")):
        with pytest.raises(LatflowError, match=message):
            reproduce([row], runs, tmp_path / "results", run=runs / "hmm-af-af", quiet=True)


def test_a_folder_named_for_a_row_must_be_a_run(tiny, tmp_path):
    with pytest.raises(LatflowError, match=r"no run at .*typo"):
        reproduce([tiny], tmp_path / "runs", tmp_path / "results", run=tmp_path / "typo", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_named_for_a_row_that_has_a_result_is_not_silently_left_out(tiny, tmp_path):
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert reproduce([tiny], runs, results, quiet=True)
    with pytest.warns(LatflowWarning, match="is there, so .* is not evaluated; --anew writes it again"):
        assert reproduce([tiny], runs, results, run=runs / "hmm-af-af", quiet=True)


def test_a_row_is_measured_anew_if_asked_and_both_numbers_are_told(tiny, tmp_path, capsys):
    runs, results = tmp_path / "runs", tmp_path / "results"
    assert reproduce([tiny], runs, results, quiet=True)
    path = results / "hmm-af-af.json"
    first = Result.read(path)
    assert first.begin is not None
    assert first.begin["updates"] == [1, 2, 3]
    assert all(map(math.isfinite, first.begin["loss"]))
    replace(first, metrics={**first.metrics, "nll": 9.25}).write(path)
    assert reproduce([tiny], runs, results, anew=True)
    assert f"NLL {first.metrics['nll']:.6g}, 9.25 before" in capsys.readouterr().out
    assert reproduce([tiny], tmp_path / "other", results, anew=True)  # trained again, from the start
    assert f"NLL {first.metrics['nll']:.6g}, as before" in capsys.readouterr().out


def test_a_likelihood_that_is_not_finite_is_no_result(tiny, tmp_path, monkeypatch):
    """Written, it would stand in the way of every table with that row."""
    whole = work.evaluate
    monkeypatch.setattr(
        work, "evaluate", lambda *args, **options: replace(whole(*args, **options), nll=float("inf"))
    )
    with pytest.raises(LatflowError, match="on the test set is inf: no result was written"):
        reproduce([tiny], tmp_path / "runs", tmp_path / "results", quiet=True)
    assert not (tmp_path / "results").exists()


def test_the_hardware_is_that_of_the_training(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("latflow.training.loop.hardware", lambda world: "a large machine")
    runs = tmp_path / "runs"
    with monkeypatch.context() as patched:
        patched.setattr(work, "Reporter", Interrupting)
        assert not reproduce([tiny], runs, tmp_path / "results", quiet=True)
    monkeypatch.setattr("latflow.training.loop.hardware", lambda world: "a small one")
    assert reproduce([tiny], runs, tmp_path / "results", quiet=True)
    assert (
        Result.read(tmp_path / "results" / "hmm-af-af.json").hardware == "a large machine, then a small one"
    )


def test_a_run_that_stopped_early_is_trained(tmp_path):
    """The rate is so small that only the first epoch is the best."""
    settings = config("hmm-lstm", train__epochs=9, train__early_stop=2, train__lr=1e-12)
    run, finished = train(settings, tmp_path / "run")
    assert finished
    epochs = [line for line in run.metrics() if line["kind"] == "epoch"]
    assert len(epochs) < 9
    assert run_status(run.folder) == "trained, not evaluated"
    whole = (run.folder / "metrics.jsonl").read_text()
    (run.folder / "metrics.jsonl").write_text(whole[: whole.rindex("\n", 0, -1) + 1])
    assert run_status(run.folder) == f"unfinished: {len(epochs) - 1} of 9 epochs"


# The command.


def test_an_unfinished_run_in_a_folder_of_its_own_is_shown(tmp_path, capsys):
    """Of the one row that is chosen; the others stand where they always do."""
    settings = PRESETS["hmm-lstm"].config
    run = Run.create(tmp_path / "mine", settings, data.load(config("hmm-lstm").data).spec, "hmm-lstm")
    where = [
        "--runs",
        str(tmp_path / "runs"),
        "--results",
        str(tmp_path / "results"),
        "--run",
        str(run.folder),
    ]
    assert main(["reproduce", "synthetic", "--only", "hmm-lstm", "--show", *where]) == 0
    text = capsys.readouterr().out
    assert "unfinished: 0 of 5 epochs" in text
    assert "not run" not in text  # the one row and no other


def test_the_command_makes_a_row_prints_the_table_and_writes_it(tmp_path, monkeypatch, capsys):
    made = {
        **PRESETS,
        "chords-lstm": Preset("chords-lstm", config("chords-lstm", train__epochs=1), None, "tiny"),
    }
    monkeypatch.setattr("latflow.reproduce.tables.PRESETS", made)
    words = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["reproduce", "synthetic", "--only", "chords-lstm", *words]) == 0
    text = capsys.readouterr().out
    assert "chords-lstm: training in" in text
    assert "not run" not in text
    table = (tmp_path / "results" / "tables" / "synthetic.md").read_text(encoding="utf-8")
    assert table.count("not run") == 11
    assert {path.name for path in (tmp_path / "results" / "tables").iterdir()} == {
        "synthetic.md",
        "synthetic.tex",
        "synthetic.json",
    }
    docs = tmp_path / "results.md"
    assert main(["reproduce", "all", "--show", "--docs", str(docs), *words]) == 0
    assert "Built-in sets with a known truth: 1 of 12 rows" in docs.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["reproduce", "synthetic", "--show", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "synthetic"
    assert main(["reproduce", "all", "--show", "--json", *words]) == 0
    assert [table["name"] for table in json.loads(capsys.readouterr().out)] == list(TABLES)


def test_a_kill_of_a_row_has_its_own_code(tiny, tmp_path, monkeypatch, capsys):
    def killed(self, *_):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Reporter, "epoch", killed)
    monkeypatch.setattr("latflow.reproduce.tables.PRESETS", {**PRESETS, tiny.name: tiny})
    words = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results"), "--quiet"]
    assert main(["reproduce", "synthetic", "--only", tiny.name, *words]) == 143
    said = capsys.readouterr()
    assert "the same command goes on" in said.err
    assert "unfinished: 1 of 2 epochs" in said.out


def test_showing_needs_no_run_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table1", "--show"]) == 0
    assert capsys.readouterr().out.count("not run") == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table4"], "no table called 'table4'"),
        (["table1", "--only", "nothing"], "no row called 'nothing'"),
        (["table1", "--run", "somewhere"], "--run names the folder of one row, but 5 are chosen"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
