"""Two real processes do what one does."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from latflow import data
from latflow.cli import main
from latflow.config import to_dict
from latflow.data.base import Batches
from latflow.training.distributed import World
from latflow.training.fit import train
from latflow.training.loop import Trainer
from latflow.training.report import Reporter
from latflow.training.run import TRAINER, Run
from latflow.training.seeds import Stream, seeded
from tests.training.tiny import ROOT, config, environment

GRADIENTS = """
import sys, torch
from latflow import data
from latflow.training.distributed import join, leave
from latflow.training.report import Reporter
from latflow.training.run import Run
from latflow.training.loop import Trainer
from safetensors.torch import save_file

torch.set_num_threads(1)
with join("cpu") as world:
    for folder in sys.argv[1:]:
        run = Run.open(folder)
        trainer = Trainer(run, data.load(run.config.data), world, Reporter(quiet=True))
        group = list(trainer.batches.epoch(0))
        sums, _ = trainer.gradient(group, 0.5, 0, 0)
        if world.main:
            grads = {str(i): p.grad for i, p in enumerate(trainer.parameters)}
            sums = torch.tensor(sums.values, dtype=torch.float64)
            save_file({**grads, "sums": sums}, run.folder / "grads")
leave(0)
"""


def torchrun(processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    address = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    return subprocess.run(
        [*launch, *address, *words],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


# 13 sequences in batches of 3: shares of 2 and 1, and a last batch of 1, where one process has a filler of weight 0.
UNEVEN = {"data__train_size": 13, "train__batch_size": 3, "train__accumulate": 2, "train__epochs": 2}


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """Runs of a model without noise and of one with, the gradients that two processes found in the folder of each."""
    folder, runs = tmp_path_factory.mktemp("gradients"), {}
    for preset in ("hmm-lstm", "hmm-af-af"):
        settings = config(preset, **UNEVEN)
        runs[preset] = Run.create(folder / preset, settings, data.load(settings.data).spec)
    script = folder / "gradients.py"
    script.write_text(GRADIENTS)
    ended = torchrun(2, str(script), *(str(run.folder) for run in runs.values()))
    assert ended.returncode == 0, ended.stderr
    return runs


@pytest.mark.parametrize("preset", ["hmm-lstm", "hmm-af-af"])
def test_gradients_are_those_of_one_process_on_the_joint_batch(of_two, preset):
    run = of_two[preset]
    settings, corpus = run.config, data.load(run.config.data)
    found = load_file(run.folder / "grads")
    alone = Trainer(run, corpus, World(), Reporter(quiet=True))
    assert [len(batch) for batch in alone.batches.plan(0)].count(1) == 1
    if preset == "hmm-lstm":
        # No noise: the joint batch in one process is the answer.
        sums, _ = alone.gradient(list(alone.batches.epoch(0)), 0.5, 0, 0)
        expected = [p.grad for p in alone.parameters]
    else:
        # The noise of a process is its own, so add up by hand what each does with its share.
        shares = [
            list(Batches(corpus.splits["train"], 3, seed=settings.seed, rank=rank, world=2).epoch(0))
            for rank in (0, 1)
        ]
        count = 0.0
        for rank, share in enumerate(shares):
            for number, batch in enumerate(share):
                with seeded(settings.seed, Stream.TRAINING, 0, number, rank):
                    elbo = alone.model.terms(batch, settings.train.samples).elbo(0.5)
                (-batch.weight * elbo / (batch.lengths + 1)).sum().backward()
                count += float(batch.weight.sum())
        assert count == 13
        expected = [p.grad / count for p in alone.parameters if p.grad is not None]
        sums = None
    assert len(expected) == len(alone.parameters)
    for i, gradient in enumerate(expected):
        # The same terms added in another order, in float32.
        torch.testing.assert_close(found[str(i)], gradient, rtol=1e-4, atol=1e-6)
    if sums is not None:
        torch.testing.assert_close(
            found["sums"], torch.tensor(sums.values, dtype=torch.float64), rtol=1e-6, atol=0
        )


def test_train_with_two_go_on_with_one_and_evaluate_with_both(tmp_path):
    """Two processes begin, one goes on: the loss curve is that of one process, but for float32's rounding."""
    settings = config("hmm-lstm", **UNEVEN)
    one, _ = train(settings, tmp_path / "one")
    short = to_dict(settings)
    short["train"]["epochs"] = 1
    (tmp_path / "short.json").write_text(json.dumps(short))
    folder = tmp_path / "two"
    ended = torchrun(
        2, "-m", "latflow", "--", "train", "--config", str(tmp_path / "short.json"), "--run", str(folder)
    )
    assert ended.returncode == 0, ended.stderr
    (folder / "config.json").write_text(
        json.dumps(to_dict(settings))
    )  # as if it had been stopped after an epoch
    assert main(["train", "--resume", str(folder), "--quiet"]) == 0
    two = Run.open(folder)
    for ours, theirs in zip(two.metrics(), one.metrics(), strict=True):
        if ours["kind"] == "step":
            assert ours["updates"] == theirs["updates"]
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    ours, theirs = two.read(TRAINER)[0], one.read(TRAINER)[0]
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-2, atol=1e-3)


def test_evaluation_does_not_depend_on_the_number_of_processes(tmp_path, capsys):
    """To the bit, also with importance samples: the noise of a batch is a function of the batch."""
    run, _ = train(config(train__epochs=1, data__eval_size=45), tmp_path / "run")
    words = ["evaluate", str(run.folder), "--samples", "7", "--batch-size", "8", "--json"]
    two = torchrun(2, "-m", "latflow", *words)
    assert two.returncode == 0, two.stderr
    capsys.readouterr()
    assert main(words) == 0
    one = json.loads(capsys.readouterr().out)
    assert json.loads(two.stdout) == one
    assert one["sequences"] == 45
