"""The whole cycle from the command line, on text, music and tokens; and mistakes in one line."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from latflow.cli import main
from latflow.config import from_dict
from latflow.presets import find
from tests.training.tiny import TINY, run_python


def options(**more: object) -> list[str]:
    fields = {**TINY, "train.epochs": 1, **{name.replace("__", "."): value for name, value in more.items()}}
    return [
        f"--{name}={json.dumps(value) if not isinstance(value, str) else value}"
        for name, value in fields.items()
    ]


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def tokens(tmp_path):
    rng = random.Random(0)
    lines = [[rng.choice(["up", "down", 3]) for _ in range(rng.randint(3, 6))] for _ in range(60)]
    path = tmp_path / "tokens.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def cycle(capsys, tmp_path, preset: str, *more: str) -> str:
    """train, evaluate as table and JSON; the run's folder."""
    folder = str(tmp_path / "run")
    code, out, err = run(capsys, "train", preset, "--run", folder, *options(), *more)
    assert code == 0, err
    assert "epoch 1/1" in out
    assert f"latflow evaluate {folder}" in out
    code, out, err = run(capsys, "evaluate", folder, "--samples", "3")
    assert code == 0, err
    assert "-Σ[log p(x|T) + log p(T)] / Σ(T + 1)" in out
    code, out, err = run(capsys, "evaluate", folder, "--samples", "3", "--json", "--split", "valid")
    assert code == 0, err
    found = json.loads(out)
    assert found["negative_elbo"] == pytest.approx(found["reconstruction"] + found["kl"] + found["length"])
    assert found["split"] == "valid"
    return folder


def test_text(capsys, tmp_path):
    folder = cycle(capsys, tmp_path, "hmm-af-af")
    code, out, _ = run(capsys, "sample", folder, "-n", "3", "--length", "9", "--seed", "4")
    assert code == 0
    lines = out.splitlines()
    assert [len(line) for line in lines] == [9, 9, 9]
    assert run(capsys, "sample", folder, "-n", "3", "--length", "9", "--seed", "4")[1] == out
    assert run(capsys, "sample", folder, "-n", "3", "--length", "9", "--seed", "5")[1] != out
    own = tmp_path / "own.txt"
    own.write_text("kate son dalo\nte\nlodano tesi\n")
    code, out, _ = run(capsys, "score", folder, str(own), "--samples", "2")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["sequence"] for row in rows] == ["kate son dalo", "te", "lodano tesi"]
    assert rows[1]["nll"] is None
    assert "length 2" in rows[1]["error"]
    assert len(rows[0]["bound_steps"]) == 13
    own.write_text("kate xyz\n")
    code, _, err = run(capsys, "score", folder, str(own))
    assert code == 2
    assert "'x' at position 6" in err
    assert err.count("\n") == 1


def test_scores_of_the_baseline_add_up(capsys, tmp_path):
    """-Σ_t log p(x_t | x_<t, T) - log p(T) = nll, step by step."""
    folder = cycle(capsys, tmp_path, "hmm-lstm")
    own = tmp_path / "own.txt"
    own.write_text("kate son dalo\nlodano tesi\n")
    _, out, _ = run(capsys, "score", folder, str(own))
    for line in out.splitlines():
        row = json.loads(line)
        assert sum(row["steps"]) + row["length_nll"] == pytest.approx(row["nll"], rel=1e-5)
        assert row["nll"] / (row["length"] + 1) == pytest.approx(row["nll_per_step"])


def test_music(capsys, tmp_path):
    folder = cycle(capsys, tmp_path, "chords-iaf-scf")
    out = tmp_path / "out" / "piece.mid"
    code, said, err = run(capsys, "sample", folder, "-n", "2", "--length", "8", "--argmax", "--out", str(out))
    assert code == 0, err
    written = {path.name for path in out.parent.iterdir()}
    assert written == {f"piece-{i}.{kind}" for i in (1, 2) for kind in ("mid", "wav", "png")}
    assert len(said.splitlines()) == 6
    from latflow.data.midi import write_midi

    write_midi(tmp_path / "own.mid", [[60, 64, 67]] * 20)
    code, said, err = run(capsys, "score", folder, str(tmp_path / "own.mid"), "--samples", "2")
    assert code == 0, err
    row = json.loads(said)
    assert row["unit"] == "nats"
    assert row["length"] == 20


def test_tokens(capsys, tmp_path, tokens):
    folder = cycle(capsys, tmp_path, "hmm-af-scf", f"--data.name=tokens:{tokens}")
    code, out, _ = run(capsys, "sample", folder, "-n", "4")
    assert code == 0
    assert all(set(json.loads(line)) <= {"up", "down", 3} for line in out.splitlines())
    code, _, _ = run(capsys, "sample", folder, "-n", "4", "--out", str(tmp_path / "drawn.jsonl"))
    assert code == 0
    assert (tmp_path / "drawn.jsonl").read_text() == out
    code, out, _ = run(capsys, "score", folder, str(tokens), "--samples", "1")
    assert len(out.splitlines()) == 60


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "hmm-lstm", "--quiet", "--run", str(folder), *options()]) == 0
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "give a preset"),
        (["train", "hmm-afaf"], "no preset called 'hmm-afaf'; near: hmm-af-af"),
        (["train", "hmm-af-af", "--model.layers", "3"], "no option --model.layers; near: model"),
        (["train", "hmm-af-af", "--model.prior.layers", "many"], "model.prior.layers"),
        (["train", "hmm-af-af", "--model.prior.time", "maf"], "model.prior.time"),
        (["train", "hmm-af-af", "--train.lr", "-1"], "train.lr is -1.0; accepted: 0 or more"),
        (["train", "hmm-af-af", "--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["train", "hmm-af-af", "--train.device", "toaster"], "device 'toaster' cannot be used"),
        (["train", "hmm-af-af", "--data.name", "text:/nowhere"], "/nowhere"),
        (["train", "--resume", "/nowhere"], "no run at /nowhere"),
        (["evaluate", "/nowhere"], "no run at /nowhere"),
        (["sample", "RUN", "--length", "99"], "lengths from 1 to 32"),
        (["sample", "RUN", "--temperature", "-1"], "temperature -1.0"),
        (["sample", "RUN", "-n", "0"], "-n is 0; it must be 1 or more"),
        (["evaluate", "RUN", "--samples", "0"], "--samples is 0; it must be 1 or more"),
        (["score", "RUN", "/nowhere.txt"], "/nowhere.txt"),
        (["train", "hmm-lstm", "--run", "RUN"], "exists already"),
        (["train", "--resume", "RUN", "--train.lr", "1"], "leave out --train.lr"),
    ],
)
def test_mistakes_are_one_line(capsys, finished, words, message):
    code, _, err = run(capsys, *(str(finished) if word == "RUN" else word for word in words))
    assert code == 2
    assert err.startswith("latflow: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_damaged_run_is_one_line(capsys, finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    code, _, err = run(capsys, "sample", str(folder))
    assert code == 2
    assert "model.safetensors is damaged" in err
    assert err.count("\n") == 1


def test_print_config_is_a_config(capsys, tmp_path):
    """Preset, then file, then options; what is printed gives the same config again."""
    import yaml

    (tmp_path / "some.yaml").write_text("model:\n  prior:\n    layers: 7\ntrain:\n  lr: 0.5\n")
    words = ["--config", str(tmp_path / "some.yaml"), "--train.lr", "0.25", "--train.kl_steps", "[3, 4]"]
    code, out, _ = run(capsys, "train", "ptb-iaf-scf", *words, "--print_config")
    assert code == 0
    config = from_dict(yaml.safe_load(out))
    preset = find("ptb-iaf-scf").config
    assert config.model.prior.layers == 7
    assert config.train.lr == 0.25
    assert config.train.kl_steps == (3, 4)
    assert config.model.prior.time == preset.model.prior.time == "iaf"
    (tmp_path / "whole.yaml").write_text(out)
    assert run(capsys, "train", "--config", str(tmp_path / "whole.yaml"), "--print_config")[1] == out


@pytest.mark.parametrize(
    "words",
    [["--help"], ["train", "--help"], ["presets"], ["models"], ["train", "hmm-lstm", "--print_config"]],
)
def test_what_answers_at_once_does_not_import_torch(words):
    script = (
        "import sys\nfrom latflow.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    ended = run_python("-c", script)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


def test_presets_lists_all(capsys):
    code, out, _ = run(capsys, "presets")
    assert code == 0
    assert "ptb-af-none-affine-small" in out
    assert "1.42 (Table 1)" in out
    assert len(json.loads(run(capsys, "presets", "--json")[1])) > 50


def test_demo(capsys, tmp_path):
    """At tiny sizes; a second call finds the runs finished."""
    from latflow.demo import demo

    small = tuple(options())
    for _ in range(2):
        assert demo(tmp_path / "demo", (("hmm-af-af",), ("hmm-lstm",)), small) == 0
    out = capsys.readouterr().out
    assert "truth" in out
    assert "hmm-af-af against hmm-lstm" in out
    assert out.count("sample: ") == 16
    assert (tmp_path / "demo" / "hmm.png").read_bytes().startswith(b"\x89PNG")
