"""The page on sampling given what is known, run as it stands on models that learned next to nothing; and mistakes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from latflow.cli import main
from latflow.data.midi import read_midi, write_midi

PAGE = (Path(__file__).parents[2] / "docs" / "given.md").read_text(encoding="utf-8")
TINY = [
    "--model.embedding_size=8",
    "--model.prior.context.units=8",
    "--train.epochs=1",
    "--train.batch_size=16",
    "--train.device=cpu",
]
MUSIC = ["--model.prior.hidden.units=88", "--data.train_size=40", "--data.eval_size=10"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    text = folder / "lines.txt"
    rng = np.random.default_rng(0)
    words = [
        "Return",
        "the",
        "a",
        "copy",
        "value",
        "of",
        "it.",
        "list.",
        "Raise",
        "an",
        "error",
        "or",
        "two.",
        "in",
    ]
    lines = [" ".join(rng.choice(words, rng.integers(3, 8))) for _ in range(120)]
    text.write_text("\n".join(lines) + "\n")
    runs = folder / "runs"
    source = ["--data.name", f"text:{text}"]
    assert main(["train", "pydoc-af-af-codebook", "--run", str(runs / "pydoc"), *source, *TINY]) == 0
    assert main(["train", "chords-af-af-codebook", "--run", str(runs / "jsb"), *TINY, *MUSIC]) == 0
    roll = np.zeros((20, 88), np.uint8)
    roll[:, [20, 30, 44]] = 1
    write_midi(folder / "melody.mid", roll, 4)
    return folder


def say(capsys, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("command", re.findall(r"^    latflow ((?:sample|score) .+)$", PAGE, re.MULTILINE))
def test_the_commands_of_the_page(home, command, monkeypatch, capsys):
    monkeypatch.chdir(home)
    code, out, err = say(capsys, *shlex.split(command, comments=True))
    assert code == 0, err
    if "--prefix" in command:
        assert len(out.splitlines()) == 8
        known = "The " if "pydoc-2d" in command else "Return the "
        assert all(line.startswith(known) for line in out.splitlines())
        assert re.search(r"log p\(known\) = -\d+\.\d\d nats; \d+ effective samples of 500 particles", err)
    elif command.startswith("score"):
        row = json.loads(out)
        assert row["known"] == 21
        assert sum(row["steps"]) == pytest.approx(row["nll_given_length"])
        assert row["steps"][7] == 0
    elif "--template" in command:
        assert all(re.fullmatch(r"Return ... ..... of the list\.", line) for line in out.splitlines())
    elif "--given" in command:
        rolls = [read_midi(home / path, 4) for path in out.split() if path.endswith(".mid")]
        given = read_midi(home / "melody.mid", 4)
        for roll in rolls:
            if "top" in command:
                assert (roll[:, 44:] == given[:, 44:]).all()
            elif "free" in command:
                assert (np.delete(roll, range(8, 16), 0) == np.delete(given, range(8, 16), 0)).all()
            else:
                assert roll.shape == (40, 88)
                assert (roll[:20] == given).all()
        assert len(rolls) == (2 if "top" in command else 1)
    elif "--between" in command:
        assert len(out.splitlines()) == 5


def test_the_python_of_the_page(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "given.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_what_is_known_is_bold_on_a_terminal_and_orange_in_a_picture(home, tmp_path):
    from matplotlib.image import imread

    from latflow.data.export import save_png
    from latflow.data.spec import DataSpec
    from latflow.use.files import as_text

    spec, known = DataSpec("text", tuple("ab\n"), (0, 1)), np.array([True, False])
    x = np.array([0, 1, 2])
    assert as_text(x, spec, terminal=True, known=known) == "\x1b[1ma\x1b[0mb\\n"
    assert as_text(x, spec, known=known) == "ab\\n"
    tokens = DataSpec("tokens", (3, "x"), (0, 1))
    assert as_text(np.array([0, 1]), tokens, terminal=True, known=known) == '[\x1b[1m3\x1b[0m, "x"]'
    roll, shown = np.zeros((4, 88), np.uint8), {}
    roll[:, 40] = 1
    for name, mask in (("orange", True), ("blue", False)):
        save_png(tmp_path / f"{name}.png", roll, known=np.full(roll.shape, mask))
        shown[name] = imread(tmp_path / f"{name}.png")[..., :3]
    colours = {name: picture.reshape(-1, 3) for name, picture in shown.items()}
    assert (colours["orange"][:, 0] > colours["orange"][:, 2] + 0.3).mean() > 0.05
    assert not (colours["blue"][:, 0] > colours["blue"][:, 2] + 0.3).any()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pydoc", "--prefix", "a", "--template", "b"], "--prefix and --template; one of them at a time"),
        (["pydoc", "--keep", "top"], "--keep has no meaning alone; it goes with --given"),
        (["pydoc", "--between", "Return it.", "Return a.", "-n", "2"], "-n has no meaning with --between"),
        (["pydoc", "--given", "melody.mid"], "--given is a piece of music"),
        (
            ["pydoc", "--template", "Return ?", "--length", "900"],
            "length 900; this model knows lengths from 1 to",
        ),
        (["pydoc", "--template", "Return ?", "--mark", "??"], "must be one character"),
        (["jsb", "--prefix", "C4"], "--prefix is text"),
        (["jsb", "--template", "C4"], "a template is of text or tokens"),
        (["jsb", "--given", "melody.mid", "--keep", "soprano"], "accepted: steps (1-16), notes"),
        (["jsb", "--given", "none.mid"], "'none.mid': no such file"),
        (["pydoc", "--prefix", "a", "--particles", "0"], "--particles is 0; it must be 1 or more"),
    ],
)
def test_mistakes_are_told_in_one_line(home, words, said, monkeypatch, capsys):
    monkeypatch.chdir(home)
    code, _, err = say(capsys, "sample", f"runs/{words[0]}", *words[1:])
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_score_takes_one_of_file_and_template(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    code, _, err = say(capsys, "score", "runs/pydoc")
    assert (code, err.splitlines()[-1]) == (
        2,
        "latflow: score takes a FILE or --template TEXT, one of the two",
    )
