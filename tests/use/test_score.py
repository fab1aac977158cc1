"""A score is of the sequence alone, with an error that says how far it is from the truth; Python gives what the
command prints."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
import torch

import latflow
from latflow import data
from latflow.cli import main
from latflow.config import evolve
from latflow.data.base import collate
from latflow.errors import LatflowError
from latflow.flows import Packing
from latflow.models import build
from latflow.models.base import Importance
from latflow.presets import find
from latflow.training import train
from latflow.use import Scores, score
from latflow.use.score import _error
from tests.training.test_distributed import torchrun
from tests.training.tiny import TINY, config


def codebook(**changes):
    """A tiny codebook flow."""
    fitting = {k: v for k, v in TINY.items() if k.split(".")[0] != "model" or k.endswith("context.units")}
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return evolve(find("hmm-af-af-codebook").config, {**fitting, **dotted})


def made(preset: str = "hmm-af-af"):
    settings = codebook() if preset.endswith("codebook") else config(preset)
    corpus = data.load(settings.data)
    torch.manual_seed(1)
    model = build(settings.model, corpus.spec)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.eval(), corpus


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run, _ = train(config(train__epochs=1), tmp_path_factory.mktemp("runs") / "run")
    return run


@pytest.mark.parametrize("preset", ["hmm-af-af", "hmm-af-af-codebook", "hmm-lstm"])
def test_a_score_does_not_depend_on_the_other_lines(preset):
    """Alone, among all others, in another order: the same number of samples and the same figures."""
    model, corpus = made(preset)
    lines = list(corpus.splits["test"])
    every = score(model, lines, tolerance=0.02)
    back = score(model, lines[::-1], tolerance=0.02)[::-1]
    for number in (0, 7, 19):
        (alone,) = score(model, [lines[number]], tolerance=0.02)
        for row in (every[number], back[number]):
            assert row.get("samples") == alone.get("samples")
            assert row["nll"] == pytest.approx(alone["nll"], rel=1e-5)
    assert every[0]["nll"] != every[1]["nll"]


def test_the_noise_of_a_key_is_of_that_key_alone():
    lengths, keys = torch.tensor([2, 4, 3]), torch.tensor([5, 6, 5])
    rows = Packing(lengths, keys=keys).noise(2, 3, torch.zeros(()))
    padded = Packing(lengths).unpack(rows)
    alone = Packing(lengths[1:2], keys=keys[1:2]).noise(2, 3, torch.zeros(()))
    torch.testing.assert_close(padded[1], alone)
    torch.testing.assert_close(padded[0, :2], padded[2, :2])  # one key, one stream
    assert not torch.equal(padded[0, :2], padded[1, :2])
    many = Packing(torch.tensor([500]), keys=torch.tensor([9])).noise(40, 3, torch.zeros(()))
    assert float(many.mean()) == pytest.approx(0, abs=5 / math.sqrt(60_000))
    assert float(many.square().mean()) == pytest.approx(1, abs=5 * math.sqrt(2 / 60_000))


def test_the_error_is_that_of_the_mean_over_the_mean(double):
    """Against the spread of many estimates, log-normal weights."""
    log_w = 0.3 * torch.randn(20_000, 64)
    found = Importance.of(log_w)
    w = log_w.exp()
    by_hand = w.std(1) / math.sqrt(64) / w.mean(1)
    torch.testing.assert_close(found.error(), by_hand)
    spread = float(found.nll().std())
    assert float(found.error().square().mean().sqrt()) == pytest.approx(
        spread, rel=0.03
    )  # 20,000 of them: 0.5 %
    assert Importance.of(log_w[:, :1]).error().isnan().all()
    assert not Importance.of(torch.zeros(3, 4)).error().any()


def test_samples_are_drawn_until_the_error_is_small():
    model, corpus = made()
    lines = list(corpus.splits["test"])
    rough, fine = (score(model, lines, tolerance=e, samples=256) for e in (0.4, 0.01))
    assert sum(row["samples"] for row in rough) < sum(row["samples"] for row in fine)
    for rows, e in ((rough, 0.4), (fine, 0.01)):
        for row in rows:
            limit = min(e * (row["length"] + 1), 0.7 / math.log(2))
            assert row["nll_error"] <= limit or row["samples"] == 256
            assert row["samples"] in (2, 8, 16, 32, 64, 128, 256)
    assert any(row["samples"] < 256 for row in rough)
    assert {row["samples"] for row in score(model, lines, samples=5)} == {5}
    assert all(row["samples"] <= 16 for row in score(model, lines, samples=16, tolerance=1e-9))


def test_error_bars_hold_over_seeds():
    """Two seeds differ by about sqrt(2) errors: over 20 sequences and 3 pairs the mean square ratio is near 1."""
    model, corpus = made("hmm-af-af-codebook")
    lines = list(corpus.splits["test"])
    runs = [score(model, lines, samples=256, seed=seed) for seed in range(6)]
    ratios = [
        (a["nll"] - b["nll"]) ** 2 / (a["nll_error"] ** 2 + b["nll_error"] ** 2)
        for one, other in zip(runs[::2], runs[1::2], strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    assert 0.5 < float(np.mean(ratios)) < 2.0  # 60 squares of standard normals: 1 ± 0.18


def test_the_codebook_needs_few_samples(tmp_path):
    run, _ = train(codebook(train__epochs=3, data__train_size=400), tmp_path / "run")
    rows = score(run.model(), list(data.load(run.config.data).splits["test"]))
    samples = [row["samples"] for row in rows]
    assert set(samples) <= {2, 8}
    assert samples.count(2) > len(rows) / 2
    assert all(row["nll_error"] < 0.01 / math.log(2) for row in rows if row["samples"] == 2)


@pytest.mark.parametrize("samples", [2, 4, 5, 8, 16])
def test_intervals_from_few_samples_hold(samples):
    """Of log-weights that spread by a tenth, 1.96 errors hold the truth in 19 of 20; without the widening in fewer."""
    draws = torch.randn(20_000, samples, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = Importance.of(0.1 * draws - 0.005)  # of mean 1
    held = (weights.nll().abs() < 1.96 * _error(weights)).double().mean()
    assert 0.943 < held < 0.975  # ± 0.0015; of 5 samples the width of 4
    narrow = (weights.nll().abs() < 1.96 * weights.error()).double().mean()
    assert narrow < 0.94


def test_python_gives_what_the_command_prints(trained, tmp_path, capsys):
    lines = ["kate son dalo", "", "kate 7", "lodano tesi", "kate son dalo", "x" * 99]
    own = tmp_path / "own.txt"
    own.write_text("\n".join(lines))
    assert main(["score", str(trained.folder), str(own), "--device", "cpu"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["index"] for row in printed] == [1, 3, 4, 5, 6]  # the empty line is counted
    rows = latflow.score(latflow.load(trained.folder), lines)
    assert isinstance(rows, list)
    assert [row["sequence"] for row in rows] == lines
    assert rows[1]["nll"] is None  # an empty line
    assert "'7' at position 6" in rows[2]["error"]
    assert len(rows) == 6
    assert [row for row in rows if row["sequence"]] == printed


def test_a_string_is_one_sequence(trained):
    model = trained.model()
    assert [row["sequence"] for row in score(model, "kate son")] == ["kate son"]
    assert [row["length"] for row in score(model, np.zeros(9, np.int64))] == [9]
    (row,) = score(model, [None])
    assert "no sequence of characters" in row["error"]
    with pytest.raises(LatflowError, match="tolerance is 0"):
        score(model, "kate son", tolerance=0)


def test_csv(trained, tmp_path, capsys):
    own, out = tmp_path / "own.txt", tmp_path / "scores.csv"
    own.write_text('kate son dalo\nlodano "tesi, te\n')
    folder = str(trained.folder)
    assert main(["score", folder, str(own), "--csv", "--steps", "--out", str(out), "--device", "cpu"]) == 0
    with out.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert first["sequence"] == "kate son dalo"
    assert "".join(first[f"token_{t}"] for t in range(1, 14)) == "kate son dalo"
    (row,) = score(trained.model(), "kate son dalo")
    assert [float(first[f"surprise_{t}"]) for t in range(1, 14)] == pytest.approx(
        row["bound_steps"], rel=1e-4
    )
    assert float(first["nll"]) == pytest.approx(row["nll"], rel=1e-5)
    assert float(first["nll_error"]) == pytest.approx(row["nll_error"], rel=1e-5)
    assert "at position 8" in second["error"]
    assert second["nll"] == ""
    text = score(trained.model(), ["kate son dalo"]).to_csv()
    assert text is not None
    assert next(csv.DictReader(io.StringIO(text)))["nll"] == first["nll"]


def test_what_is_more_surprising_than_a_share_of_the_reference(trained, capsys):
    spec = trained.spec
    reference = Scores([{"sequence": "", "nll_per_step": v / 100} for v in range(1, 101)], spec)
    given = [
        {"sequence": s, "nll_per_step": v} for s, v in (("a", 0.5), ("b", 0.995), ("c", None), ("d", 7.0))
    ]
    found, limit = Scores(given, spec).against(reference, 0.99)
    assert limit == pytest.approx(0.9901)
    assert [row["anomaly"] for row in found] == [False, True, True, True]
    assert [row["quantile"] for row in found] == [0.49, 0.99, None, 1.0]
    assert [row["sequence"] for row in found.ranked()] == ["d", "b", "a", "c"]
    with pytest.raises(LatflowError, match=r"1\.5; it is a share"):
        found.against(reference, 1.5)


def test_threshold_of_a_split_and_of_a_file(trained, tmp_path, capsys):
    own, ordinary = tmp_path / "own.txt", tmp_path / "ordinary.txt"
    ordinary.write_text("kate son dalo\nlodano tesi\nkate dalo son\n")
    own.write_text("kate son dalo\ndddd dddd kkk\n")
    words = ["score", str(trained.folder), str(own), "--threshold", "0.5", "--device", "cpu", "--sort"]
    assert main([*words, "--reference", str(ordinary)]) == 0
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["nll_per_step"] for row in rows] == sorted(
        (row["nll_per_step"] for row in rows), reverse=True
    )
    assert rows[0]["anomaly"] == (rows[0]["quantile"] > 0.5)
    assert "bits per character" in said.err
    assert main(words) == 0
    split = score(trained.model(), list(trained.corpus().splits["valid"]))
    limit = np.quantile([row["nll_per_step"] for row in split], 0.5)
    for line in capsys.readouterr().out.splitlines():
        row = json.loads(line)
        assert row["anomaly"] == (row["nll_per_step"] > limit)


def test_two_processes_score_as_one(trained, tmp_path, capsys):
    own = tmp_path / "own.txt"
    lines = [trained.spec.decode(x) for x in trained.corpus().splits["test"]]
    own.write_text("\n".join([*lines, "kate 7"]))
    assert main(["score", str(trained.folder), str(own), "--device", "cpu"]) == 0
    alone = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ended = torchrun(2, "-m", "latflow", "--", "score", str(trained.folder), str(own), "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    both = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["sequence"] for row in both] == [row["sequence"] for row in alone]
    for one, other in zip(alone, both, strict=True):
        assert one.get("samples") == other.get("samples")
        assert one["nll"] is other["nll"] or one["nll"] == pytest.approx(other["nll"], rel=1e-5)


def test_tokens_are_lines_or_lists(tmp_path, capsys):
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps(["up", "down", i % 3]) + "\n" for i in range(60)))
    run, _ = train(
        config(
            "hmm-lstm", data__name=f"tokens:{own}", data__train_size=0, data__eval_size=0, train__epochs=1
        ),
        tmp_path / "run",
    )
    rows = score(
        run.model(), ['["up", 1, "down"]', ["up", 1, "down"], "up", run.spec.encode(["up", 1, "down"])]
    )
    assert rows[0]["nll"] == rows[1]["nll"] == rows[3]["nll"]
    assert rows[2]["error"] == "not JSON (Expecting value)"
    text = rows.to_csv(steps=True)
    assert text is not None
    table = list(csv.DictReader(io.StringIO(text)))
    assert [table[i]["sequence"] for i in (0, 1, 3)] == ["up 1 down"] * 3
    assert [table[0][f"token_{t}"] for t in (1, 2, 3)] == ["up", "1", "down"]


def test_a_posterior_with_noise_of_its_own_is_scored_one_at_a_time(monkeypatch):
    """One that does not draw by keys: each sequence under a seed of its own."""
    model, corpus = made()
    lines = list(corpus.splits["test"])[:5]
    monkeypatch.setattr(type(model.get_submodule("posterior")), "keyed", False)
    monkeypatch.setattr(
        Packing, "noise", lambda self, s, h, like: torch.randn(self.rows, s, h, dtype=like.dtype)
    )
    every = score(model, lines, samples=4)
    assert [row["nll"] for row in score(model, lines[::-1], samples=4)[::-1]] == [row["nll"] for row in every]
    assert collate(lines, corpus.spec).key is None
