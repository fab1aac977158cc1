"""Evaluating, scoring, sampling and reproducing against the same done by hand from the model's own terms."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from latflow import data
from latflow.cli import main
from latflow.data.base import Batch, Sequences, collate
from latflow.flows import Packing
from latflow.models import LatentSequenceModel, LSTMLanguageModel, SequenceModel, build
from latflow.presets import Preset
from latflow.reproduce.work import measure
from latflow.training import evaluate as evaluating
from latflow.training.evaluate import evaluate
from latflow.training.run import TRAINER, WEIGHTS, Run
from latflow.training.stored import weights_of
from latflow.use import sample, score
from tests.training.tiny import config

SMALL = {"data__train_size": 12, "data__eval_size": 5}


def reseed(*key: int) -> None:
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))


def made(preset: str, seed: int = 0, **changes: Any) -> tuple[SequenceModel, Any]:
    settings = config(preset, **SMALL, **changes)
    corpus = data.load(settings.data)
    torch.manual_seed(seed)
    model = build(settings.model, corpus.spec)
    with torch.no_grad():
        for p in model.parameters():  # away from the start, where much is alike
            p.add_(0.3 * torch.randn_like(p))
    return model.eval(), corpus


def batches(sequences: Sequences, size: int) -> list[tuple[np.ndarray, Batch]]:
    """By length, cut every `size`."""
    order = np.argsort(sequences.lengths, kind="stable")
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    return [
        (part, replace(collate([sequences[int(i)] for i in part], SPEC[0]), index=torch.from_numpy(part)))
        for part in parts
    ]


SPEC: list[Any] = [None]


@pytest.mark.parametrize(("preset", "unit"), [("hmm-af-af", math.log(2)), ("chords-af-scf", 1.0)])
def test_evaluate_by_hand(preset, unit, monkeypatch):
    """K = 5 in parts that end at the marks 1, 2 and 5 and hold two samples at most; every figure from log weights."""
    model, corpus = made(preset)
    SPEC[0] = corpus.spec
    test = corpus.splits["test"]
    monkeypatch.setattr(evaluating, "chunk_of", lambda batch: 2)
    found = evaluate(model, test, samples=5, batch_size=3, seed=4)

    n, L = len(test), test.lengths + 1
    logs, rec, kl = np.zeros((n, 5)), np.zeros(n), np.zeros(n)
    length = np.zeros(n)
    with torch.no_grad():
        for number, (index, batch) in enumerate(batches(test, 3)):
            reseed(4, 2, number)
            at = 0
            for part in (1, 1, 2, 1):
                terms = model.terms(batch, part)
                log_x, k = terms.log_emission.double().numpy(), terms.kl.double().numpy()
                logs[index, at : at + part] = (log_x - k).sum(-1)
                rec[index] -= log_x.sum((-1, -2)) / 5
                kl[index] += k.sum((-1, -2)) / 5
                length[index] = -terms.log_length.double().numpy()
                at += part
    weights = np.exp(logs - logs.max(1, keepdims=True))

    def nll(K: int) -> np.ndarray:
        return -(np.log(weights[:, :K].mean(1)) + logs.max(1)) + length

    ratio = nll(5).sum() / L.sum()
    spread = math.sqrt(n / (n - 1) * ((nll(5) - ratio * L) ** 2).sum()) / L.sum()
    wanted = {
        "nll": ratio / unit,
        "nll_error": spread / unit,
        "negative_elbo": (rec + kl + length).sum() / L.sum() / unit,
        "reconstruction": rec.sum() / L.sum() / unit,
        "kl": kl.sum() / L.sum() / unit,
        "length": length.sum() / L.sum() / unit,
        "effective_samples": (weights.sum(1) ** 2 / (weights**2).sum(1)).mean(),
    }
    assert {name: getattr(found, name) for name in wanted} == pytest.approx(wanted, rel=1e-5)
    assert found.nll_at == pytest.approx({K: nll(K).sum() / L.sum() / unit for K in (1, 2, 5)}, rel=1e-5)
    assert (found.samples, found.sequences, found.steps) == (5, n, int(L.sum()))
    assert wanted["kl"] > 0.01


def test_score_by_hand(monkeypatch):
    """All samples count, in the likelihood, its error and the steps; the noise is of the sequence's own key."""
    model, corpus = made("hmm-af-af")
    monkeypatch.setattr(sys.modules["latflow.use.score"], "_part", lambda length: 2)
    items = [corpus.splits["test"][i] for i in range(3)]
    rows = score(model, items, samples=5, seed=9)
    for i, x in enumerate(items):
        noise = []
        for first, part in ((0, 2), (2, 2), (4, 1)):
            key = int.from_bytes(
                hashlib.blake2b(f"9 {first} ".encode() + x.tobytes(), digest_size=8).digest(), "little"
            )
            generator = np.random.Generator(np.random.Philox(key=key >> 1))
            noise.append(generator.standard_normal((len(x), part, 3), np.float32))
        given = torch.from_numpy(np.concatenate(noise, 1))
        monkeypatch.setattr(Packing, "noise", lambda self, samples, size, like, given=given: given)
        with torch.no_grad():
            terms = model.terms(collate([x], corpus.spec), 5)
        log_w = (terms.log_emission - terms.kl).double().sum(-1)[0]
        w, bit = (log_w - log_w.max()).exp(), math.log(2)
        rest = -(w.mean().log() + log_w.max()).item() / bit
        length = -terms.log_length.item() / bit
        wanted = {"nll_given_length": rest, "length_nll": length, "nll": rest + length}
        wanted["nll_per_step"] = (rest + length) / (len(x) + 1)
        wanted["nll_error"] = (
            3.1824 / 1.9600 * (w.std() / math.sqrt(5) / w.mean()).item() / bit
        )  # Student's, 3 degrees
        assert {name: rows[i][name] for name in wanted} == pytest.approx(wanted, rel=1e-4)
        steps = (terms.kl - terms.log_emission).double().mean(1)[0] / bit
        assert rows[i]["bound_steps"] == pytest.approx(steps.tolist(), rel=1e-4, abs=1e-5)
        assert (rows[i]["index"], rows[i]["length"], rows[i]["unit"]) == (i + 1, len(x), "bits")
        monkeypatch.undo()
        monkeypatch.setattr(sys.modules["latflow.use.score"], "_part", lambda length: 2)


def choice(scores: torch.Tensor, music: bool, argmax: bool, temperature: float = 1.0) -> torch.Tensor:
    """The largest of scores and Gumbel noise; of notes those whose score and logistic noise is positive."""
    noise = torch.zeros_like(scores)
    if not argmax and music:
        u = torch.rand_like(scores)
        noise = (u / (1 - u)).log()
    elif not argmax:
        noise = -torch.empty_like(scores).exponential_().log()
    scores = scores + temperature * noise
    return (scores > 0).float() if music else scores.argmax(-1)


@pytest.mark.parametrize("preset", ["hmm-af-scf", "chords-iaf-scf"])
@pytest.mark.parametrize(("temperature", "argmax"), [(1.0, False), (0.4, False), (1.0, True)])
def test_samples_of_a_latent_model_by_hand(preset, temperature, argmax):
    """T ~ p(T), eps ~ N(0, temperature²), z = f(eps; T), x ~ p(x | z) or its mode, under the seed."""
    model, corpus = made(preset)
    assert isinstance(model, LatentSequenceModel)
    found = sample(model, 6, temperature=temperature, argmax=argmax, seed=3)
    reseed(3, 3)
    lengths = torch.multinomial(model.length.log_p.exp(), 6, replacement=True)
    packing = Packing(lengths)
    eps = torch.randn(packing.rows, model.prior.size)
    z = model.prior.forward_rows(temperature * eps, packing)[0]
    with torch.no_grad():
        scores = model.emission.scores(z, model.alphabet, packing)
    music = corpus.spec.kind == "music"
    x = packing.unpack(choice(scores, music, argmax))
    for ours, theirs, T in zip(x, found, lengths.tolist(), strict=True):
        assert len(theirs) == T
        # A tie to rounding may go either way: nearly all steps must agree.
        same = (ours[:T].numpy() == theirs).mean()
        assert same > 0.99 if music else same == 1


@pytest.mark.parametrize("preset", ["hmm-lstm", "chords-lstm"])
@pytest.mark.parametrize(("temperature", "argmax"), [(1.0, False), (0.4, False), (0.0, False), (1.0, True)])
def test_samples_of_the_baseline_by_hand(preset, temperature, argmax):
    """Each step is decided from the scores that the steps before it give, as training computes them."""
    model, corpus = made(preset)
    assert isinstance(model, LSTMLanguageModel)
    found = sample(model, 5, temperature=temperature, argmax=argmax, seed=2)
    reseed(2, 3)
    lengths = torch.multinomial(model.length.log_p.exp(), 5, replacement=True)
    packing = Packing(lengths)
    assert [len(x) for x in found] == lengths.tolist()
    rows = packing.pack(collate(found, corpus.spec).x)
    with torch.no_grad():
        scores = model.scores(model.context.whole(model.alphabet.embed(rows), packing))
    again = choice(scores, corpus.spec.kind == "music", argmax or temperature == 0, temperature)
    assert (again == rows).float().mean() > 0.999


def test_temperature_and_seed_are_seen_in_samples():
    for preset in ("hmm-lstm", "hmm-af-scf"):
        model, _ = made(preset)
        drawn = {
            (t, s): [x.tolist() for x in sample(model, 4, length=9, temperature=t, seed=s)]
            for t, s in ((1.0, 0), (0.3, 0), (1.0, 1))
        }
        assert drawn[1.0, 0] != drawn[0.3, 0]
        assert drawn[1.0, 0] != drawn[1.0, 1]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run whose best and last weights are far apart, and whose second epoch was the best, after 90 seconds."""
    settings = config("hmm-af-scf", **SMALL, train__epochs=2)
    corpus = data.load(settings.data)
    run = Run.create(tmp_path_factory.mktemp("run") / "run", settings, corpus.spec, "hmm-af-scf")
    best, last = (made("hmm-af-scf", seed)[0] for seed in (1, 2))
    run.save(WEIGHTS, weights_of(best), {})
    prefixes = ("model.", "ema.") if settings.train.ema else ("model.",)
    run.save(TRAINER, {f"{p}{k}": v for p in prefixes for k, v in weights_of(last).items()}, {})
    for epoch, elbo, seconds in ((1, 5.0, 30.0), (2, 4.0, 90.0)):
        terms = {"negative_elbo": elbo, "reconstruction": elbo, "kl": 0.0, "length": 0.0}
        place = {"epoch": epoch, "updates": epoch, "kl_weight": 1.0, "lr": 0.1, "seconds": seconds}
        run.append({"kind": "epoch", **place, "train": terms, "valid": terms, "best": True})
    return run


def test_a_result_is_that_of_the_best_weights_on_the_test_set(run):
    found = measure(run, Preset("hmm-af-scf", run.config, None, "tiny"))
    best, corpus = made("hmm-af-scf", 1)
    assert corpus.truth is not None
    wanted = evaluate(best, corpus.splits["test"], samples=50, truth=corpus.truth["test"])
    others = evaluate(best, corpus.splits["valid"], samples=50)
    assert wanted.nll != pytest.approx(others.nll, rel=1e-3)
    assert found.metrics["nll"] == pytest.approx(wanted.nll, rel=1e-6)
    assert found.metrics["truth"]["nll"] == pytest.approx(wanted.truth.nll, rel=1e-6)  # type: ignore[union-attr]
    assert found.metrics["samples"] == 50
    assert found.minutes == 1.5
    assert (found.epochs, found.best_epoch) == (2, 2)
    assert found.parameters == sum(p.numel() for p in best.parameters())


@pytest.mark.parametrize(
    ("options", "split", "weights", "samples", "seed"),
    [
        ([], "test", 1, 50, 0),
        (["--split", "valid", "--samples", "3"], "valid", 1, 3, 0),
        (["--split", "train", "--samples", "3", "--seed", "8"], "train", 1, 3, 8),
        (["--weights", "last", "--samples", "3"], "test", 2, 3, 0),
    ],
)
def test_options_of_evaluate_are_followed(run, capsys, options, split, weights, samples, seed):
    assert main(["evaluate", str(run.folder), "--json", "--device", "cpu", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    model, corpus = made("hmm-af-scf", weights)
    assert corpus.truth is not None
    wanted = evaluate(
        model, corpus.splits[split], samples=samples, seed=seed, truth=corpus.truth[split]
    ).to_dict()
    assert found["split"] == split
    for name in ("nll", "negative_elbo", "sequences", "samples"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-6)
    assert found["truth"]["gap"] == pytest.approx(wanted["truth"]["gap"], rel=1e-5)


def test_options_of_sample_and_score_are_followed(run, capsys, tmp_path):
    model = run.model()
    cases = {
        ("-n", "2"): {"n": 2},
        ("--length", "9"): {"length": 9},
        ("--temperature", "0.3"): {"temperature": 0.3},
        ("--argmax",): {"argmax": True},
        ("--seed", "5"): {"seed": 5},
    }
    plain = ["".join(run.spec.symbols[i] for i in x) for x in sample(model)]
    for options, meant in cases.items():
        assert main(["sample", str(run.folder), "--device", "cpu", *options]) == 0
        lines = capsys.readouterr().out.split("\n")[:-1]
        wanted = ["".join(run.spec.symbols[i] for i in x) for x in sample(model, **meant)]
        assert lines == wanted
        assert lines != plain
    texts = tmp_path / "texts.txt"
    texts.write_text("kateson\nsit dal\n")
    for weights, options, meant in (
        ("best", ["--samples", "4"], {"samples": 4}),
        ("last", ["--samples", "4", "--seed", "6"], {"samples": 4, "seed": 6}),
    ):
        words = ["score", str(run.folder), str(texts), "--device", "cpu", "--weights", weights, *options]
        assert main(words) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        wanted = list(score(run.model(weights), ["kateson", "sit dal"], **meant))  # type: ignore[arg-type]
        for row, other in zip(rows, wanted, strict=True):
            assert row["nll_given_length"] == pytest.approx(other["nll_given_length"], rel=1e-6)
