"""The commands of the data side, as a user types them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from latflow import cli
from latflow.cli.fields import field_docs
from latflow.config import DataConfig
from latflow.data import CATALOGUE, fetch, load
from latflow.models.length import LengthModel


@pytest.fixture(autouse=True)
def _nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("LATFLOW_DATA", raising=False)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys\nfrom latflow.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in 'torch numpy rich mido pooch matplotlib'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "data" in done.stdout


def test_python_m_latflow_works() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "latflow", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("latflow ")


def test_list_names_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "data", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(CATALOGUE)
    rows = {row["name"]: row["where"] for row in json.loads(run(capsys, "data", "list", "--json")[1])}
    assert rows["ptb"] == "to download"
    assert rows["hmm"] == "built in"
    music = tmp_path / "music"
    music.mkdir()
    (music / "jsb_chorales.pickle").touch()
    rows = json.loads(run(capsys, "data", "list", "--json", "--data-dir", str(tmp_path))[1])
    assert {row["name"]: row["where"] for row in rows}["jsb"] == str(music)


def test_stats_of_a_set_with_a_known_truth(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("data", "stats", "hmm", "--train-size", "50", "--eval-size", "5")
    found = json.loads(run(capsys, *words, "--json")[1])
    assert found["splits"]["train"]["sequences"] == 50
    assert found["unit"] == "bits per character"
    corpus = load(DataConfig("hmm", train_size=50, eval_size=5))
    assert corpus.truth is not None
    for name, sequences in corpus.splits.items():
        log_length = LengthModel(corpus.spec.length_counts).log_prob(torch.from_numpy(sequences.lengths))
        nats = corpus.truth[name].sum() - float(log_length.sum())
        expected = nats / (sequences.lengths + 1).sum() / math.log(2)
        assert found["splits"][name]["truth"] == pytest.approx(expected, rel=1e-6)
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert "12 symbols" in out
    assert f"{found['splits']['test']['truth']:.4g}" in out


def test_stats_of_music_count_notes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from latflow.data.midi import write_midi

    for i in range(5):
        write_midi(tmp_path / f"{i}.mid", [[60, 64, 67], [60, 72], [], []])
    found = json.loads(run(capsys, "data", "stats", f"midi:{tmp_path}", "--json")[1])
    train = found["splits"]["train"]
    assert train["notes_per_step"] == 1.25
    assert train["silent"] == 0.5
    assert (train["lowest_note"], train["highest_note"]) == (60, 72)
    words = ("data", "stats", f"midi:{tmp_path}", "--steps-per-beat", "2", "--json")
    coarse = json.loads(run(capsys, *words)[1])
    assert coarse["splits"]["train"]["steps"] == train["steps"] // 2


def test_the_cost_of_lengths_is_the_papers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for split, text in (("train", "a\na\nbb\n"), ("valid", "cc\n"), ("test", "a\nbb\nbb\n")):
        (tmp_path / f"{split}.txt").write_text(text)
    words = ("data", "stats", f"text:{tmp_path}", "--smooth-lengths", "no", "--json")
    cost = json.loads(run(capsys, *words)[1])["splits"]["test"]["length_cost"]
    assert cost == pytest.approx(3 / (2 + 3 + 3))  # one bit for each of three lengths


def test_mistakes_are_one_line_and_code_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    for words, said in (
        (("data", "stats", "nope"), "no data called 'nope'"),
        (("data", "stats", f"text:{tmp_path / 'bad.txt'}"), "line 2"),
        (("data", "fetch", "nope"), "accepted: ptb"),
        (("data", "list", "--data-dir", str(tmp_path / "gone")), "no folder"),
        (("bench", "data", "hmm", "--batch-size", "0"), "batch-size"),
        (("data", "stats", "hmm", "--crop", "3"), "crop"),
    ):
        code, out, err = run(capsys, *words)
        assert code == 2
        assert out == ""
        assert said in err
        assert err.startswith("latflow: ")
        assert err.count("\n") == 1


def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("aa\n\nbb\ncc\n")
    code, out, err = run(capsys, "data", "stats", f"text:{tmp_path / 'my.txt'}")
    assert code == 0
    assert out
    assert err == f"latflow: warning: {tmp_path / 'my.txt'}: line 2 empty, skipped\n"


def test_fetch_of_what_is_built_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "data", "fetch", "hmm") == (0, "hmm is built in; there is nothing to fetch\n", "")


def test_bench_measures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my.txt"
    path.write_text("some words\n" * 50)
    (row,) = json.loads(run(capsys, "bench", "data", f"text:{path}", "--json")[1])
    assert row["data_bytes"] == path.stat().st_size
    assert row["peak_bytes"] > row["stored_bytes"] > 0
    assert row["load_seconds"] > 0
    assert row["padding"] == 0
    code, out, _ = run(capsys, "bench", "data", f"text:{path}")
    assert code == 0
    assert "peak_ratio" in out.splitlines()[0]


def test_every_option_of_the_data_config_is_explained() -> None:
    from dataclasses import fields

    from latflow.config import DataConfig

    documented = field_docs(DataConfig)
    assert set(documented) == {field.name for field in fields(DataConfig)}
    assert all(documented.values())
