"""The programs of docs/extending.md as they stand: what they add is right, and goes the whole way through a run."""

import json
import os
import re
import runpy
import signal
from pathlib import Path

import pytest
import torch

import latflow
from latflow.axes import AXES
from latflow.config import ModelConfig, evolve
from latflow.flows import Affine, Autoregressive, Layer, Packing, SequenceFlow
from latflow.models import LatentSequenceModel, build
from latflow.training.report import Reporter
from latflow.training.run import WEIGHTS, Run
from tests.flows.cases import randomise
from tests.models.cases import config, strings, text_spec

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
PROGRAMS = {
    block.split(".py", 1)[0].removeprefix("# "): block
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}
ADDED = {
    "sinh_arcsinh": [("scalar", "sinh-arcsinh")],
    "window": [("context", "window")],
    "local": [("posterior", "neighbours"), ("emission", "local")],
    "dna": [],
}
LIMITS = {"sinh_arcsinh": 40, "window": 60, "local": 60, "dna": 60}


def run(program: str, folder: Path) -> dict:
    """The program as `python NAME.py` runs it, in this process and folder."""
    (folder / f"{program}.py").write_text(PROGRAMS[program], encoding="utf-8")
    return runpy.run_path(str(folder / f"{program}.py"), run_name="__main__")


@pytest.fixture(autouse=True)
def _own_names():
    """Names that a test registers are gone behind it."""
    before = {axis: dict(AXES[axis]._entries) for axis in AXES}
    yield
    for axis, entries in before.items():
        AXES[axis]._entries = entries


def test_the_page_has_the_four_programs():
    assert set(PROGRAMS) == set(ADDED)


@pytest.mark.parametrize("program", ADDED)
def test_a_program_is_short(program):
    """Lines of code, from the first import to the last sample."""
    lines = [line for line in PROGRAMS[program].splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= LIMITS[program]


@pytest.mark.parametrize("program", ADDED)
def test_train_evaluate_save_load_sample_and_the_same_after_an_interrupt(
    program, tmp_path, monkeypatch, capsys
):
    weights = []
    for interrupted in (False, True):
        folder = tmp_path / str(interrupted)
        folder.mkdir()
        monkeypatch.chdir(folder)
        if interrupted:
            _stop_after(monkeypatch, 2)
        run(program, folder)
        (made,) = (folder / "runs").iterdir()
        found = Run.open(made)
        assert {(c.split()[0], c.split()[1]) for c in _needs(found)} == set(ADDED[program])
        assert set(_needs(found).values()) <= {f"program {program}.py"}
        assert [line["epoch"] for line in found.metrics() if line["kind"] == "epoch"] == [1, 2]
        weights.append(found.read(WEIGHTS)[0])
        told = capsys.readouterr().out.splitlines()
        training = ("runs/", "epoch", "going on")  # what it tells, before the program does
        said = [line for line in told if not line.startswith(training)]
        assert float(said[0].split()[0]) > 0
        assert len(said) >= 2
        (shared,) = (folder / "shared").iterdir()
        loaded = dict(latflow.load(shared).state_dict())
        for name, value in weights[-1].items():
            assert torch.equal(loaded[name], value), name
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def _needs(run: Run) -> dict[str, str]:
    return json.loads((run.folder / "run.json").read_text())["needs"]


def _stop_after(monkeypatch, step: int) -> None:
    """Ctrl-C at this step, once."""
    original, sent = Reporter.step, []

    def stop(self, updates, *rest):
        if updates == step and not sent:
            sent.append(updates)
            os.kill(os.getpid(), signal.SIGINT)
        original(self, updates, *rest)

    monkeypatch.setattr(Reporter, "step", stop)


def defined(program: str, tmp_path: Path) -> dict:
    """The program imported: what it defines and registers, nothing trained."""
    (tmp_path / f"{program}.py").write_text(PROGRAMS[program], encoding="utf-8")
    return runpy.run_path(str(tmp_path / f"{program}.py"), run_name=program)


@pytest.mark.usefixtures("double")
def test_the_scalar_map_is_increasing_and_its_slopes_are_those_of_autograd(tmp_path):
    scalar = defined("sinh_arcsinh", tmp_path)["SinhArcsinh"](tail=0.8)
    raw = torch.randn(2000, 4)
    eps = torch.randn(2000, requires_grad=True)
    z, logdet = scalar.forward(eps, raw)
    (slope,) = torch.autograd.grad(z.sum(), eps)
    assert (slope > 0).all()
    torch.testing.assert_close(logdet, slope.log(), rtol=1e-9, atol=1e-9)
    back, logdet_back = scalar.inverse(z, raw)
    torch.testing.assert_close(back, eps, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(logdet_back, -logdet, rtol=1e-9, atol=1e-9)
    same, none = scalar.forward(eps, torch.zeros(2000, 4))
    torch.testing.assert_close(same, eps)
    torch.testing.assert_close(none, torch.zeros_like(none))


class _Parts:
    """As much of a model as a context asks for."""

    max_T, rank, condition_size, config = 6, None, 2, ModelConfig()

    def __init__(self, reading):
        self.reading = reading


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("samples", [1, 2])
def test_the_two_faces_of_the_context_are_the_same_numbers(samples, tmp_path):
    found = defined("window", tmp_path)
    context = found["Window"](found["WindowOptions"](steps=3, units=4), _Parts(Layer(3, 5)))
    randomise(context, 0.5)
    packing = Packing(torch.tensor([2, 6, 1, 5]), samples, torch.randn(4, 2))
    y = torch.randn(packing.rows, 3)
    whole = context.whole(y, packing)
    serial, state = context.start(packing)
    for t in range(packing.steps):
        torch.testing.assert_close(serial, whole[packing.at(t)], rtol=1e-12, atol=1e-12)
        serial, state = context.step(y[packing.at(t)], t, packing, state)
    flow = SequenceFlow(Autoregressive(3, 2, Affine(), 4, units=6), context, "af")
    z, logdet = flow.forward_rows(y, packing)
    back, logdet_back = flow.inverse_rows(z, packing)
    torch.testing.assert_close(back, y, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(logdet_back, -logdet, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double")
def test_the_posterior_sees_its_neighbours_within_a_sequence_and_no_others(tmp_path):
    found = defined("local", tmp_path)
    chosen = {"posterior": "neighbours", "posterior.window": 1, "emission": "local"}
    model = build(evolve(config("af-af"), chosen), text_spec())
    assert isinstance(model, LatentSequenceModel)
    assert isinstance(model.posterior, found["Neighbours"])
    z = model.encode(strings(model.spec, ["abcab", "b", "cc"]))
    for text, own in zip(["abcab", "b", "cc"], z, strict=True):
        alone = model.encode(strings(model.spec, [text]))[0]
        torch.testing.assert_close(own[: len(text)], alone, rtol=1e-12, atol=1e-12)
    other = model.encode(strings(model.spec, ["abcac"]))[0]
    changed = (z[0] != other).any(-1).tolist()
    assert changed == [False, False, False, True, True]
