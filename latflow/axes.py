"""The open axes of the model: for each part that can be chosen one table of names.

    axis        what is chosen                                    built in
    scalar      the invertible scalar map                         nlsq, affine, mixture
    hidden      the flow across the H dimensions of a step        af, scf, none, codebook
    time        how the flows of the steps hang together          af, iaf, none
    context     what step t sees of the others                    lstm, position
    reading     how the context reads z_t                         raw, layer, symbols
    posterior   q(z | x)                                          bilstm, codebook
    emission    p(x | z)                                          bilstm, bayes

An entry is a name, the options of that choice and a constructor `make(options, parts)`, where `parts` is what of the
model stands already (`latflow.models.parts.Parts`). The config takes its accepted values from these tables, so that
a name of one's own, registered from outside, can be trained, saved, loaded and sampled with:

    latflow.register("scalar", "cubic", make=lambda options, parts: Cubic(options.bend), options=CubicOptions)

An installed package registers by an entry point of the group "latflow" that names a module or function to load.
Standard library only, so that reading a config is instant.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any, Literal

from latflow.errors import LatflowError, LatflowWarning

INF = float("inf")


def ranged(default: Any, low: float, high: float = INF) -> Any:
    """A number with its range, ends included."""
    return field(default=default, metadata={"range": (low, high)})


# The options of the choices that come with the package.


@dataclass(frozen=True)
class NoOptions:
    """A choice that leaves nothing open."""


@dataclass(frozen=True)
class NLSqOptions:
    """The non-linear squared map (supplement C)."""

    alpha: float = ranged(0.95, 1e-6, 0.9999)
    """Bound on the perturbation: the least slope is 1 - alpha (the authors' code: effectively 0.9675)."""
    raw_scale: tuple[float, float, float] = ranged((0.4, 0.3, 0.4), -1e6, 1e6)
    """Factors on the raw b', c', d' from the network, as in the authors' code."""


@dataclass(frozen=True)
class AffineOptions:
    """a + b eps."""

    raw_scale: float = ranged(0.4, -1e6, 1e6)
    """Factor on the raw b' from the network."""


@dataclass(frozen=True)
class MixtureOptions:
    """The quantile map of a mixture of Gaussians."""

    components: int = ranged(2, 1, 1000)
    """K."""
    tied: bool = False
    """The components are the codebook's own, two a note; the network gives their weights only. Music only: for text
    and tokens hidden: codebook is the tied mixture."""


@dataclass(frozen=True)
class LayeredOptions:
    """J layers, each a scalar map whose parameters a small network gives."""

    layers: int = ranged(5, 1, 1000)
    """J."""
    depth: int = ranged(2, 1, 1000)
    """Hidden layers of the network in each."""
    units: int = ranged(100, 1, 100_000)
    """Their units."""
    skip: bool = False
    """Let the context reach the scalar parameters directly too, not only through these units."""
    dropout: float = ranged(0.0, 0, 1)
    """On these units."""


@dataclass(frozen=True)
class TiedOptions:
    """The components are the codes; the context gives their weights only."""

    embedded: bool = False
    """Whether the weights come through the embedding that the context reads symbols by, as in a language model with one
    matrix for both; else by a matrix of their own."""


@dataclass(frozen=True)
class LSTMContextOptions:
    """An LSTM over the steps before."""

    layers: int = ranged(2, 1, 1000)
    units: int = ranged(500, 1, 100_000)
    """Its units, and the size of the context."""
    dropout: float = ranged(0.2, 0, 1)
    """Between its layers and on its output."""
    input_dropout: float = ranged(0.0, 0, 1)
    """On what it reads of a step."""
    recurrent_dropout: float = ranged(0.0, 0, 1)
    """On the entries of its recurrent matrices, the same ones for all steps of a batch."""


@dataclass(frozen=True)
class PositionOptions:
    """The position alone."""

    units: int = ranged(500, 1, 100_000)
    """The size of the context."""


@dataclass(frozen=True)
class LayerOptions:
    """A tanh layer between z_t and the context: few numbers are read badly without it."""

    units: int = ranged(64, 1, 100_000)


@dataclass(frozen=True)
class BiLSTMOptions:
    """A BiLSTM over the whole sequence, the paper's."""

    layers: int = ranged(2, 1, 1000)
    units: int = ranged(500, 1, 100_000)
    dropout: float = ranged(0.0, 0, 1)
    """Between the layers and on the output."""
    scale: float = ranged(1.0, 1e-6, 1e6)
    """It thinks of z in this unit; 1: the paper's. Left alone, an autoencoder under a small KL weight puts its symbols
    tens of units apart, where the prior's networks are saturated; 0.1 keeps them near."""


@dataclass(frozen=True)
class BiLSTMPosteriorOptions(BiLSTMOptions):
    """The same as a posterior."""

    gain: float = ranged(1.0, 0, 1e6)
    """Factor on the initial weights to the means: far above 1, symbols start apart."""


@dataclass(frozen=True)
class CodebookOptions:
    """A Gaussian for each symbol, or for each note on and off: q knows x_t alone."""

    sigma: float = ranged(0.3, 1e-6, 1e6)
    """The standard deviation that codes start with; their means start at ±1."""
    learned: bool = True
    """Whether means and deviations are trained."""
    notes: Literal["up", "down"] = "up"
    """Music: whether z_t begins with the lowest note or with the highest, which the prior decides first. A melody that
    is given is harmonised best by a prior that begins with it."""


# The tables.


@dataclass(frozen=True)
class Entry:
    """A choice on an axis."""

    name: str
    about: str
    make: str | Callable[..., Any]
    """make(options, parts), or "module:function" to be imported when it is used."""
    options: type = NoOptions
    origin: str | None = None
    """Where a name that does not come with the package is from."""

    def built(self, options: Any, parts: Any) -> Any:
        make = self.make
        if isinstance(make, str):
            module, _, name = make.partition(":")
            make = getattr(import_module(module), name)
        return make(options, parts)


class Axis(Mapping[str, Entry]):
    """The names of one axis; an unknown one is looked for among installed packages before it is refused."""

    def __init__(self, name: str, *entries: Entry):
        self.name = name
        self._entries = {entry.name: entry for entry in entries}

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            _load_installed()
        if name not in self._entries:
            raise KeyError(name)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        there = self._entries.get(entry.name)
        if there is not None and there.origin is None:
            raise LatflowError(f"{self.name} {entry.name!r} comes with latflow; register another name")
        self._entries[entry.name] = entry


_MAKE = "latflow.models.axes"
AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis(
            "scalar",
            Entry("nlsq", "the paper's non-linear squared map", f"{_MAKE}:nlsq", NLSqOptions),
            Entry("affine", "a + b eps", f"{_MAKE}:affine", AffineOptions),
            Entry(
                "mixture", "the quantile map of a mixture of Gaussians", f"{_MAKE}:mixture", MixtureOptions
            ),
        ),
        Axis(
            "hidden",
            Entry("af", "autoregressive over the dimensions", f"{_MAKE}:autoregressive", LayeredOptions),
            Entry("scf", "split coupling", f"{_MAKE}:split_coupling", LayeredOptions),
            Entry("none", "no dependence between dimensions", f"{_MAKE}:elementwise", LayeredOptions),
            Entry(
                "codebook", "a mixture of all codes, the triangular map", f"{_MAKE}:tied_mixture", TiedOptions
            ),
        ),
        Axis(
            "time",
            Entry("af", "the context sees z_<t", f"{_MAKE}:time_af"),
            Entry("iaf", "the context sees eps_<t", f"{_MAKE}:time_iaf"),
            Entry("none", "the context sees its position alone", f"{_MAKE}:time_none"),
        ),
        Axis(
            "context",
            Entry("lstm", "an LSTM over the steps before", f"{_MAKE}:lstm_context", LSTMContextOptions),
            Entry("position", "the position alone", f"{_MAKE}:position_context", PositionOptions),
        ),
        Axis(
            "reading",
            Entry("raw", "z_t as it is", f"{_MAKE}:raw"),
            Entry("layer", "a tanh layer of z_t", f"{_MAKE}:layer", LayerOptions),
            Entry("symbols", "the expected symbol of z_t under the emission", f"{_MAKE}:symbols"),
        ),
        Axis(
            "posterior",
            Entry(
                "bilstm", "a BiLSTM over x, the paper's", f"{_MAKE}:bilstm_posterior", BiLSTMPosteriorOptions
            ),
            Entry("codebook", "a Gaussian for each symbol", f"{_MAKE}:codebook", CodebookOptions),
        ),
        Axis(
            "emission",
            Entry("bilstm", "a BiLSTM over z, the paper's", f"{_MAKE}:bilstm_emission", BiLSTMOptions),
            Entry("bayes", "Bayes' rule on the codebook: no network", f"{_MAKE}:bayes"),
        ),
    )
}


def register(
    axis: str, name: str, make: Callable[..., Any], options: type = NoOptions, about: str = ""
) -> None:
    """Add a name of one's own to an axis. `make(options, parts)` gives the part; `options` is a frozen dataclass whose
    fields, each with a default, become options of that choice in the config and on the command line."""
    if axis not in AXES:
        raise LatflowError(f"no axis called {axis!r}; accepted: {', '.join(AXES)}")
    if not name or not all(c.isalnum() or c in "-_" for c in name):
        raise LatflowError(f"{axis} {name!r}: a name is of letters, digits, - and _")
    if not callable(make):
        raise LatflowError(
            f"{axis} {name!r}: make is called with (options, parts), and {make!r} cannot be called"
        )
    _check_options(options, f"{axis} {name!r}")
    AXES[axis].add(Entry(name, about or (make.__doc__ or "").strip(), make, options, _origin(make)))


def _check_options(options: type, what: str) -> None:
    """That a config can hold them: with a default each, and apart from the name of the choice."""
    if not (isinstance(options, type) and is_dataclass(options)):
        raise LatflowError(f"{what}: its options must be a dataclass, not {options!r}")
    for f in fields(options):
        if f.name == "name":
            raise LatflowError(f"{what}: an option cannot be called name, which is that of the choice itself")
        if f.default is MISSING and f.default_factory is MISSING:
            raise LatflowError(
                f"{what}: option {f.name} has no default; a choice by its name alone needs one"
            )


def _origin(make: Callable[..., Any]) -> str:
    """Where a registered choice is from: the distribution if it is installed, and the module; of a program that was
    started, its file."""
    made_by = make.func if isinstance(make, partial) else make
    module = getattr(made_by, "__module__", None) or type(made_by).__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        return f"program {Path(file).name}" if file else "an interactive session"
    found = packages_distributions().get(module.partition(".")[0], [])
    return f"package {found[0]}, module {module}" if found else f"module {module}"


@cache
def _load_installed() -> None:
    """Import what installed packages offer under the entry-point group "latflow"; one that fails is warned of, so that
    it does not stand in the way of the others."""
    for point in entry_points(group="latflow"):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:
            warnings.warn(
                f"the entry point latflow {point.name} = {point.value} of an installed package failed: "
                f"{type(error).__name__}: {error}",
                LatflowWarning,
                stacklevel=2,
            )


@dataclass(frozen=True)
class Choice:
    """A name on an axis with its options, which are read as attributes of the choice: `prior.hidden.layers`."""

    axis: str
    name: str
    options: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "options":
            raise AttributeError(name)
        try:
            return getattr(self.options, name)
        except AttributeError:
            raise AttributeError(f"{self.axis} {self.name!r} has no option {name!r}") from None

    def build(self, parts: Any) -> Any:
        """The part of the model that was chosen."""
        return AXES[self.axis][self.name].built(self.options, parts)

    def renamed(self, name: str) -> Choice:
        """Another choice on the same axis, which keeps the options that both have."""
        if name == self.name:
            return self
        shared = {f.name for f in fields(self.options)}
        new = choose(self.axis, name)
        kept = {f.name: getattr(self.options, f.name) for f in fields(new.options) if f.name in shared}
        same = {k: v for k, v in kept.items() if type(v) is type(getattr(new.options, k))}
        return replace(new, options=replace(new.options, **same))


def choose(axis: str, name: str, **options: Any) -> Choice:
    """A choice by its name, with some of its options."""
    try:
        entry = AXES[axis][name]
    except KeyError:
        raise LatflowError(f"{axis} is {name!r}; accepted: {', '.join(AXES[axis])}") from None
    return Choice(axis, name, entry.options(**options))


def choice(axis: str, name: str, **options: Any) -> Any:
    """The field of a config dataclass that holds a choice on an axis."""
    return field(default_factory=lambda: choose(axis, name, **options), metadata={"axis": axis})
