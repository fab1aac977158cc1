"""What is mistyped or meant to harm, and shipped models: one line that says what to do, and nothing is done."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from itertools import pairwise

import numpy as np
import pytest

import latflow
from latflow.cli import main
from latflow.cli.parser import HIGHEST
from latflow.cli.printing import print_table
from latflow.config import evolve
from latflow.data.files import MOST_BYTES
from latflow.data.midi import write_midi
from latflow.data.spec import DataSpec
from latflow.errors import LatflowError
from latflow.plots.curves import curves_figure
from latflow.plots.save import save
from latflow.plots.symbols import encode
from latflow.reproduce.result import curve_of
from latflow.training import Run
from latflow.use import Evidence
from latflow.use.files import typed, write_samples

LONG = "x" * 5000
"""More than a file system takes as a name."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.txt").write_text("The value of it.\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    rows = (f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij"))
    (tmp_path / "bomb.yaml").write_text("a: &a [1]\n" + "".join(rows))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "pydoc", "--tempo", "90"], "--tempo is of music and this model's data is text"),
        (["sample", "jsb", "--tempo", "nan"], "nan beats a minute; accepted: 4 to 10000"),
        (["sample", "pydoc", "-n", "1" + "0" * 20], f"0; it must be {HIGHEST} or less"),
        (["sample", "pydoc", "--prefix", "a", "--particles", "9" * 20], "it must be"),
        (["sample", "pydoc", "--prefix", "a", "--length", "9" * 20], "--length is 9999"),
        (["sample", "pydoc", "--like", LONG], "length 5000; this model knows lengths from 1 to 200"),
        (["sample", "pydoc", "--like", ""], "length 0; this model knows lengths"),
        (["sample", "jsb", "--given", LONG], "no such file or folder"),
        (["sample", "jsb", "--given", ""], "'': no such file or folder"),
        (["sample", "jsb", "-n", "1", "--out", "x" * 300], "x: File name too long"),
        (["score", "pydoc", LONG], "no such file or folder"),
        (["score", "pydoc", "own.txt", "--tolerance", "nan"], "the tolerance is nan; it must be a number above 0"),
        (["score", "pydoc", "own.txt", "--tolerance", "-1"], "the tolerance is -1.0"),
        (["score", "pydoc", "own.txt", "--particles", "9"], "--particles goes with --template"),
        (["score", "pydoc", "own.txt", "--threshold", "0.9", "--reference", ""], "'': no such file or folder"),
        (["score", "pydoc", "--template", "Th?", "--csv"], "--csv goes with a FILE"),
        (["score", "pydoc", "--template", "Th?", "--threshold", "0.9"], "--threshold goes with a FILE"),
        (["score", "jsb", "--template", "Th?"], "a template is of text or tokens"),
        (["data", "stats", "text:own.txt", "--data.chunk", "3"], "near: --chunk (all: latflow data stats --help)"),
        (["train", "--config", "bomb.yaml"], "--config bomb.yaml: an alias (*name) is not read"),
        (["plot", "nlsq", "--out", "x.pdf"], "x.pdf: .pdf is not written"),
        (["plot", "nlsq", "--train", "--seed", "9" * 20], "--seed is 9999"),
        (["plot", "nlsq", "--out", "own.txt/figure"], "own.txt is not a folder"),
        (["plot", "curves", "deep.json"], "deep.json is damaged: maximum recursion"),
        (["plot", "timing", "deep.json"], "deep.json is not what `latflow bench --json` writes"),
        (["bench", "--quick", "--figure", "x.pdf"], "x.pdf: .pdf is not written"),
        (["bench", "--quick", "--json", "own.txt/x"], "own.txt is not a folder"),
        (["compare", "pydoc", "pydoc-2d", "--out", "x.pdf"], "x.pdf: .pdf is not written"),
        (["reproduce", "synthetic", "--docs", "."], ". is a folder; give the name of a file in it"),
        (["reproduce", "synthetic", "--results", "own.txt"], "own.txt is not a folder"),
        (["sample", "no\x1b[31m\nrun"], r"no run at no\x1b[31m\nrun: there is no such folder"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_wrong(here, capsys, words, said):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "standard output" not in err
    assert not out
    assert sorted(path.name for path in here.iterdir()) == ["bomb.yaml", "deep.json", "own.txt"]


@pytest.mark.parametrize("text", ["[" * 5000, "[1" + "0" * 5000 + "]", "{}", "3"])
def test_what_is_no_list_of_tokens_is_said_to_be_none(text):
    with pytest.raises(LatflowError, match="tokens are given as a JSON list") as caught:
        typed(text, DataSpec("tokens", (1, "a"), (0, 1)))
    assert len(str(caught.value)) < 200


def test_a_file_name_in_a_warning_does_not_steer_the_terminal(here, capsys):
    for i in range(12):
        write_midi(here / "tunes" / f"{i}.mid", [[60 + i, 64]] * 9)
    (here / "tunes" / "bad\x1b[31m\n.mid").write_bytes(b"nonsense")
    assert main(["data", "stats", "midi:tunes", "--left-out"]) == 0
    out, err = capsys.readouterr()
    assert r"bad\x1b[31m\n.mid" in out
    assert "\x1b" not in out + err
    print_table([["a\x1b[31m", "b"]], ["label", "x"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_line_of_a_file_does_not_steer_the_terminal(here, capsys, monkeypatch):
    (here / "own.txt").write_text("The value.\nThe \x1b]0;title\x07value.\n")
    words = ["score", "pydoc", "own.txt", "--samples", "1", "--csv", "--device", "cpu"]
    assert main(words) == 0
    assert "\x1b" in capsys.readouterr().out  # into a file or a pipe as it is
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(words) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_score_of_a_template_goes_where_it_is_sent(here, capsys):
    words = ["score", "pydoc", "--template", "Th?", "--particles", "20"]
    assert main([*words, "--out", "found.json"]) == 0
    assert not capsys.readouterr().out
    assert json.loads((here / "found.json").read_text())["particles"] == 20


@pytest.mark.parametrize(
    ("out", "written"),
    [
        ("piece", ["piece.mid", "piece.png", "piece.wav"]),
        ("piece.mid", ["piece.mid"]),
        ("piece.WAV", ["piece.WAV"]),
        ("piece.midi", ["piece.midi"]),
        ("op.1", ["op.1.mid", "op.1.png", "op.1.wav"]),
    ],
)
def test_music_is_three_files_or_the_one_that_is_named(tmp_path, out, written):
    made = Run.open("jsb")
    roll = made.spec.encode([[60, 64, 67]] * 8)
    found = write_samples([roll], made.spec, tmp_path / out, made.config.data, several=False)
    assert sorted(path.name for path in found) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    list(write_samples([roll] * 2, made.spec, tmp_path / "two.png", made.config.data))
    assert {"two-1.png", "two-2.png"} == {path.name for path in tmp_path.glob("two*")}


def test_the_card_of_a_model_is_json_too(capsys):
    assert main(["models", "jsb", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["name"] == "jsb"
    assert main(["models", "jsb"]) == 0
    assert capsys.readouterr().out == about["card"]


@pytest.mark.parametrize(
    ("x", "known"),
    [([10**6], [True]), ([-1], [True]), ([1.5], [True]), ([[0] * 88] * 2, [[True] * 88] * 2)],
)
def test_evidence_of_another_data_is_refused(x, known):
    with pytest.raises(
        LatflowError, match="a model of text takes 1 dimensions of whole numbers from 0 to 89"
    ):
        latflow.given(latflow.load("pydoc"), Evidence(np.array(x), np.array(known)), 1, particles=3)
    with pytest.raises(LatflowError, match=r"1\.7 is no token"):
        Evidence.prefix(Run.open("pydoc").spec, np.array([1.7]))


def test_an_array_that_is_no_roll_has_an_error_of_its_own():
    rolls = [np.zeros((3, 5)), np.full((3, 88), 7), np.full((3, 88), np.nan)]
    assert all(row["nll"] is None and row["error"] for row in latflow.score(latflow.load("jsb"), rolls))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of Unix")
def test_a_pipe_in_a_run_s_folder_is_not_waited_for(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 2}')
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(LatflowError, match=r"config\.json cannot be read \(not a plain file\)"):
        Run.open(tmp_path)


ODD = os.fsdecode(b"caf\xe9")
"""A name in another encoding than UTF-8."""


def test_a_file_may_have_a_name_that_is_no_text(here, capsys):
    write_midi(here / "tunes" / f"{ODD}.mid", [[60, 64]] * 9)
    assert main(["score", "jsb", "tunes", "--samples", "1", "--out", "found.json"]) == 0
    assert json.loads((here / "found.json").read_text())["sequence"] == f"tunes/{ODD}.mid"
    config = evolve(Run.open("pydoc").config, {"data.name": f"text:{ODD}"})
    Run.create("run", config, Run.open("pydoc").spec)
    assert Run.open("run").config == config


def test_a_run_s_folder_has_a_name_that_can_be_read_again(here, capsys):
    for words in (["train", "hmm-lstm", "--run", ODD], ["export", "pydoc", ODD]):
        assert main([*words, "--data.train_size=9"] if words[0] == "train" else words) == 2
        assert capsys.readouterr().err == (
            "latflow: caf\\udce9: the name of a run's folder must be UTF-8; give it another\n"
        )
    (here / ODD).mkdir()
    assert main(["sample", ODD]) == 2
    assert "must be UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "--config"], ["plot", "timing"]])
def test_a_file_without_an_end_is_not_read_to_it(here, capsys, words):
    with (here / "long").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    assert main([*words, "long"]) == 2
    assert f"long: more than {MOST_BYTES} bytes" in capsys.readouterr().err


def test_a_link_to_where_a_run_is_to_be_stays_one(here, capsys):
    (here / "disk").mkdir()
    for there in ("disk/run", "disk"):
        (here / "link").symlink_to(there)
        assert main(["export", "pydoc", "link"]) == (2 if there == "disk" else 0)
        assert (here / "link").is_symlink()
        (here / "link").unlink()
    assert Run.open("disk/run").alone


def test_a_name_on_a_figure_is_no_mathematics(here):
    line = {"epoch": 1, "updates": 1, "kl_weight": 1.0, "lr": 0.1, "seconds": 1.0, "kind": "epoch"}
    terms = dict.fromkeys(("negative_elbo", "reconstruction", "kl", "length"), 1.0)
    curve = curve_of([{**line, "train": terms, "valid": terms}])
    written = save(curves_figure(curve, "nats", rf"a$\frac{{$ {ODD}"), "figure")
    assert [path.name for path in written] == ["figure.png", "figure.svg"]


def test_a_deep_list_is_no_text_of_a_figure():
    with pytest.raises(LatflowError, match="tokens are given as a JSON list"):
        encode("[" * 100_000, DataSpec("tokens", (1, "a"), (0, 1)))


def test_a_page_that_cannot_listen_is_one_line(capsys):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["page", "--no-browser", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; give another --port" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM"])
def test_a_page_that_is_told_to_end_ends_by_itself(capsys, monkeypatch, name):
    uvicorn = pytest.importorskip("uvicorn")
    number = getattr(signal, name)
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("nohup")

    def serving(server, sockets):
        os.kill(os.getpid(), number)
        assert server.should_exit

    monkeypatch.setattr(uvicorn.Server, "run", serving)
    assert main(["page", "--no-browser", "--port", "0"]) == 128 + number
    assert capsys.readouterr().err.count("\n") == 1
