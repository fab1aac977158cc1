"""Every figure drawn from a tiny run, and what its numbers are."""

import json

import numpy as np
import pytest
import torch

from latflow import data
from latflow.cli import main
from latflow.config import Config
from latflow.data.base import DataSpec, collate
from latflow.errors import LatflowError
from latflow.models import SequenceModel, build
from latflow.models.latent import LatentSequenceModel
from latflow.plots.curves import curves_figure
from latflow.plots.modality import modality_figure, next_symbol
from latflow.plots.prior import contexts, log_density, prior_figure
from latflow.plots.roll import roll_figure
from latflow.plots.save import save
from latflow.plots.symbols import label
from latflow.plots.timing import read_timing, timing_figure
from latflow.reproduce.result import curve_of
from latflow.training.fit import train
from latflow.training.run import Run
from tests.reproduce.fake import fake
from tests.training.tiny import config

TEXT = "kesit nalon"


def model(c: Config) -> SequenceModel:
    return build(c.model, data.load(c.data).spec).eval()


def plane(time: str, hidden: str = "af") -> LatentSequenceModel:
    """An untrained model with H = 2 whose flow is far from the identity."""
    alone = {"model__prior__context": "position"} if time == "none" else {}
    made = model(config(model__latent_size=2, model__prior__time=time, model__prior__hidden=hidden, **alone))
    assert isinstance(made, LatentSequenceModel)
    with torch.no_grad():
        for p in made.prior.hidden.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return made


@pytest.fixture(scope="module")
def lstm_run(tmp_path_factory):
    run, finished = train(config("chords-lstm", train__epochs=2), tmp_path_factory.mktemp("runs") / "tiny")
    assert finished
    return run.folder


# The prior along a string.


@pytest.mark.parametrize("time", ["af", "iaf", "none"])
@pytest.mark.parametrize("hidden", ["af", "scf"])
def test_the_density_of_a_panel_is_the_priors(time, hidden):
    made = plane(time, hidden)
    x = torch.from_numpy(made.spec.encode(TEXT))
    z, context = contexts(made, x)
    whole = made.prior.log_prob(z[None], torch.tensor([len(x)]))[0]
    steps = torch.stack([log_density(made, z[t : t + 1], context[t])[0] for t in range(len(x))])
    torch.testing.assert_close(steps, whole, atol=1e-4, rtol=1e-4)


def test_the_density_of_a_panel_integrates_to_one():
    made = plane("af")
    _, context = contexts(made, torch.from_numpy(made.spec.encode(TEXT)))
    axis = torch.linspace(-25, 25, 501)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).reshape(-1, 2)
    mass = log_density(made, grid, context[4]).exp().sum() * (axis[1] - axis[0]) ** 2
    assert float(mass) == pytest.approx(1, abs=0.02)  # a sum over a grid of a tenth of a unit


def test_prior_figure_has_a_panel_for_each_symbol(tmp_path):
    figure = prior_figure(plane("af"), TEXT, "it na")
    assert [axes.get_title() for axes in figure.axes] == ["i", "t", "␣", "n", "a"]
    assert [path.name for path in save(figure, tmp_path / "prior.png")] == ["prior.png", "prior.svg"]


def test_the_part_is_found_in_the_text():
    with pytest.raises(LatflowError, match="'kan' is not in the text"):
        prior_figure(plane("af"), TEXT, "kan")


def test_prior_figure_needs_two_dimensions():
    with pytest.raises(LatflowError, match="needs H = 2, and the run has H = 3"):
        prior_figure(model(config()), TEXT)
    with pytest.raises(LatflowError, match="needs a latent model"):
        prior_figure(model(config("hmm-lstm")), TEXT)


# Next symbols.


def test_next_symbol_distributions_are_the_models():
    made = model(config("hmm-lstm"))
    x = made.spec.encode(TEXT)
    p = next_symbol(made, torch.from_numpy(x))
    torch.testing.assert_close(p.sum(-1), torch.ones(len(x)))
    log_p = made.terms(collate([x], made.spec)).log_emission[0, 0]
    torch.testing.assert_close(p[torch.arange(len(x)), x].log(), log_p)


def test_modality_figure(tmp_path):
    made = model(config("hmm-lstm"))
    figure = modality_figure(made, TEXT, [1, 3, 7])
    assert [axes.get_title().split("?")[0] for axes in figure.axes] == ["at the start: ", "ke", "kesit␣"]
    assert len(modality_figure(made, TEXT).axes) == 6
    save(figure, tmp_path / "modality")


def test_modality_figure_says_what_it_needs():
    with pytest.raises(LatflowError, match="needs an LSTM language model"):
        modality_figure(model(config()), TEXT)
    with pytest.raises(LatflowError, match="position 12; the text has positions 1 to 11"):
        modality_figure(model(config("hmm-lstm")), TEXT, [12])


@pytest.mark.parametrize("draw", [lambda text: modality_figure(model(config("hmm-lstm")), text)])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kesitX", "character 'X' at position 6 is not among the 12"),
        ("", "the text is empty"),
        ("k" * 33, "has 33 characters; this model knows lengths to 32"),
    ],
)
def test_texts_that_the_model_cannot_read(draw, text, message):
    with pytest.raises(LatflowError, match=message):
        draw(text)


def test_figures_of_symbols_are_not_of_music():
    with pytest.raises(LatflowError, match="the run is of music"):
        modality_figure(model(config("chords-lstm")), TEXT)


@pytest.mark.parametrize(
    ("symbol", "text"), [(" ", "␣"), ("a", "a"), ("\t", r"\t"), (12, "12"), ("$", r"\$")]
)
def test_labels(symbol, text):
    assert label(symbol, DataSpec("tokens", ("a", " "), (0, 1))) == text


def test_a_string_of_digits_is_not_taken_for_a_number():
    assert label("1", DataSpec("tokens", (1, "1"), (0, 1))) == '"1"'
    assert label("1", DataSpec("text", ("0", "1"), (0, 1))) == "1"


# Curves, rolls, timing.


def test_curves_of_a_run_and_of_its_result(lstm_run, tmp_path):
    curve = curve_of(Run.open(lstm_run).metrics())
    figure = curves_figure(curve, "nats per time step", "tiny")
    line = figure.axes[0].lines[1]
    assert line.get_label() == "valid"
    assert np.asarray(line.get_ydata()).tolist() == curve["valid_negative_elbo"]
    save(figure, tmp_path / "curves")
    column = curve["valid_negative_elbo"]
    assert len(figure.axes) == 3  # no KL weight for a model without KL
    assert "ELBO" not in " ".join(axes.get_title() for axes in figure.axes)
    short = curves_figure({name: values[:1] for name, values in curve.items()}, "bits")
    assert short.axes[0].get_xlim() == (0, 2)
    diverged = {**curve, "valid_negative_elbo": [None, *column[1:]]}
    figure = curves_figure(diverged, "bits")
    (marked,) = [line for line in figure.axes[0].lines if line.get_label() == "best valid"]
    assert marked.get_ydata() == [min(value for value in column[1:] if value is not None)]


def test_a_run_without_an_epoch_has_no_curve():
    with pytest.raises(LatflowError, match="no epoch of this run is finished yet"):
        curves_figure({}, "bits")


def test_rolls_side_by_side(tmp_path):
    rng = np.random.default_rng(0)
    rolls = [(rng.random((T, 88)) < 0.05).astype(np.uint8) for T in (20, 20, 30, 30)]
    figure = roll_figure([(rolls[0], rolls[1]), (rolls[2], rolls[3])])
    assert len(figure.axes) == 4
    save(figure, tmp_path / "roll")
    silence = np.zeros((4, 88), np.uint8)
    save(roll_figure([(silence, silence)]), tmp_path / "silence")


def test_timing_lines():
    lines = {"LSTM": [(10, 5.0), (5, 2.5)], "IAF / SCF": [(5, 1.0), (10, 1.1)]}
    figure = timing_figure({"text": lines, "music": lines})
    assert [axes.get_title() for axes in figure.axes] == ["text", "music"]
    assert np.asarray(figure.axes[0].lines[0].get_xdata()).tolist() == [5, 10]


def test_timing_from_the_file_of_the_benchmark(tmp_path):
    path = tmp_path / "bench.json"
    row = {
        "data": "text",
        "size": "paper",
        "model": "LSTM",
        "batch": 1,
        "T": 8,
        "seconds": 0.25,
        "plain torch": 0.5,
    }
    path.write_text(json.dumps({"sampling": [row, {**row, "batch": 64, "seconds": 9.0}]}))
    assert read_timing(path) == {
        "text": {"LSTM, plain torch": [(8, 500.0)], "LSTM, at its best": [(8, 250.0)]}
    }
    with pytest.raises(LatflowError, match="no generation times of size 'small'"):
        read_timing(path, "small")
    path.write_text("{}")
    with pytest.raises(LatflowError, match="is not what `latflow bench --json` writes"):
        read_timing(path)


def test_a_figure_saved_twice_is_the_same_file(tmp_path):
    figure = timing_figure({"text": {"LSTM": [(1, 2.0)]}})
    for a, b in zip(save(figure, tmp_path / "a"), save(figure, tmp_path / "b"), strict=True):
        assert a.read_bytes() == b.read_bytes()


# The command.


def test_the_command_draws_what_a_run_holds(lstm_run, tmp_path, capsys):
    result = tmp_path / "chords-lstm.json"
    fake("chords-lstm").write(result)
    raw = json.loads(result.read_text()) | {"curve": curve_of(Run.open(lstm_run).metrics())}
    result.write_text(json.dumps(raw))
    for words in (
        ["curves", str(lstm_run)],
        ["curves", str(result)],
        ["roll", str(lstm_run), "-n", "1"],
        ["nlsq", "--train", "--steps", "2"],
    ):
        assert main(["plot", *words, "--out", str(tmp_path / "figure")]) == 0
        written = capsys.readouterr().out.split()
        assert written == [str(tmp_path / "figure.png"), str(tmp_path / "figure.svg")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["curves", "nowhere"], "no run at nowhere"),
        (["nlsq", "--steps", "0"], "--steps is 0; it must be 1 or more"),
        (["nlsq", "--out", "x.pdf"], "x.pdf: .pdf is not written; accepted: a name"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["plot", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unknown_kind_is_refused(capsys):
    assert main(["plot", "nothing"]) == 2
    error = capsys.readouterr().err
    assert "nlsq" in error
    assert error.count("\n") == 1
