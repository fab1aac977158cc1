"""`latflow train`: what is typed becomes a config, preset, then files, then options."""

from __future__ import annotations

import os
import threading

import pytest

from latflow.cli import main, parse
from latflow.cli.fields import listed, load_yaml, take
from latflow.cli.train import config_of
from latflow.config import Config, evolve, flatten, from_dict
from latflow.errors import LatflowError
from latflow.presets import find


def resolved(*words: str) -> Config:
    return config_of(parse(["train", *words]))


def test_every_field_is_an_option(capsys):
    """Each field of a preset, typed as its value, gives the preset back over the defaults."""
    import json

    for preset in ("hmm-af-af", "jsb-lstm", "ptb-iaf-scf-small"):
        wanted = find(preset).config
        words = []
        for name, value in flatten(wanted).items():
            words += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
        assert resolved("pydoc-af-scf", *words) == wanted
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    for name in flatten(Config()):
        assert f"  --{name} " in said


def test_every_option_is_explained():
    silent = {f.name for f in listed() if not f.doc}
    assert {name.rpartition(".")[2] for name in silent} <= {"layers", "units"}  # of an LSTM


def test_options_of_every_choice_are_listed():
    found = {f.name: f for f in listed()}
    assert set(flatten(Config())) <= set(found)
    assert found["model.prior.scalar.components"].only == ("mixture",)
    assert found["model.prior.scalar.components"].help == "K. (2; mixture only)"
    assert found["model.prior.scalar"].metavar.startswith("nlsq|affine|mixture")


def test_a_choice_and_its_options():
    words = ["--model.prior.scalar.components", "4", "--model.prior.scalar", "mixture"]
    found = resolved("hmm-af-af", *words).model.prior.scalar
    assert (found.name, found.components) == ("mixture", 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--model.prior.scalar.components", "4"],
            "'components' in model.prior.scalar; accepted: alpha, raw_scale",
        ),
        (["--model.prior.scalar.components", "4"], "(given: model.prior.scalar.components)"),
        (["--model.prior.scalar", "maf"], "model.prior.scalar is 'maf'; accepted: nlsq, affine, mixture"),
        (
            ["--model.prior.scalar", "mixture", "--model.prior.scalar.components", "x"],
            "components is 'x'; it must",
        ),
        (
            ["--model.prior.scalar.alhpa", ".5"],
            "given: model.prior.scalar.alhpa; near: model.prior.scalar.alpha",
        ),
        (["--model.prior.layers", "3"], "given: model.prior.layers; now: model.prior.hidden.layers"),
        (["--model.prior", "3"], "model.prior must be a mapping of fields, not 3"),
    ],
)
def test_a_wrong_choice_is_named(words, message):
    with pytest.raises(LatflowError) as refused:
        resolved("hmm-af-af", *words)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "name", "value"),
    [
        ("1e-3", "train.lr", 1e-3),
        ("5", "train.lr", 5.0),
        (".5", "train.lr", 0.5),
        ("[3,4]", "train.kl_steps", (3, 4)),
        ("null", "train.kl_steps", None),
        ("null", "data.data_dir", None),
        ("2024", "data.data_dir", "2024"),
        ("2024-01-01", "data.data_dir", "2024-01-01"),
        ("text:a: b #c.txt", "data.name", "text:a: b #c.txt"),
        ("no", "data.smooth_lengths", False),
        ("true", "train.tensorboard", True),
    ],
)
def test_a_word_is_read_as_its_field_wants_it(typed, name, value):
    for words in ([f"--{name}", typed], [f"--{name}={typed}"]):
        found = flatten(resolved("hmm-af-af", *words))[name]
        assert (found, type(found)) == (value, type(value))


def test_fields_are_taken_listed_or_not():
    """A choice may bring fields that the default config does not have: they come to the config, which judges."""
    words = ["p", "--model.a.b", "4", "--quiet", "--model.c=x=y", "--seed", "-3", "--config", "f"]
    rest, fields = take(words, {"model", "seed"})
    assert rest == ["p", "--quiet", "--config", "f"]
    assert fields == {"model.a.b": "4", "model.c": "x=y", "seed": "-3"}


def test_files_lie_over_the_preset_in_their_order(tmp_path):
    (tmp_path / "one.yaml").write_text("model: {prior: {hidden: {layers: 7}}}\ntrain: {lr: 1e-4, clip: 3}\n")
    (tmp_path / "two.json").write_text('{"train": {"clip": 4, "kl_steps": [1, 2]}}')
    files = ["--config", str(tmp_path / "one.yaml"), "--config", str(tmp_path / "two.json")]
    changes = {"model.prior.hidden.layers": 7, "train.lr": 1e-4, "train.clip": 4.0, "train.kl_steps": (1, 2)}
    assert resolved("ptb-iaf-scf", *files) == evolve(find("ptb-iaf-scf").config, changes)
    assert resolved(*files) == evolve(Config(), changes)
    (tmp_path / "three.yaml").write_text(
        "model: {prior: {scalar: {name: mixture, components: 4}, hidden: scf}}"
    )
    prior = resolved("hmm-af-af", "--config", str(tmp_path / "three.yaml")).model.prior
    assert (prior.scalar.name, prior.scalar.components, prior.hidden.name) == ("mixture", 4, "scf")
    assert prior.hidden.units == find("hmm-af-af").config.model.prior.hidden.units
    assert resolved("--train.clip", "5", *files).train.clip == 5.0  # an option counts wherever it stands


def test_a_file_of_before_is_read_as_what_it_is_now(tmp_path):
    (tmp_path / "old.yaml").write_text("model: {latent_scale: 0.5, prior: {layers: 7, scalar: affine}}")
    found = resolved("ptb-iaf-scf", "--config", str(tmp_path / "old.yaml")).model
    assert (found.posterior.scale, found.prior.hidden.layers, found.prior.scalar.name) == (0.5, 7, "affine")
    assert found.prior.time.name == "iaf"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_a_config_file(tmp_path):
    """As in --config <(command): it can be read once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("seed: 7\n",))
    writer.start()
    config = resolved("hmm-lstm", "--config", str(pipe))
    writer.join()
    assert config == evolve(find("hmm-lstm").config, {"seed": 7})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: [1", "not YAML or JSON: expected ',' or ']', but got '<stream end>', line 1, column 10"),
        ("seed: !!set {1}", "not YAML or JSON"),
        ("", "there are no fields in the file"),
        ("[1]", "there are no fields in the file"),
        ("model: {layers: 3}", "layers"),
        ("model: 3", "model must be a mapping of fields, not 3"),
        ("modle: {}", "modle"),
        ("train: {lr: fast}", "train.lr is 'fast'; it must be a number"),
    ],
)
@pytest.mark.parametrize("preset", [[], ["hmm-af-af"]])
def test_a_wrong_file_is_one_line(tmp_path, capsys, text, message, preset):
    (tmp_path / "some.yaml").write_text(text)
    assert main(["train", *preset, "--config", str(tmp_path / "some.yaml"), "--print_config"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("word", ["--config=x", "--run=x", "--print_config", "--seed=1", "hmm-lstm"])
def test_a_run_goes_on_as_it_was_begun(word):
    args = parse(["train", "--resume", "RUN", word])
    with pytest.raises(LatflowError, match=f"leave out {word.partition('=')[0]} "):
        args.run(args)


def test_yaml_is_read_as_numbers_are_written():
    given = "[1e-3, 1.5E+4, -.5, 1., .inf, 12, 1_0, 0.1, 2024-01-01, a, 1e, e5]"
    assert load_yaml(given) == [
        1e-3,
        15000.0,
        -0.5,
        1.0,
        float("inf"),
        12,
        10,
        0.1,
        "2024-01-01",
        "a",
        "1e",
        "e5",
    ]


def test_what_json_writes_is_read_the_same():
    """config.json of a run is a config file."""
    import json

    from latflow.config import to_dict

    for value in (1e-7, 1e22, 0.1, 5e-324, -3, 2**60):
        assert load_yaml(json.dumps({"a": value})) == {"a": value}
    config = find("jsb-af-af-small").config
    assert from_dict(load_yaml(json.dumps(to_dict(config)))) == config
