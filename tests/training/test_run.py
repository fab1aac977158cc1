"""A run's folder: complete, safe to load, refused when damaged or foreign."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

import latflow
from latflow import data
from latflow.cli import main
from latflow.data.base import Batches
from latflow.errors import LatflowError
from latflow.models import build
from latflow.training.fit import resume, train
from latflow.training.run import TRAINER, WEIGHTS, Run
from latflow.training.stored import set_weights, weights_of
from tests.training.tiny import config, run_python


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run, _ = train(config(train__epochs=2), tmp_path_factory.mktemp("runs") / "run")
    return run


@pytest.fixture
def copy(trained, tmp_path):
    return Run.open(shutil.copytree(trained.folder, tmp_path / "copy"))


def test_holds_all_that_is_promised(trained):
    names = {path.name for path in trained.folder.iterdir()}
    assert names == {"run.json", "config.json", "data.json", WEIGHTS, TRAINER, "metrics.jsonl"}
    about = json.loads((trained.folder / "run.json").read_text())
    assert about["versions"]["torch"] == torch.__version__
    assert about["seed"] == trained.config.seed
    spec = json.loads((trained.folder / "data.json").read_text())
    assert len(spec["symbols"]) == 12
    assert sum(spec["length_counts"]) == 80


def test_its_files_are_no_more_private_than_others(trained, tmp_path):
    """safetensors writes files that only their owner may read; a folder that is shared must not hold them."""
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in trained.folder.iterdir()}
    assert modes == {(tmp_path / "other").stat().st_mode}


def test_load_needs_no_data_and_no_other_file(copy):
    """Another process, another working folder, only what one would share; the same likelihoods to the bit."""
    (copy.folder / TRAINER).unlink()
    (copy.folder / "metrics.jsonl").unlink()
    model = latflow.load(copy.folder)
    batch = next(Batches(data.load(copy.config.data).splits["test"], 5).epoch(0))
    torch.manual_seed(0)
    expected = model.nll(batch, samples=3).tolist()
    script = (
        "import sys, torch, json, latflow\n"
        "from latflow.data.base import Batch\n"
        "model = latflow.load(sys.argv[1])\n"
        "x, lengths = (torch.tensor(v) for v in json.loads(sys.argv[2]))\n"
        "batch = Batch(x, lengths, torch.arange(5), torch.ones(5))\n"
        "torch.set_num_threads(1); torch.manual_seed(0)\n"
        "print(json.dumps(model.nll(batch, samples=3).tolist()))\n"
    )
    given = json.dumps([batch.x.tolist(), batch.lengths.tolist()])
    ended = run_python("-c", script, str(copy.folder), given, LATFLOW_DATA="/nowhere")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == expected


def test_best_weights_are_those_of_the_best_epoch(trained):
    _, about = trained.read(WEIGHTS)
    epochs = [line for line in trained.metrics() if line["kind"] == "epoch"]
    best = min(epochs, key=lambda line: line["valid"]["negative_elbo"])
    assert about["epoch"] == best["epoch"]


@pytest.mark.parametrize("name", [WEIGHTS, "run.json", "config.json", "data.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_file_cut_short_is_refused(copy, name, share):
    path = copy.folder / name
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(LatflowError, match="damaged"):
        latflow.load(copy.folder)


def test_a_flipped_bit_is_refused(copy):
    path = copy.folder / WEIGHTS
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(LatflowError, match="checksum"):
        latflow.load(copy.folder)


def test_foreign_folders_are_refused(tmp_path, copy):
    with pytest.raises(LatflowError, match="no such folder"):
        latflow.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LatflowError, match="not a run of latflow"):
        latflow.load(tmp_path / "empty")
    (copy.folder / "run.json").write_text('{"format": 99}')
    with pytest.raises(LatflowError, match="format 99"):
        latflow.load(copy.folder)


def test_weights_of_another_model_are_refused(copy):
    other = build(config(model__latent_size=5).model, copy.spec)
    copy.save(WEIGHTS, weights_of(other), {})
    with pytest.raises(LatflowError, match="has shape"):
        latflow.load(copy.folder)
    copy.save(WEIGHTS, {"foreign": torch.zeros(3)}, {})
    with pytest.raises(LatflowError, match="do not fit"):
        latflow.load(copy.folder)
    save_file({"foreign": torch.zeros(3)}, copy.folder / WEIGHTS)
    with pytest.raises(LatflowError, match="damaged"):
        latflow.load(copy.folder)


def test_weights_that_are_not_finite_are_refused(copy):
    weights = {name: value.clone() for name, value in weights_of(copy.model()).items()}
    weights["emission.head.bias"][0] = float("nan")
    copy.save(WEIGHTS, weights, {})
    with pytest.raises(LatflowError, match=r"weights that are not finite \(emission\.head\.bias\)"):
        latflow.load(copy.folder)


PLACES = '"epoch": 1, "updates": 9, "kl_weight": 1.0, "lr": 0.1, "seconds": 2.0'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "[" * 100_000, "config.json cannot be read"),
        ("config.json", '{"train": {"lr": 1' + "0" * 400 + "}}", "train.lr is 1000"),
        (
            "data.json",
            '{"kind": "music", "symbols": [], "length_counts": [0, 1' + "0" * 400 + "]}",
            "below 2",
        ),
        ("metrics.jsonl", '{"epoch": 1}\n', "line 1 has no kind"),
        ("metrics.jsonl", "[1]\n", "line 1 has no kind"),
        ("metrics.jsonl", '{"kind": "epoch"}\n', "line 1 has no number epoch"),
        (
            "metrics.jsonl",
            f'{{"kind": "epoch", {PLACES}, "train": 3}}\n',
            "line 1 has no number train.negative_elbo",
        ),
    ],
)
def test_strange_content_is_named(copy, name, content, message):
    (copy.folder / name).write_text(content)
    with pytest.raises(LatflowError, match=rf"damaged: .*{message}"):
        Run.open(copy.folder).metrics()


def test_a_pickle_is_never_run(copy, tmp_path):
    """A weights file that is a pickle which would make a folder: refused, and the folder is not there."""
    import os
    import pickle

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    for name in (WEIGHTS, TRAINER):
        (copy.folder / name).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(LatflowError, match="damaged"):
        latflow.load(copy.folder)
    assert not (tmp_path / "evil").exists()


def test_tensors_with_two_names_are_saved_once(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3)
            self.b = self.a

    one, two = Tied(), Tied()
    assert set(weights_of(one)) == {"a.weight", "a.bias"}
    set_weights(two, weights_of(one), "here")
    assert torch.equal(two.b.weight, one.a.weight)


def test_a_run_that_lost_its_state_is_not_begun_anew(copy):
    (copy.folder / TRAINER).unlink()
    metrics = (copy.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(LatflowError, match="the state of its training, any more"):
        resume(copy.folder)
    assert (copy.folder / "metrics.jsonl").read_bytes() == metrics


def test_what_is_not_a_run_is_not_offered_to_go_on_with(tmp_path):
    (tmp_path / "mine.txt").write_text("text")
    with pytest.raises(LatflowError, match=r"mine\.txt exists already; name another with --run$"):
        train(config(), tmp_path / "mine.txt")


def test_the_weights_that_are_taken_are_named(copy, capsys):
    (copy.folder / WEIGHTS).unlink()
    assert main(["evaluate", str(copy.folder), "--samples", "1"]) == 2
    assert "--weights last" in capsys.readouterr().err
    assert main(["evaluate", str(copy.folder), "--samples", "1", "--weights", "last"]) == 0
    assert "last weights" in capsys.readouterr().out


def test_one_process_trains_in_a_folder(trained):
    with trained.writer(), pytest.raises(LatflowError, match="another process is training in"):
        resume(trained.folder)
    assert resume(trained.folder)[1]


def test_the_mean_of_the_weights_is_what_is_kept(tmp_path):
    """Of one epoch: the best weights are the last ones, and both are the mean."""
    run, _ = train(config("hmm-lstm", train__epochs=1, train__ema=0.9), tmp_path / "run")
    last, best = run.model("last").parameters(), run.model("best").parameters()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(last, best, strict=True))


def test_a_new_run_never_overwrites(trained):
    with pytest.raises(LatflowError, match="exists already"):
        Run.create(trained.folder, trained.config, trained.spec)
