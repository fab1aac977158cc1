"""The open axes: accepted values come from the tables, and a name from outside is as good as one that is built in."""

import json
import re
import types
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import latflow
from latflow import axes, shipped
from latflow.axes import AXES, LayeredOptions, NoOptions, choose, ranged, register
from latflow.cli import parse
from latflow.cli.train import config_of
from latflow.config import Config, choices, evolve, flatten, from_dict, get, to_dict
from latflow.errors import LatflowError, LatflowWarning
from latflow.flows import Affine, ScalarTransform
from latflow.former import MOVED, RENAMED_WEIGHTS
from latflow.models import build
from latflow.presets import find
from latflow.training.run import WEIGHTS, Run
from latflow.training.stored import weights_of
from tests.models.cases import text_spec
from tests.training.tiny import config

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "results").glob("*.json"))
PLACES = {
    "scalar": "model.prior.scalar",
    "hidden": "model.prior.hidden",
    "time": "model.prior.time",
    "context": "model.prior.context",
    "reading": "model.prior.reading",
    "posterior": "model.posterior",
    "emission": "model.emission",
}


@dataclass(frozen=True)
class ShiftOptions:
    """Of a map that only moves and stretches."""

    stretch: float = ranged(0.4, 0, 2)
    times: int = ranged(1, 1, 9)
    both: bool = False
    name_of: str = "shift"


def make_shift(options: ShiftOptions, parts: object) -> ScalarTransform:
    """a + b eps, as an outsider writes it."""
    return Affine(options.stretch)


@pytest.fixture(autouse=True)
def _own_names():
    """Names that a test registers are gone behind it, and packages are asked anew."""
    before = {axis: dict(AXES[axis]._entries) for axis in AXES}
    yield
    for axis, entries in before.items():
        AXES[axis]._entries = entries
    axes._load_installed.cache_clear()


@pytest.fixture
def shift():
    register("scalar", "shift", make_shift, ShiftOptions)


# The tables decide.


def test_every_axis_has_a_place_in_the_config():
    assert {choice.axis for choice in choices(Config())} == set(AXES) == set(PLACES)


@pytest.mark.parametrize(("axis", "name"), [(axis, name) for axis in AXES for name in AXES[axis]])
def test_every_name_of_a_table_is_accepted_with_its_own_options(axis, name):
    changed = evolve(Config(), {PLACES[axis]: name})
    assert get(changed, PLACES[axis]).name == name
    assert from_dict(to_dict(changed)) == changed
    assert from_dict({"model": _nested(PLACES[axis].removeprefix("model."), name)}).model is not None
    own = {f.name for f in fields(AXES[axis][name].options)}
    prefix = f"{PLACES[axis]}."
    assert {n.removeprefix(prefix) for n in flatten(changed) if n.startswith(prefix)} == own


def _nested(place: str, value: object) -> dict:
    head, _, rest = place.partition(".")
    return {head: _nested(rest, value) if rest else value}


@pytest.mark.parametrize("axis", AXES)
def test_other_names_are_refused_with_those_of_the_table(axis):
    accepted = ", ".join(AXES[axis])
    with pytest.raises(LatflowError, match=f"{PLACES[axis]} is 'sideways'; accepted: {accepted}"):
        from_dict({"model": _nested(PLACES[axis].removeprefix("model."), "sideways")})
    with pytest.raises(LatflowError, match=f"{axis} is 'sideways'; accepted: {accepted}"):
        choose(axis, "sideways")


# Names from outside.


def test_a_registered_name_is_accepted_in_python_in_files_and_on_the_command_line(shift):
    wanted = evolve(
        find("hmm-af-af").config, {"model.prior.scalar": "shift", "model.prior.scalar.stretch": 1.5}
    )
    assert wanted.model.prior.scalar.stretch == 1.5
    assert from_dict(json.loads(json.dumps(to_dict(wanted)))) == wanted
    typed = ["--model.prior.scalar", "shift", "--model.prior.scalar.stretch", "1.5"]
    assert config_of(parse(["train", "hmm-af-af", *typed])) == wanted
    assert config_of(parse(["train", "hmm-af-af", *typed[2:], *typed[:2]])) == wanted  # in any order
    raw = to_dict(find("hmm-af-af").config)
    raw["model"]["prior"]["scalar"] = {"name": "shift", "stretch": 1.5}
    assert from_dict(raw) == wanted


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("stretch", 3, "model.prior.scalar.stretch is 3.0; accepted: 0 to 2"),
        ("stretch", float("nan"), "model.prior.scalar.stretch is nan; accepted: 0 to 2"),
        ("stretch", "wide", "model.prior.scalar.stretch is 'wide'; it must be a number"),
        ("stretch", True, "model.prior.scalar.stretch is True; it must be a number"),
        ("times", 0, "model.prior.scalar.times is 0; accepted: 1 to 9"),
        ("times", 1.5, "model.prior.scalar.times is 1.5; it must be a whole number"),
        ("both", 1, "model.prior.scalar.both is 1; it must be true or false"),
        ("name_of", 7, "model.prior.scalar.name_of is 7; it must be a string"),
        ("alpha", 0.5, "unknown field model.prior.scalar.alpha; accepted: stretch, times, both, name_of"),
    ],
)
def test_wrong_options_of_a_registered_name_are_refused_in_words(shift, option, value, message):
    with pytest.raises(LatflowError, match=re.escape(message)):
        from_dict({"model": {"prior": {"scalar": {"name": "shift", option: value}}}})


def test_a_part_is_made_with_its_options_and_what_of_the_model_there_is(shift):
    seen = []

    def make(options, parts):
        seen.append((options, parts.latent_size, parts.spec.size, parts.max_T))
        return make_shift(options, parts)

    register("scalar", "shift", make, ShiftOptions)  # one's own name may be registered anew
    settings = config(model__prior__scalar="shift", model__prior__scalar__stretch=0.7)
    model = build(settings.model, text_spec())
    assert seen == [(ShiftOptions(stretch=0.7), 3, 3, 6)]
    assert model.prior.hidden.scalar == Affine(0.7)  # type: ignore[union-attr]


def test_names_that_come_with_the_package_stay_what_they_are():
    for axis in AXES:
        for name in list(AXES[axis]):
            with pytest.raises(
                LatflowError, match=f"{axis} '{name}' comes with latflow; register another name"
            ):
                register(axis, name, make_shift)
    assert AXES["scalar"]["affine"].origin is None


@dataclass(frozen=True)
class _NoDefault:
    width: int


@dataclass(frozen=True)
class _Name:
    name: str = "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("colour", "red", make_shift), "no axis called 'colour'; accepted: scalar, hidden, time, context"),
        (("scalar", "", make_shift), "scalar '': a name is of letters, digits, - and _"),
        (("scalar", "a.b", make_shift), "scalar 'a.b': a name is of letters"),
        (("scalar", "mine", None), "make is called with (options, parts), and None cannot be called"),
        (("scalar", "mine", make_shift, dict), "its options must be a dataclass, not <class 'dict'>"),
        (("scalar", "mine", make_shift, ShiftOptions()), "its options must be a dataclass, not ShiftOptions"),
        (("scalar", "mine", make_shift, _NoDefault), "option width has no default"),
        (("scalar", "mine", make_shift, _Name), "an option cannot be called name"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_words(arguments, message):
    with pytest.raises(LatflowError, match=re.escape(message)):
        register(*arguments)
    assert "mine" not in list(AXES["scalar"])


def test_a_part_that_is_its_own_options_has_those_of_its_fields_only():
    """What its base class annotates is no option."""

    @dataclass(frozen=True)
    class Own(ScalarTransform):
        pull: float = ranged(0.5, 0, 1)
        n_params = 2

        def forward(self, eps, raw):
            return eps, torch.zeros_like(eps)

        def inverse(self, z, raw):
            return z, torch.zeros_like(z)

    register("scalar", "own", lambda options, parts: options, Own)
    with pytest.raises(LatflowError, match=r"unknown field model\.prior\.scalar\.n_params; accepted: pull$"):
        from_dict({"model": {"prior": {"scalar": {"name": "own", "n_params": 5}}}})
    settings = config(model__prior__scalar="own")
    assert build(settings.model, text_spec()).prior.hidden.scalar == Own()  # type: ignore[union-attr]


# Folders that need them.


def test_a_folder_says_what_it_needs_and_where_that_is_from(shift, tmp_path):
    settings = config(model__prior__scalar="shift")
    model = build(settings.model, text_spec())
    run = latflow.save(model, tmp_path / "shared", settings)
    about = json.loads((run.folder / "run.json").read_text())
    assert about["needs"] == {"scalar shift": f"module {__name__}"}
    again = latflow.load(run.folder)
    for name, value in weights_of(model).items():
        assert torch.equal(weights_of(again)[name], value)

    del AXES["scalar"]._entries["shift"]
    message = (
        f"the run at {run.folder} needs scalar 'shift', which does not come with latflow: it was registered by "
        f"module {__name__}; install or import that first"
    )
    with pytest.raises(LatflowError, match=f"^{re.escape(message)}$"):
        latflow.load(run.folder)


def test_a_folder_without_names_from_outside_needs_nothing(tmp_path):
    settings = config()
    run = latflow.save(build(settings.model, text_spec()), tmp_path / "shared", settings)
    assert json.loads((run.folder / "run.json").read_text())["needs"] == {}


def test_a_folder_that_is_damaged_otherwise_is_not_said_to_need_a_name(shift, tmp_path):
    settings = config(model__prior__scalar="shift")
    run = latflow.save(build(settings.model, text_spec()), tmp_path / "shared", settings)
    raw = json.loads((run.folder / "config.json").read_text())
    raw["model"]["latent_size"] = "three"
    (run.folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(LatflowError, match=r"is damaged: config: model\.latent_size is 'three'"):
        latflow.load(run.folder)


@pytest.mark.parametrize(
    ("make", "options", "origin"),
    [
        (make_shift, ShiftOptions, f"module {__name__}"),
        (make_shift, LayeredOptions, f"module {__name__}"),  # with options of the package
        (partial(make_shift), NoOptions, f"module {__name__}"),
        (ShiftOptions, NoOptions, f"module {__name__}"),
    ],
)
def test_where_a_name_is_from_is_where_it_is_made(make, options, origin):
    register("scalar", "mine", make, options)
    assert AXES["scalar"]["mine"].origin == origin


def test_of_an_installed_package_the_package_is_named(monkeypatch):
    monkeypatch.setattr(
        axes, "packages_distributions", lambda: {__name__.partition(".")[0]: ["latflow-shift"]}
    )
    register("scalar", "mine", make_shift)
    assert AXES["scalar"]["mine"].origin == f"package latflow-shift, module {__name__}"


# Entry points.


@pytest.fixture
def installed(monkeypatch):
    """Pretend that packages with these entry points are installed; how often they were asked for."""
    asked = []

    def install(**points):
        def entry_points(group):
            asked.append(group)
            return [_Point(name, f"{name}_package", group, load) for name, load in points.items()]

        monkeypatch.setattr(axes, "entry_points", entry_points)
        axes._load_installed.cache_clear()
        return asked

    return install


class _Point(EntryPoint):
    """An entry point of a package that is nowhere on disk."""

    def __new__(cls, name, value, group, load):
        return super().__new__(cls)

    def __init__(self, name, value, group, load):
        super().__init__(name, value, group)
        vars(self)["load"] = load


def test_packages_are_asked_when_a_name_is_met_that_nobody_knows(installed):
    asked = installed(shift=lambda: partial(register, "scalar", "shift", make_shift, ShiftOptions))
    evolve(Config(), {"model.prior.scalar": "affine"})
    assert asked == []
    assert evolve(Config(), {"model.prior.scalar": "shift"}).model.prior.scalar.stretch == 0.4
    assert from_dict({"model": {"prior": {"scalar": "shift"}}}).model.prior.scalar.name == "shift"
    assert asked == ["latflow"]  # once
    with pytest.raises(
        LatflowError, match=r"model\.prior\.scalar is 'shove'; accepted: nlsq, affine, mixture, shift"
    ):
        from_dict({"model": {"prior": {"scalar": "shove"}}})


def test_an_entry_point_may_be_a_module_that_registers_when_it_is_imported(installed):
    def load():
        register("scalar", "shift", make_shift, ShiftOptions)
        return types.ModuleType("shift")

    installed(shift=load)
    assert (
        from_dict({"model": {"prior": {"scalar": {"name": "shift", "times": 3}}}}).model.prior.scalar.times
        == 3
    )


def test_a_folder_finds_the_package_that_it_needs(shift, installed, tmp_path):
    settings = config(model__prior__scalar="shift")
    run = latflow.save(build(settings.model, text_spec()), tmp_path / "shared", settings)
    del AXES["scalar"]._entries["shift"]
    installed(shift=lambda: partial(register, "scalar", "shift", make_shift, ShiftOptions))
    assert Run.open(run.folder).config.model.prior.scalar.name == "shift"


def test_a_package_that_fails_is_named_and_does_not_hide_the_others(installed):
    def broken():
        raise ImportError("no module named scipy")

    installed(broken=broken, shift=lambda: partial(register, "scalar", "shift", make_shift, ShiftOptions))
    with pytest.warns(
        LatflowWarning, match=r"latflow broken = broken_package .*ImportError: no module named scipy"
    ):
        assert from_dict({"model": {"prior": {"scalar": "shift"}}}).model.prior.scalar.name == "shift"


# What was, and what changes.


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_load_and_mean_what_they_meant(path):
    """Every field of a config of before stands, with its value, where the map of moves says."""
    raw = json.loads(path.read_text())["config"]
    _check_upgrade(raw, from_dict(raw))


@pytest.mark.parametrize("name", shipped.names())
def test_shipped_configs_load_and_mean_what_they_meant(name):
    raw = json.loads((shipped.find(name) / "config.json").read_text())
    _check_upgrade(raw, from_dict(raw))


def _check_upgrade(raw: dict, read: Config) -> None:
    model, now = raw["model"], read.model
    assert from_dict(to_dict(read)) == read
    for name, places in MOVED.items():
        old = _at(raw, name)
        for place in places:
            value = _get(read, place)
            if old is None or value is None:  # of a choice that was not made then, or is not now
                continue
            if name == "model.prior.raw_scale" and now.prior.scalar.name == "affine":
                old = old[0]
            assert value == (tuple(old) if isinstance(old, list) else old), (name, place)
    for name in ("kind", "latent_size", "embedding_size", "tie_embedding"):
        assert getattr(now, name) == model.get(name, getattr(now, name))
    for axis in ("time", "hidden", "scalar"):
        given_name = model["prior"][axis]
        assert getattr(now.prior, axis).name == (
            given_name if isinstance(given_name, str) else given_name["name"]
        )
    if "input_units" in model["prior"]:
        reads = now.prior.time.name != "none" and model["prior"]["input_units"] > 0
        assert (now.prior.reading.name == "layer") == reads
    assert (now.prior.context.name == "position") == (now.prior.time.name == "none")


def _at(raw: dict, name: str):
    for part in name.split("."):
        raw = raw.get(part, {}) if isinstance(raw, dict) else {}
    return None if raw == {} else raw


def _get(config: Config, name: str):
    try:
        return get(config, name)
    except AttributeError:
        return None


OLD = {
    "latent_scale": st.floats(0.1, 2),
    "posterior_gain": st.floats(0.5, 20),
}
OLD_OPTIONS = {
    "layers": st.integers(1, 9),
    "network_layers": st.integers(1, 4),
    "network_units": st.integers(60, 200),
    "lstm_layers": st.integers(1, 3),
    "lstm_units": st.integers(1, 600),
    "dropout": st.floats(0, 0.9),
    "input_units": st.integers(0, 50),
    "alpha": st.floats(0.1, 0.99),
    "raw_scale": st.tuples(*[st.floats(-2, 2)] * 3).map(list),
}
CHOICES = {
    "time": st.sampled_from(["af", "iaf", "none"]),
    "hidden": st.sampled_from(["af", "scf", "none"]),
    "scalar": st.sampled_from(["nlsq", "affine"]),
}


@given(st.fixed_dictionaries({}, optional=OLD), st.fixed_dictionaries(CHOICES, optional=OLD_OPTIONS))
def test_any_config_of_before_loads_and_means_what_it_meant(model, prior):
    raw = {"model": {**model, "prior": prior}}
    if not (model or prior.keys() - CHOICES.keys()):
        return  # neither of before nor of now
    before = json.dumps(raw)
    read = from_dict(raw)
    assert json.dumps(raw) == before
    _check_upgrade(raw, read)
    assert build_names(read) == (prior["time"], prior["hidden"], prior["scalar"])


def build_names(config: Config) -> tuple[str, str, str]:
    prior = config.model.prior
    return prior.time.name, prior.hidden.name, prior.scalar.name


def test_weights_of_format_1_load_under_the_names_of_now(tmp_path):
    """A folder as the version before wrote it: other names for a few weights, in the best and in the last."""
    settings = config(model__prior__reading="layer", model__prior__reading__units=5)
    model = build(settings.model, text_spec())
    run = latflow.save(model, tmp_path / "old", settings)
    now = weights_of(model)
    former = {new: old for old, new in RENAMED_WEIGHTS.items()}

    def old_name(name):
        return next((former[new] + name.removeprefix(new) for new in former if name.startswith(new)), name)

    old = {old_name(name): value for name, value in now.items()}
    for before in RENAMED_WEIGHTS:
        assert any(name.startswith(before) for name in old)
        assert not any(name.startswith(before) for name in now)
    run.save(WEIGHTS, old, {})
    about = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**about, "format": 1}))
    for name, value in weights_of(latflow.load(run.folder)).items():
        assert torch.equal(value, now[name]), name
    both = {f"{prefix}.{name}": value.clone() for prefix in ("model", "ema") for name, value in old.items()}
    run.save("trainer.safetensors", both, {})
    found, _ = run.read("trainer.safetensors")
    assert found.keys() == {f"{prefix}.{name}" for prefix in ("model", "ema") for name in now}


def test_a_new_choice_keeps_the_options_that_it_shares():
    base = evolve(Config(), {"model.prior.hidden.layers": 3, "model.prior.hidden.units": 70})
    changed = evolve(base, {"model.prior.hidden": "scf"})
    assert changed.model.prior.hidden == replace(base.model.prior.hidden, name="scf")
    both = evolve(base, {"model.prior.hidden": "none", "model.prior.hidden.layers": 7})
    assert (both.model.prior.hidden.layers, both.model.prior.hidden.units) == (7, 70)
    forgotten = evolve(evolve(base, {"model.prior.hidden": "codebook"}), {"model.prior.hidden": "af"})
    assert forgotten.model.prior.hidden == Config().model.prior.hidden
    units = evolve(Config(), {"model.prior.context.units": 33, "model.prior.context": "position"})
    assert to_dict(units)["model"]["prior"]["context"] == {"name": "position", "units": 33}


def test_an_option_of_the_same_name_and_another_type_is_not_kept():
    base = evolve(Config(), {"model.prior.scalar.raw_scale": (1.0, 2.0, 3.0)})
    assert evolve(base, {"model.prior.scalar": "affine"}).model.prior.scalar.raw_scale == 0.4


def test_an_option_that_the_choice_has_not_is_said_to_be_none_of_it():
    with pytest.raises(AttributeError, match="scalar 'affine' has no option 'alpha'"):
        _ = choose("scalar", "affine").alpha
    with pytest.raises(LatflowError, match=r"no field 'alpha' in model\.prior\.scalar; accepted: raw_scale"):
        evolve(Config(), {"model.prior.scalar": "affine", "model.prior.scalar.alpha": 0.5})
    with pytest.raises(LatflowError, match="accepted: none, it has no options"):
        evolve(Config(), {"model.prior.time.layers": 2})
