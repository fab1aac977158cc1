"""A run that is killed goes on to the bit as if it had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from latflow.cli import main
from latflow.config import evolve, to_dict
from latflow.errors import LatflowError
from latflow.training import stored
from latflow.training.fit import resume, train
from latflow.training.loop import Trainer
from latflow.training.run import TRAINER, WEIGHTS, Run
from tests.training.tiny import ROOT, config, environment, run_python, without_times

# Dropout, accumulation over a last group that is short, an EMA, learning-rate drops: all that has state.
HARD = {
    "model__prior__context__dropout": 0.2,
    "train__accumulate": 3,
    "train__ema": 0.9,
    "train__patience": 1,
    "train__checkpoint_minutes": 0.0,
    "train__epochs": 4,
    "train__kl_steps": (2, 0),
    "train__lr": 0.3,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    torch.set_num_threads(1)
    run, finished = train(config(**HARD), tmp_path_factory.mktemp("runs") / "whole")
    assert finished
    return run


def assert_same(run: Run, whole: Run) -> None:
    """Loss curve, final weights, moments, counters and best weights, to the bit."""
    assert without_times(run.metrics()) == without_times(whole.metrics())
    for name in (TRAINER, WEIGHTS):
        (ours, state), (theirs, expected) = run.read(name), whole.read(name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
        for clock in ("seconds", "metrics_size"):  # the size of metrics.jsonl has the digits of seconds in it
            assert (state.pop(clock, None) is None) == (expected.pop(clock, None) is None)
        assert state == expected


def test_the_whole_run_saw_a_learning_rate_drop(whole):
    """Else the tests below would not show that it survives a kill."""
    assert len({line["lr"] for line in whole.metrics() if line["kind"] == "epoch"}) > 1


def test_kill_9_at_random_moments(whole, tmp_path):
    """With a checkpoint after every step, so that many kills fall into the writing of one."""
    folder = tmp_path / "killed"
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps(to_dict(whole.config)))
    words = [sys.executable, "-m", "latflow", "train", "--quiet"]
    rng, kills = random.Random(1), 0
    while kills < 5:
        more = (
            ["--resume", str(folder)]
            if folder.exists()
            else ["--config", str(settings), "--run", str(folder)]
        )
        before = (folder / TRAINER).stat().st_mtime_ns if (folder / TRAINER).exists() else 0
        process = subprocess.Popen(words + more, env=environment(), cwd=ROOT, stderr=subprocess.DEVNULL)
        # Wait until this sitting has written a checkpoint, then kill a random moment later.
        while process.poll() is None and not (
            (folder / TRAINER).exists() and (folder / TRAINER).stat().st_mtime_ns > before
        ):
            time.sleep(0.002)
        time.sleep(rng.random() * 0.1)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        Run.open(folder).read(TRAINER)  # whatever the moment, there is a whole checkpoint
    assert kills >= 2
    run, finished = resume(folder)
    assert finished
    assert_same(run, whole)


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_kill_while_a_checkpoint_is_written(whole, tmp_path, monkeypatch, moment):
    """Death before, in the middle of, and right after the writing of a checkpoint, before it is in its place."""

    class Death(BaseException):
        pass

    real, calls = stored.save_file, 0

    def dying(tensors, path, metadata):
        nonlocal calls
        calls += 1
        if calls != 6:
            return real(tensors, path, metadata)
        if moment != "before":
            real(tensors, path, metadata)
        if moment == "half":
            os.truncate(path, path.stat().st_size // 2)
        path.with_name("left-behind").write_bytes(path.read_bytes() if path.exists() else b"")
        raise Death

    monkeypatch.setattr(stored, "save_file", dying)
    folder = tmp_path / "run"
    with pytest.raises(Death):
        train(whole.config, folder)
    (folder / "left-behind").replace(folder / f".{TRAINER}.new")  # as a kill would leave it
    monkeypatch.undo()
    run, finished = resume(folder)
    assert finished
    assert_same(run, whole)


def test_kill_between_the_best_weights_and_the_checkpoint(whole, tmp_path, monkeypatch):
    """The best weights of an epoch are written before its checkpoint; that epoch's end is then done again."""

    def die(self):
        if self.state.epoch == 2 and self.state.batch == 0:
            raise KeyboardInterrupt
        real(self)

    real = Trainer._save
    monkeypatch.setattr(Trainer, "_save", die)
    with pytest.raises(KeyboardInterrupt):
        train(whole.config, tmp_path / "run")
    monkeypatch.undo()
    run, _ = resume(tmp_path / "run")
    assert_same(run, whole)


def test_an_early_checkpoint_whose_sums_are_lists_goes_on(whole, tmp_path, monkeypatch):
    """Stopped in the middle of an epoch and between two lines, when both sums hold something."""

    def stop(self, group):
        return real(self, group) or self.state.updates == 5

    real = Trainer._update
    monkeypatch.setattr(Trainer, "_update", stop)
    settings = evolve(whole.config, {"train.log_every": 2})
    run, finished = train(settings, tmp_path / "run")
    monkeypatch.undo()
    assert not finished
    tensors, state = run.read(TRAINER)
    for name in ("epoch_sums", "line_sums"):
        names = ("loss", "reconstruction", "kl", "length", "steps", "sequences")
        state[name] = [state[name][part] for part in names]
        assert all(state[name])
    run.save(TRAINER, tensors, state)
    resume(run.folder)
    straight, _ = train(settings, tmp_path / "straight")
    assert_same(run, straight)


def test_killed_before_the_first_checkpoint(whole, tmp_path):
    """The folder is there, the config in it, and nothing else."""
    folder = Run.create(tmp_path / "run", whole.config, whole.spec).folder
    (folder / "metrics.jsonl").write_text('{"kind": "step"}\n{"ki')
    run, _ = resume(folder)
    assert_same(run, whole)


def test_ctrl_c_saves_and_says_how_to_go_on(whole, tmp_path):
    folder = tmp_path / "run"
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps(to_dict(whole.config)))
    words = [sys.executable, "-m", "latflow", "train", "--config", str(settings), "--run", str(folder)]
    process = subprocess.Popen(
        words, env=environment(), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while not (folder / TRAINER).exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"latflow train --resume {folder}" in said
    assert "Traceback" not in said
    run, _ = resume(folder)
    assert_same(run, whole)


def test_a_full_disk_loses_no_checkpoint(whole, tmp_path):
    """A real limit of the system on the size of a file, as a full disk would give: half a checkpoint fits."""
    folder = tmp_path / "run"
    limited = (
        "import resource, sys\n"
        "from latflow.training import stored\n"
        "from latflow.cli import main\n"
        "real, calls = stored.save_file, 0\n"
        "def save_file(tensors, path, metadata):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 5:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "    real(tensors, path, metadata)\n"
        "stored.save_file = save_file\n"
        "code = main(sys.argv[1:])\n"
        "assert 'torch._dynamo' not in sys.modules, 'two seconds of imports for nothing'\n"
        "sys.exit(code)\n"
    )
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps(to_dict(whole.config)))
    ended = run_python("-c", limited, "train", "--quiet", "--config", str(settings), "--run", str(folder))
    assert ended.returncode == 2, ended.stderr
    assert "checkpoint before it is kept" in ended.stderr
    assert "Traceback" not in ended.stderr
    # Three steps make an epoch: their checkpoints, its best weights, and its end, which no longer fits.
    assert Run.open(folder).read(TRAINER)[1]["updates"] == 3
    run, _ = resume(folder)
    assert_same(run, whole)


def test_resume_of_a_finished_run_changes_nothing(whole):
    before = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    _, finished = resume(whole.folder)
    assert finished
    assert {path.name: path.read_bytes() for path in whole.folder.iterdir()} == before


def test_resume_refuses_other_data(tmp_path):
    run, _ = train(config(train__epochs=1), tmp_path / "run")
    raw = to_dict(run.config)
    raw["data"]["synthetic_seed"] = 5
    raw["data"]["train_size"] = 10
    (run.folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(LatflowError, match=r"was trained on: its symbols or lengths are others"):
        resume(run.folder)


def test_data_of_the_same_symbols_and_lengths_but_other_content_is_refused(tmp_path, capsys):
    """A file sorted since has other sequences in its test set, some that were trained on."""
    words = [f"{a}{b}{c}" for a in "abc" for b in "abc" for c in "abc"]
    (tmp_path / "own.txt").write_text("\n".join(words))
    own = {"data__name": f"text:{tmp_path / 'own.txt'}", "data__train_size": 0, "data__eval_size": 0}
    run, _ = train(config("hmm-lstm", train__epochs=1, **own), tmp_path / "run")
    assert main(["evaluate", str(run.folder)]) == 0
    (tmp_path / "own.txt").write_text("\n".join(reversed(words)))
    with pytest.raises(
        LatflowError, match=r"trained on: other sequences, or another order, in train, valid, test$"
    ):
        resume(run.folder)
    capsys.readouterr()
    assert main(["evaluate", str(run.folder)]) == 2
    assert "other sequences, or another order" in capsys.readouterr().err
    exported = tmp_path / "exported"
    assert main(["export", str(run.folder), str(exported)]) == 0
    assert Run.open(exported).contents == run.contents


def test_own_data_is_found_from_anywhere_and_where_it_went(tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("own.txt").write_text("\n".join(f"{a}{b}" for a in "abcd" for b in "abcd"))
    own = {"data__name": "text:own.txt", "data__train_size": 0, "data__eval_size": 0}
    train(config("hmm-lstm", train__epochs=1, **own), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "run"]) == 0
    (tmp_path / "here").rename(tmp_path / "there")
    assert main(["evaluate", "run"]) == 2
    assert "--data-dir DIR" in capsys.readouterr().err
    assert main(["evaluate", "run", "--data-dir", "there"]) == 0
    assert main(["train", "--resume", "run"]) == 2
    assert "--data-dir DIR (of train --resume" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--data-dir", "there"]) == 0
    assert main(["train", "hmm-lstm", "--data-dir", "there"]) == 2
    assert "--data-dir is for --resume" in capsys.readouterr().err
