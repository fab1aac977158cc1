"""The committed page is what the generator makes of the committed result files."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from latflow import data
from latflow.reproduce.page import page
from latflow.reproduce.result import Result, read_results, result_path
from latflow.training.distributed import World
from latflow.training.loop import Trainer
from latflow.training.report import Reporter
from latflow.training.run import Run

ROOT = Path(__file__).parents[2]


def test_docs_results_is_up_to_date():
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    made = page(read_results(ROOT / "results"))
    assert written == made, "write it anew: latflow reproduce all --show --docs docs/results.md"


def test_every_committed_result_is_known_and_holds_no_path():
    for path in (ROOT / "results").glob("*.json"):
        assert path.stem in read_results(ROOT / "results"), f"{path.name} is no preset's result"
        text = path.read_text(encoding="utf-8")
        assert "/home" not in text
        assert "/tmp" not in text
        assert "/work" not in text


@pytest.mark.parametrize("name", ["hmm-af-af-codebook", "chords-af-af-codebook", "hmm-lstm-codebook"])
def test_the_code_of_today_begins_as_the_committed_run_did(name, tmp_path):
    """The first line of its training, the mean loss of its first steps: text, music and the baseline.

    Sums may run in another order on another machine: 1e-4 of the loss is what fifty steps make of that.
    """
    result = Result.read(result_path(ROOT / "results", name))
    assert result.commit is not None
    assert result.begin is not None
    config = result.trained_with
    corpus = data.load(config.data)
    steps = int(result.begin["updates"][0])
    config = replace(config, train=replace(config.train, device="cpu", log_every=steps))
    run = Run.create(tmp_path / "run", config, corpus.spec)
    trainer = Trainer(run, corpus, World(), Reporter(quiet=True))
    trainer.model.train()
    batches = trainer.batches.epoch(0)
    for _ in range(steps):
        trainer._update(list(itertools.islice(batches, config.train.accumulate)))
    line = run.metrics()[0]
    assert line["updates"] == steps
    assert line["loss"] == pytest.approx(result.begin["loss"][0], rel=1e-4)
