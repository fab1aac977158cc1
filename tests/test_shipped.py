"""The models that come with the package, and how a name stands for one."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import latflow
from latflow import data, shipped
from latflow.cli import main, parse
from latflow.cli.train import config_of
from latflow.config import evolve, flatten
from latflow.data import fetch
from latflow.data.midi import write_midi
from latflow.errors import LatflowError
from latflow.models import build
from latflow.reproduce.result import NO_MATTER
from latflow.training.fit import train
from latflow.training.run import WEIGHTS, Run
from latflow.training.stored import weights_of
from latflow.use import score
from tests.training.tiny import config

ROOT = Path(__file__).parents[1]
FILES = {"run.json", "config.json", "data.json", WEIGHTS, "card.md"}
CARD = """\
# tiny

A tiny model
of a tiny language.

    $ latflow evaluate tiny --split test
    tiny: hmm, test, 20 sequences, best weights
    in bits per character, -Σ[log p(x|T) + log p(T)] / Σ(T + 1)
      NLL                3.4567 ± 0.0890 (95 %, over 20 sequences)
"""


# Those that are there.


def test_they_are_there():
    assert {"jsb", "pydoc", "pydoc-2d"} <= set(shipped.names())


@pytest.fixture(params=shipped.names())
def name(request, monkeypatch, tmp_path):
    """A shipped model, in a working folder that is empty."""
    monkeypatch.chdir(tmp_path)
    return request.param


def test_a_shipped_folder_is_complete_and_small(name):
    folder = shipped.FOLDER / name
    assert {path.name for path in folder.iterdir()} == FILES
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3e6
    with safe_open(folder / WEIGHTS, "pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.float16}  # noqa: SIM118
    assert Run.open(name).config.data.data_dir is None


def test_it_samples_and_scores(name, capsys):
    model = latflow.load(name)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    T = int(np.argmax(model.spec.length_counts))
    words = ["sample", name, "-n", "2", "--length", str(T)]
    if model.spec.kind == "music":
        assert main(words) == 0
        assert capsys.readouterr().out.split()[0] == f"{name}-sample-1.mid"
        own = Path("own.mid")
        write_midi(own, [[48, 55, 64, 72]] * T, Run.open(name).config.data.steps_per_beat)
    else:
        assert main([*words, "--out", "own.txt"]) == 0
        own = Path("own.txt")
    capsys.readouterr()
    assert main(["score", name, str(own), "--samples", "2"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert 0 < json.loads(line)["nll_per_step"] < 100


def test_its_card_says_what_it_is(name):
    text, card = shipped.card_text(name), shipped.card(name)
    assert len(card.about) > 20
    assert re.fullmatch(r"\d+\.\d+ ± \d+\.\d+", card.nll)
    assert card.unit in ("bits per character", "nats per time step")
    assert f"$ latflow evaluate {name} --split test" in text
    for said in ("## Data", "## Training", "## Results", "## Use", "icence", "seed", "minutes", "parameters"):
        assert said in text, said


def test_the_command_of_its_card_trains_it(name):
    command = re.search(r"^    (latflow train (?:.+\\\n)*.+)$", shipped.card_text(name), re.MULTILINE)
    assert command
    words = shlex.split(command[1].replace("\\\n", " "))[2:]
    given, shipped_with = flatten(config_of(parse(["train", *words]))), flatten(Run.open(name).config)
    assert {field for field in given if given[field] != shipped_with[field]} <= set(NO_MATTER)


def test_the_numbers_of_its_card_are_those_of_its_weights(name, capsys):
    """The evaluation with one sample is the first step of the one in the card, which used 50."""
    run = Run.open(name)
    if run.config.data.name in fetch.CORPORA and not fetch.find(run.config.data.name):
        pytest.skip(f"{run.config.data.name} is not on this machine")
    if data.load(run.config.data).spec != run.spec:
        pytest.skip("this Python has other help topics")
    said = re.search(r"NLL at K +1: (\d+\.\d+), .* 50: \d", shipped.card_text(name))
    assert said
    assert main(["evaluate", name, "--samples", "1", "--json"]) == 0
    # float32 on another processor
    assert json.loads(capsys.readouterr().out)["nll"] == pytest.approx(float(said[1]), rel=1e-3)


def test_a_wheel_contains_them(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    inside = set(zipfile.ZipFile(path).namelist())
    wanted = {f"latflow/shipped/{name}/{file}" for name in shipped.names() for file in FILES}
    assert wanted | {"latflow/shipped/__init__.py"} <= inside


# Names, with a tiny model in place of those.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run, finished = train(config(train__epochs=1), tmp_path_factory.mktemp("runs") / "run")
    assert finished
    return run


@pytest.fixture
def tiny(trained, tmp_path, monkeypatch):
    """A package that ships `tiny`, and an empty working folder."""
    assert main(["export", str(trained.folder), str(tmp_path / "package" / "tiny"), "--half"]) == 0
    (tmp_path / "package" / "tiny" / "card.md").write_text(CARD, encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "package")
    return tmp_path / "package" / "tiny"


def test_a_name_stands_for_a_folder(tiny, trained, capsys):
    assert Run.open("tiny").folder == tiny
    capsys.readouterr()
    assert main(["sample", "tiny", "-n", "2"]) == 0
    drawn = capsys.readouterr().out
    assert len(drawn.splitlines()) == 2
    assert main(["evaluate", "tiny", "--samples", "1"]) == 0
    assert capsys.readouterr().out.startswith("tiny: hmm, test")
    Path("own.txt").write_text("kate son dalo\n")
    assert main(["score", "tiny", "own.txt", "--samples", "2"]) == 0


def test_a_folder_of_that_name_comes_first(tiny, trained):
    Path("tiny").symlink_to(trained.folder)
    assert Run.open("tiny").folder == Path("tiny")
    assert Run.open("tiny").has("metrics.jsonl")
    Path("tiny").unlink()
    Path("tiny").mkdir()
    with pytest.raises(LatflowError, match="it hides the shipped model of that name"):
        latflow.load("tiny")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "huge"], "no run at huge: there is no such folder; accepted: a run's folder, or one of"),
        (["evaluate", "runs/tiny"], "or one of the shipped models: tiny"),
        (["models", "huge"], "no shipped model called 'huge'; accepted: tiny"),
        (["train", "--resume", "tiny"], "train one like it from the start: latflow train --config"),
        (["sample", "tiny", "--weights", "last"], "its best weights only"),
        (["plot", "curves", "tiny"], "tiny is a model alone, without metrics.jsonl"),
        (["plot", "modality", "tiny", "kate"], "needs an LSTM language model"),
        (["plot", "prior", "tiny", "kate"], "take the shipped model pydoc-2d"),
        (["plot", "roll", "tiny"], "this figure is of music"),
        (["export", "tiny", "."], ". exists already"),
    ],
)
def test_mistakes_are_one_line(tiny, capsys, words, message):
    capsys.readouterr()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_models_lists_them(tiny, capsys):
    capsys.readouterr()
    assert main(["models"]) == 0
    assert re.search(
        r"^tiny +A tiny model of a tiny language\. +3\.4567 ± 0\.0890 bits per character +0\.\d MB$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["nll"] == "3.4567 ± 0.0890"
    assert main(["models", "tiny"]) == 0
    assert capsys.readouterr().out == CARD


# What is exported.


def test_an_exported_model_trains_anew_from_its_config(tiny, capsys):
    assert main(["train", "--config", str(tiny / "config.json"), "--run", "again", "--quiet"]) == 0
    assert Run.open("again").config == Run.open("tiny").config


def test_half_precision_scores_nearly_the_same(tiny, trained):
    """float16 rounds weights by 1 part in 2048 at most; what they add up to differs by less than that here."""
    whole, half = trained.model(), latflow.load("tiny")
    test = data.load(trained.config.data).splits["test"]
    items = [test[i] for i in range(len(test))]
    for a, b in zip(score(whole, items, samples=4), score(half, items, samples=4), strict=True):
        assert a["nll"] == pytest.approx(b["nll"], rel=1 / 2048)
    assert any(
        not torch.equal(a, b) for a, b in zip(whole.parameters(), half.parameters(), strict=True)
    )  # they were rounded


def test_export_in_full_precision_is_exact(trained, tmp_path):
    assert main(["export", str(trained.folder), str(tmp_path / "full")]) == 0
    made, run = latflow.load(tmp_path / "full"), Run.open(tmp_path / "full")
    for name, tensor in weights_of(trained.model()).items():
        assert torch.equal(tensor, weights_of(made)[name])
    assert run.spec == trained.spec
    assert run.config == trained.config


def test_paths_of_this_machine_are_not_exported(tmp_path):
    settings = config(data__data_dir=str(tmp_path))
    model = build(settings.model, data.load(settings.data).spec)
    assert latflow.save(model, tmp_path / "shared", settings).config.data.data_dir is None
    own = evolve(settings, {"data.name": f"text:{tmp_path}/secret/lines.txt"})
    shared = latflow.save(model, tmp_path / "own", own)
    assert shared.config.data.name == "text:lines.txt"
    assert all("secret" not in path.read_text() for path in shared.folder.glob("*.json"))


@pytest.mark.parametrize("value", [7e4, float("inf")])
def test_what_half_precision_cannot_hold_is_refused(tmp_path, value):
    settings = config()
    model = build(settings.model, data.load(settings.data).spec)
    weight = next(model.parameters())
    with torch.no_grad():
        weight.view(-1)[0] = -value
    with pytest.raises(LatflowError, match=rf"a value of size {value:g} and half precision ends at 65504"):
        latflow.save(model, tmp_path / "half", settings, half=True)
    assert not (tmp_path / "half").exists()
    latflow.save(model, tmp_path / "full", settings)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("jsb", "the data jsb is not on this machine (latflow data fetch jsb)"),
        ("midi:gone", "gone: no such folder"),
    ],
)
def test_rolls_of_samples_alone_where_the_data_is_not(where, message, tmp_path, monkeypatch, capsys):
    """A model on a machine without its data: no download, a figure with one column."""
    settings = config("chords-lstm")
    model = build(settings.model, data.load(settings.data).spec)
    latflow.save(model, tmp_path / "run", evolve(settings, {"data.name": where}))
    monkeypatch.setattr(fetch, "folders", lambda data_dir: [])
    assert main(["plot", "roll", str(tmp_path / "run"), "-n", "2", "--out", str(tmp_path / "roll")]) == 0
    said = capsys.readouterr()
    assert f"samples only: {message}" in said.err
    assert (tmp_path / "roll.png").is_file()
