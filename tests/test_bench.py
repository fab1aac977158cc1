"""The benchmark's arithmetic, and that all of it runs and is written; never how fast anything is."""

from __future__ import annotations

import json

import pytest

from latflow import bench
from latflow.bench import given as particles
from latflow.bench import measure
from latflow.bench.measure import Codebook, Size, against_lstm, against_same_lstm, fastest
from latflow.plots.timing import read_timing
from tests.models.cases import TINY


def row(
    model: str, length: int, seconds: float, plain: float | None = None, cells: float | None = None
) -> dict:
    about = {"model": model, "data": "text", "size": "paper", "batch": 1, "T": length}
    return {**about, "seconds": seconds, "plain torch": plain, "cells": cells}


def test_growth_is_the_time_of_twice_the_length_over_that_of_the_length(monkeypatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(measure, "fastest", lambda ways, *_: {"once": 2.0, "twice": 5.0})
    assert measure._growth(lambda length: lambda: asked.append(length), 64) == 2.5
    monkeypatch.setattr(
        measure, "fastest", lambda ways, *_: {k: float(way() or 1) for k, way in ways.items()}
    )
    measure._growth(lambda length: lambda: asked.append(length), 64)
    assert asked == [64, 128]


def test_ratios_are_of_the_lstm_of_the_same_length() -> None:
    rows = [row("IAF/SCF", 64, 2.0, 4.0), row("LSTM", 64, 3.0, 20.0, 10.0), row("LSTM", 128, 9.0, 99.0, 50.0)]
    ratios = {"plain torch": 5.0, "against cells": 2.5, "at their best": 1.5}
    assert against_lstm(rows) == [{"data": "text", "size": "paper", "T": 64, **ratios}]


def test_ways_are_timed_in_turn_after_a_round_to_warm_up() -> None:
    called: list[str] = []
    seconds = fastest({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, repeats=2)
    assert called == ["a", "b"] * 3
    assert set(seconds) == {"a", "b"}
    called.clear()
    fastest({"a": lambda: called.append("a")}, repeats=5, seconds=0)
    assert called == ["a", "a"]  # it always measures once


def test_a_codebook_flow_is_held_against_the_lstm_of_the_same_size(monkeypatch) -> None:
    monkeypatch.setattr(measure, "fastest", lambda ways, *_: {name: float(len(name)) for name in ways})
    rows = list(against_same_lstm(Codebook("hmm", measure.TEXT, 2, 4), 3))
    assert [(row["what"], row["batch"], row["T"]) for row in rows] == [
        ("training", 2, 4),
        ("generation", 1, 3),
        ("generation", 64, 3),
    ]
    assert all(row["ratio"] == row["AF/AF"] / row["LSTM"] == 5 / 4 for row in rows)
    flow, baseline = (measure.find(f"ptb-{row}-codebook").config.model for row in ("af-af", "lstm"))
    sizes = (flow.prior.context.layers, flow.prior.context.units, flow.embedding_size)
    assert sizes == (baseline.baseline.layers, baseline.baseline.units, baseline.embedding_size)


@pytest.mark.parametrize("length", [4, 5])
def test_steps_of_particles_are_counted_up_to_the_last_which_is_known(length, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(
        particles, "given", lambda model, evidence, n, **options: asked.append((evidence, options))
    )
    monkeypatch.setattr(
        measure, "fastest", lambda ways, *_: {name: way() or 2.0 for name, way in ways.items()}
    )
    codebooks = (Codebook("hmm", measure.TEXT, 2, 4), Codebook("chords", measure.music(8), 2, 4))
    rows = list(particles.particles(codebooks, Size("small", TINY, 2, 2), length))
    assert [(row["model"], row["data"]) for row in rows] == [
        ("AF/AF", "text"),
        ("LSTM", "text"),
        ("AF/AF", "music"),
        ("LSTM", "music"),
        ("AF/AF", "text"),
    ]
    assert all(row["steps/s"] == 500 * length / 2.0 for row in rows)
    assert all(evidence.last == length and options["particles"] == 500 for evidence, options in asked)
    assert all(len(evidence.free_steps) > 0 for evidence, _ in asked)


@pytest.mark.parametrize("quick", [True, False])
def test_all_of_it_runs(quick, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "PAPER", Size("paper", TINY, 2, 2))
    monkeypatch.setattr(bench, "SMALL", Size("small", TINY, 2, 2))
    monkeypatch.setattr(bench, "LENGTHS", (2, 4, 4))
    for name, steps in (("TRAINED", 6), ("GROWING", 3), ("COMPARED", 10)):
        monkeypatch.setattr(bench, name, steps)
    small = (Codebook("hmm", measure.TEXT, 2, 4), Codebook("chords", measure.music(4), 2, 4))
    monkeypatch.setattr(bench, "CODEBOOKS", small)
    monkeypatch.setattr(measure, "PRODUCT", 8)
    monkeypatch.setattr(particles, "PARTICLES", 4)
    monkeypatch.setattr(measure, "fastest", lambda ways, *_: fastest(ways, 1))
    report = bench.run(quick, tmp_path / "bench.json", tmp_path / "timing")
    assert json.loads((tmp_path / "bench.json").read_text()) == report
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "timing.png", "timing.svg"}
    assert set(read_timing(tmp_path / "bench.json")) == {"text", "music"}
    models = {row["model"] for row in report["sampling"]}
    assert models == ({"AF/AF", "IAF/SCF", "LSTM"} if quick else {*bench.MODELS})
    assert {row["T"] for row in report["training"]} == {6}
    assert all(row["ratio"] == row["bfloat16"] / row["float32"] for row in report["products"])
    assert {row["T"] for row in report["straightforward"]} == {10}
    assert len(report["particles"]) == (4 if quick else 5)
    assert "serial_step" in report["twins"]["HiddenFlow.stepper"]
    out = capsys.readouterr().out
    assert "AF/AF generation against the straightforward way" in out
    assert ("Importance-sampled NLL" in out) != quick
