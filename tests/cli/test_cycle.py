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
    assert rows[1]["nll_given_length"] > 0
    assert len(rows[0]["bound_steps"]) == 13
    assert rows[0]["nll"] == pytest.approx(rows[0]["nll_given_length"] + rows[0]["length_nll"])
    assert 1 <= rows[0]["effective_samples"] <= 2
    own.write_text("kate xyz\nkate son dalo\n")
    code, out, _ = run(capsys, "score", folder, str(own), "--samples", "2")
    unknown, known = [json.loads(line) for line in out.splitlines()]
    assert (code, unknown["index"], known["index"]) == (0, 1, 2)
    assert unknown["nll"] is None
    assert "'x' at position 6" in unknown["error"]
    assert known["nll"] > 0
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
    out = tmp_path / "out" / "piece"
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
    code, _, err = run(capsys, "sample", folder, "-n", "1", "--out", str(tmp_path))
    assert code == 2
    assert "is a folder; give the name of a file in it" in err


@pytest.mark.parametrize("grid", [["--data.steps_per_second", "20"], ["--data.steps_per_beat", "3"]])
def test_music_is_written_on_the_grid_it_was_read_on(capsys, tmp_path, grid):
    from latflow.data.midi import write_midi

    for i in range(12):
        write_midi(tmp_path / "own" / f"{i}.mid", [[60 + i, 64]] * 60)
    folder = str(tmp_path / "run")
    words = ["train", "chords-lstm", "--quiet", "--run", folder, *options(), *grid]
    assert main([*words, "--data.name", f"midi:{tmp_path / 'own'}"]) == 0
    code, _, err = run(
        capsys, "sample", folder, "-n", "1", "--length", "30", "--out", str(tmp_path / "drawn")
    )
    assert code == 0, err
    _, said, _ = run(capsys, "score", folder, str(tmp_path / "drawn.mid"))
    assert json.loads(said)["length"] in (29, 30)  # silence at the end is not written


def test_text_is_written_as_it_was_read(capsys, tmp_path):
    """Spaces of other scripts, tabs and joiners are text, not control codes."""
    own, folder, drawn = tmp_path / "own.txt", str(tmp_path / "run"), tmp_path / "drawn.txt"
    own.write_text("".join(f"う\u3000\u00a0{'x' * (i % 3)}\t\u200dy\n" for i in range(40)), encoding="utf-8")
    words = ["train", "hmm-lstm", "--quiet", "--run", folder, *options(), "--data.name", f"text:{own}"]
    assert main(words) == 0
    assert main(["sample", folder, "-n", "6", "--out", str(drawn)]) == 0
    assert set(drawn.read_text(encoding="utf-8")) <= set("う\u3000\u00a0x\t\u200dy\n")
    code, _, err = run(capsys, "score", folder, str(drawn))
    assert code == 0, err
    assert run(capsys, "export", folder, str(tmp_path / "shared"))[0] == 0
    shared = json.loads((tmp_path / "shared" / "config.json").read_text())
    assert shared["data"]["name"] == "text:own.txt"  # no path of this machine


def test_one_test_sequence_has_no_error_bar(capsys, tmp_path):
    own, folder = tmp_path / "own.txt", str(tmp_path / "run")
    own.write_text("abba\n" * 4)
    assert (
        main(["train", "hmm-lstm", "--quiet", "--run", folder, *options(), "--data.name", f"text:{own}"]) == 0
    )
    _, out, _ = run(capsys, "evaluate", folder)
    assert "(of one sequence)" in out
    _, out, _ = run(capsys, "evaluate", folder, "--json")
    assert "NaN" not in out
    assert json.loads(out)["nll_error"] is None


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
    own = tmp_path / "own.jsonl"
    own.write_text('[]\nup\n["up", 3, "down"]\n["sideways"]\n')
    code, out, _ = run(capsys, "score", folder, str(own), "--samples", "1")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [str(row.get("error"))[:13] for row in rows if "nll_given_length" not in row] == [
        "an empty list",
        "not JSON (Exp",
    ]
    assert rows[3]["nll_given_length"] > 0  # a token that training never saw is scored as such
    assert rows[2]["sequence"] == '["up", 3, "down"]'


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
        (
            ["train", "hmm-af-af", "--model.layers", "3"],
            "no field 'layers' in model; accepted: kind, latent_size",
        ),
        (["train", "hmm-af-af", "--model.layers", "3"], "(given: model.layers; near: model."),
        (
            ["train", "hmm-af-af", "--modle.prior.layers", "3"],
            "no option --modle.prior.layers; near: --model.",
        ),
        (["train", "hmm-af-af", "--train.lr"], "--train.lr needs a value"),
        (["train", "hmm-af-af", "--train.lr", "--quiet"], "--train.lr needs a value"),
        (["train", "hmm-af-af", "--model", "3"], "model must be a mapping of fields, not 3"),
        (["train", "hmm-af-af", "hmm-lstm"], "'hmm-lstm' is one word too many"),
        (["sample", "RUN", "--lenght", "3"], "no option --lenght; near: --length"),
        (["train", "hmm-af-af", "--model.prior.hidden.layers", "many"], "model.prior.hidden.layers"),
        (["train", "hmm-af-af", "--model.prior.time", "maf"], "model.prior.time is 'maf'; accepted: af"),
        (
            ["train", "hmm-af-af", "--train.kl_steps", "600"],
            "train.kl_steps is 600; it must be a list of 2 whole numbers, or null",
        ),
        (
            ["train", "hmm-af-af", "--model.position_rank", "x"],
            "model.position_rank is 'x'; it must be a whole number, or null",
        ),
        (["train", "hmm-af-af", "--train.lr", "-1"], "train.lr is -1.0; accepted: 0 to 1e+06"),
        (
            ["train", "hmm-af-af", "--model.prior.hidden.units", "4"],
            "one for each of the model.latent_size 8",
        ),
        (
            ["train", "hmm-af-af", "--model.prior.scalar.alpha", "1"],
            "model.prior.scalar.alpha is 1.0; accepted: 1e-06 to 0.9999",
        ),
        (["train", "hmm-af-af", "--model.embedding_size", "1000000"], "accepted: 1 to 100000"),
        (["train", "hmm-af-af", "--data.max_length", "9"], "hmm draws its own lengths"),
        (
            ["train", "hmm-af-af", "--config", "/nowhere.yaml"],
            "--config /nowhere.yaml: no such file or folder",
        ),
        (["train", "hmm-af-af", "--train.device", "toaster"], "device 'toaster' cannot be used"),
        (
            ["train", "hmm-af-af", "--train.device", "mps"],
            "device 'mps' cannot be used: the models compute in float64",
        ),
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
    assert config.model.prior.hidden.layers == 7
    assert config.train.lr == 0.25
    assert config.train.kl_steps == (3, 4)
    assert config.model.prior.time.name == preset.model.prior.time.name == "iaf"
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
        demo(tmp_path / "demo", (("hmm-af-af",), ("hmm-lstm",)), small)
    out = capsys.readouterr().out
    assert "truth" in out
    assert "hmm-af-af against hmm-lstm" in out
    assert out.count("sample: ") == 16
    assert (tmp_path / "demo" / "hmm.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory\nand a trace")],
)
def test_memory_that_runs_out_is_said_in_one_line(error, capsys, monkeypatch):
    def fail(args):
        raise error

    monkeypatch.setattr("latflow.cli.presets.run", fail)
    code, _, err = run(capsys, "presets")
    assert code == 2
    assert err.startswith("latflow: memory has run out")
    assert err.count("\n") == 1


def test_other_errors_are_not_taken_for_it(monkeypatch):
    def fail(args):
        raise RuntimeError("a mistake of the program")

    monkeypatch.setattr("latflow.cli.presets.run", fail)
    with pytest.raises(RuntimeError, match="a mistake"):
        main(["presets"])


def test_a_config_file_in_another_encoding_is_named_as_such(capsys, tmp_path):
    (tmp_path / "some.yaml").write_text("seed: 3\n", encoding="utf-16")
    code, _, err = run(capsys, "train", "hmm-af-af", "--config", str(tmp_path / "some.yaml"))
    assert code == 2
    assert "not UTF-8" in err
