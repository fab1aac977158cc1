"""Fine-tuning: a run that begins with the weights of another keeps what is known and makes room for what is new."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from latflow import data
from latflow.cli import main
from latflow.config import Config, DataConfig, evolve
from latflow.data.base import Batches
from latflow.data.midi import write_midi
from latflow.errors import LatflowError
from latflow.models import LatentSequenceModel, build
from latflow.models.posterior.codebook import CodebookPosterior
from latflow.training.fit import resume, train
from latflow.training.run import START, WEIGHTS, Run, load
from latflow.training.start import Start
from latflow.training.stored import set_weights

SMALL = {
    "model.latent_size": None,
    "model.embedding_size": 6,
    "model.posterior": "codebook",
    "model.emission": "bayes",
    "model.prior.reading": "symbols",
    "model.prior.hidden": "codebook",
    "model.prior.context.units": 8,
    "model.prior.context.layers": 1,
    "train.kl_zero": 0.0,
    "train.kl_ramp": 0.0,
    "train.epochs": 2,
    "train.batch_size": 8,
    "train.samples": 1,
    "train.device": "cpu",
}


def lines(path, symbols, longest, n=60, seed=0):
    draw = random.Random(seed)
    text = ["".join(draw.choices(symbols, k=draw.randint(2, longest))) for _ in range(n)]
    path.write_text("\n".join([symbols * 2, *text]) + "\n", encoding="utf-8")
    return f"text:{path}"


@pytest.fixture(scope="module", params=["flow", "lstm"])
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    kind = {"model.kind": "lstm", "model.baseline.units": 8} if request.param == "lstm" else {}
    name = lines(folder / "old.txt", "abcde", 12)
    made, _ = train(evolve(Config(), {**SMALL, **kind, "data.name": name}), folder / "run")
    return made


def begun(source, name, folder, **changes):
    start = Start(source)
    config = evolve(start.config(DataConfig(name=name)), {"train.epochs": 1, **changes})
    return train(config, folder, start=start)[0]


def test_on_the_same_data_it_begins_where_the_other_ended(source, tmp_path):
    run = begun(source, source.config.data.name, tmp_path / "on")
    weights, _ = source.read(WEIGHTS)
    started, about = run.read(START)
    assert about == {"from": str(source.folder)}
    assert weights.keys() == started.keys()
    for name, value in weights.items():
        torch.testing.assert_close(started[name], value, rtol=0, atol=0)
    first = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert first["kl_weight"] == 1.0


def test_training_goes_on_from_the_weights_taken_over(source, tmp_path):
    """At a rate of next to nothing what comes out is what went in."""
    run = begun(source, source.config.data.name, tmp_path / "on", **{"train.lr": 1e-9, "train.ema": 0.0})
    weights, _ = source.read(WEIGHTS)
    for name, value in run.read(WEIGHTS)[0].items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=1e-6)


def test_rows_go_by_their_symbol_and_new_symbols_are_behind(source, tmp_path):
    """The vocabulary is the old one, the new symbols and the mark for unknown; rows stay with their symbols."""
    name = lines(tmp_path / "new.txt", "cxabz", 12, seed=1)
    run = begun(source, name, tmp_path / "on")
    *known, mark = run.spec.symbols
    assert known == [*source.spec.symbols[:-1], "x", "z"]
    assert mark == source.spec.symbols[-1]
    old, now = load(source.folder), build(run.config.model, run.spec)
    set_weights(now, run.read(START)[0], "start")
    for symbol in source.spec.symbols:
        i, j = source.spec.symbols.index(symbol), run.spec.symbols.index(symbol)
        torch.testing.assert_close(old.alphabet.embedding[i], now.alphabet.embedding[j], rtol=0, atol=0)
    if isinstance(now, LatentSequenceModel):
        assert isinstance(now.posterior, CodebookPosterior)
        means = now.posterior.codes.means
        distance = torch.cdist(means, means) + 9 * torch.eye(len(means))
        assert distance.min() > 1
        assert set(means[5].abs().tolist()) == {1.0}
    # Every sequence of the new data, in the new vocabulary, is what the file says.
    texts = {run.spec.decode(x) for split in run.corpus().splits.values() for x in split}
    assert "cxabzcxabz" in texts


def test_longer_sequences_read_the_last_distance_known(source, tmp_path):
    name = lines(tmp_path / "long.txt", "abcde", 30, seed=2)
    run = begun(source, name, tmp_path / "on")
    place = "context" if source.config.model.kind == "lstm" else "prior.context"
    before, now = (r.read(file)[0] for r, file in ((source, WEIGHTS), (run, START)))
    old, new = (weights[f"{place}.positions.end"] for weights in (before, now))
    assert len(new) == run.spec.max_T > len(old)
    torch.testing.assert_close(new, torch.cat([old, old[-1:].expand(len(new) - len(old), -1)]))


def test_a_killed_run_goes_on_from_what_it_began_with(source, tmp_path):
    """The first checkpoint was never written: what `start.safetensors` holds is the start again."""
    name = source.config.data.name
    whole = begun(source, name, tmp_path / "whole")
    again = begun(source, name, tmp_path / "again")
    for file in ("trainer.safetensors", WEIGHTS, "metrics.jsonl"):
        (again.folder / file).unlink()
    resume(again.folder)
    for weights, other in zip(whole.read(WEIGHTS)[0].values(), again.read(WEIGHTS)[0].values(), strict=True):
        torch.testing.assert_close(weights, other, rtol=0, atol=0)


def test_what_does_not_fit_is_said(source, tmp_path):
    with pytest.raises(LatflowError, match=r"is a model of text, chords is music; .* the same kind"):
        Start(source).config(DataConfig(name="chords"))
    if source.config.model.kind == "latent":
        many = "abcdefghijklmnopqrstuvwxyz"
        with pytest.raises(LatflowError, match=r"3 numbers, which is room for 8 symbols, .* codes of 5"):
            begun(source, lines(tmp_path / "many.txt", many, 5), tmp_path / "many")
        assert not (tmp_path / "many").exists()
    with pytest.raises(LatflowError, match=r"leave the fields model\.… as they are"):
        begun(source, source.config.data.name, tmp_path / "other", **{"model.embedding_size": 7})


def test_weights_of_another_model_in_its_folder_are_damage(source, tmp_path):
    folder = shutil.copytree(source.folder, tmp_path / "mixed")
    run = Run.open(folder)
    tensors, _ = run.read(WEIGHTS)
    run.save(WEIGHTS, {name: value[:3] if value.ndim else value for name, value in tensors.items()}, {})
    with pytest.raises(LatflowError, match=r"damaged: .* has shape"):
        Start(run).weights(source.model(), source.spec)


def test_the_command_says_what_is_new(source, tmp_path, capsys):
    name = lines(tmp_path / "new.txt", "abcxz", 14, seed=3)
    code = main(
        ["train", name, "--from", str(source.folder), "--train.epochs=1", "--run", str(tmp_path / "on")]
    )
    assert code == 0
    said = capsys.readouterr().out
    assert f"begins with the weights of {source.folder}; 2 of 8 symbols are new: 'x', 'z'" in said
    assert Run.open(tmp_path / "on").config.train.lr < 0.01
    assert main(["sample", str(tmp_path / "on"), "-n", "2"]) == 0
    assert main(["train", "hmm-af-af", "--from", str(source.folder)]) == 2
    assert "brings its own config" in capsys.readouterr().err


def test_labels_and_shifts_keep_their_meaning(tmp_path):
    rows = [
        {"tokens": [a, b, a], "label": label} for a in "xy" for b in "xyz" for label in ("dull", "loud") * 4
    ]
    for name, labels in (("old", {"dull": "dull", "loud": "loud"}), ("new", {"dull": "sad", "loud": "loud"})):
        text = "\n".join(json.dumps({**row, "label": labels[row["label"]]}) for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text + "\n")
    changes = {**SMALL, "data.name": f"tokens:{tmp_path / 'old.jsonl'}", "data.labels": "field:label"}
    old, _ = train(evolve(Config(), changes), tmp_path / "old")
    own = DataConfig(name=f"tokens:{tmp_path / 'new.jsonl'}", labels="field:label")
    new, _ = train(evolve(Start(old).config(own), {"train.epochs": 1}), tmp_path / "run", start=Start(old))
    assert (old.spec.labels, new.spec.labels) == (("dull", "loud"), ("loud", "sad"))
    before, now = old.read(WEIGHTS)[0]["condition.label"], new.read(START)[0]["condition.label"]
    torch.testing.assert_close(now[0], before[1])
    assert not torch.allclose(now[1], before[0])
    batch = next(Batches(data.load(own, among=old.spec).splits["test"], 4).epoch(0))
    assert load(new.folder).nll(batch, samples=2).isfinite().all()


def test_a_shipped_model_has_its_name_and_music_its_grid(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(12):
        write_midi(tmp_path / f"{number}.mid", rng.random((12, 88)) < 0.03, steps_per_beat=1)
    own = replace(Run.open("jsb").config.data, name=f"midi:{tmp_path}")
    assert Start(Run.open("jsb")).said(own).startswith("begins with the weights of jsb; 1 step a beat")
    quick = replace(own, steps_per_second=2.5)
    assert "jsb; 2.5 steps a second" in Start(Run.open("jsb")).said(quick)
